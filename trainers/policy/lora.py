"""Low-rank adapters by peft: each linear layer has frozen weights W and a trainable change scale * B A.

Hu et al. 2021, arXiv 2106.09685. B is 0 at first, so the adapted model equals the original one, and A has no gradient
at the first step. Dropout is 0, because it would make importance ratios random. Frozen weights have the compute
precision, as every frozen model does; adapters and their optimiser are float32.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ablation.runner.ranks import Ranks
from trainers.policy.config import Lora, Precision
from trainers.policy.models import checkpoint_activations

try:
    from peft import LoraConfig, inject_adapter_in_model
    from peft.tuners.lora import LoraLayer
except ImportError as error:
    raise ImportError(
        "memory.lora needs peft; run pip install 'ablation-tracker[lora]', or set memory.lora to null"
    ) from error

NAME = "default"  # peft's name of the only adapter
Model = TypeVar("Model", bound=nn.Module)


def adapt(model: PreTrainedModel, settings: Lora, precision: Precision, *, seed: int) -> PreTrainedModel:
    """Add trainable adapters, initialised by `seed`, to a model in place, and freeze all other weights.

    Raises ValueError if a target is not the name of a linear layer in the model's blocks.
    """
    targets = _targets(model, settings.targets)
    config = LoraConfig(r=settings.rank, lora_alpha=settings.alpha, lora_dropout=0.0, target_modules=targets)
    with torch.random.fork_rng(devices=[]):  # peft draws initial weights, which are replaced below
        inject_adapter_in_model(config, model, NAME)
    generator = torch.Generator().manual_seed(seed)
    low = precision.compute == "bfloat16"
    learning = set()
    for layer in _layers(model):
        first, second = layer.lora_A[NAME], layer.lora_B[NAME]
        # peft's initialisation, but on the CPU and in float32, so that a seed gives the same weights on every device.
        drawn = nn.init.kaiming_uniform_(torch.empty(first.weight.shape), a=math.sqrt(5), generator=generator)
        first.to(torch.float32).weight.data.copy_(drawn)
        nn.init.zeros_(second.to(torch.float32).weight)
        learning |= {first.weight, second.weight}
    model.adapters = Adapters
    for parameter in model.parameters():
        parameter.requires_grad_(parameter in learning)
        if low and parameter not in learning:
            parameter.data = parameter.data.to(torch.bfloat16)
    if precision.activation_checkpointing:
        checkpoint_activations(model)
    return model


def _targets(model: PreTrainedModel, names: tuple[str, ...] | None) -> list[str]:
    """Return the full names of the blocks' linear layers whose last part is in `names`; None: of all of them."""
    kinds = set(model._no_split_modules or ())
    linear = [
        f"{block}.{name}"
        for block, module in model.named_modules()
        if type(module).__name__ in kinds
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D"
    ]
    known = sorted({name.rpartition(".")[2] for name in linear})
    for name in names or ():
        if name not in known:
            raise ValueError(
                f"memory.lora.targets: no linear layer of {type(model).__name__}'s blocks is named {name!r}; "
                f"choose from {', '.join(known)}"
            )
    return [name for name in linear if names is None or name.rpartition(".")[2] in names]


def _layers(model: nn.Module) -> Iterator[Any]:
    yield from (module for module in model.modules() if isinstance(module, LoraLayer))


class Reference(nn.Module):
    """Reference policy: calls the adapted model without its adapters, so that the weights need no copy."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._model = (model,)  # in a tuple, so that torch does not register it as a submodule

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Call the model without its adapters."""
        # peft's `enable_adapters` also changes `requires_grad`, which FSDP reads when it gathers weights.
        layers = list(_layers(self._model[0]))
        for layer in layers:
            layer._disable_adapters = True
        try:
            return self._model[0](*inputs, **named)
        finally:
            for layer in layers:
                layer._disable_adapters = False


class Learning(nn.Module):
    """View of a model with adapters whose state dict has only the trainable parameters, for checkpoints."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._model = (model,)

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """Return the trainable parameters by name."""
        (model,) = self._model
        learning = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        return {name: value for name, value in model.state_dict().items() if name in learning}


def merged(model: nn.Module, ranks: Ranks) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, float32 tensor on the CPU) for each weight, with the adapters added to the frozen weights.

    All ranks must call it.
    """
    adapted: dict[str, Any] = {
        f"{name}.base_layer.weight": module for name, module in model.named_modules() if isinstance(module, LoraLayer)
    }
    for name, parameter in model.named_parameters():  # tied weights come once
        if ".lora_A." in name or ".lora_B." in name:
            continue
        weight = ranks.full_tensor(parameter.detach()).float()
        if name in adapted:
            layer = adapted[name]
            first, second = (ranks.full_tensor(each[NAME].weight.detach()) for each in (layer.lora_A, layer.lora_B))
            change = layer.scaling[NAME] * (second @ first)
            weight = weight + (change.T if layer.fan_in_fan_out else change)
        yield name.replace(".base_layer.", "."), weight.cpu()  # one at a time, as all do not fit on the device


def save(model: PreTrainedModel, folder: Path, ranks: Ranks) -> None:
    """Write the merged model in transformers' format, from the first rank. All ranks must call it."""
    weights = {name: weight for name, weight in merged(model, ranks) if ranks.rank == 0}
    if ranks.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(folder, state_dict=weights)
        path = folder / "config.json"  # it names the precision of the frozen weights
        described = json.loads(path.read_text(encoding="utf-8")) | {"dtype": "float32"}
        path.write_text(json.dumps(described, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    ranks.gather(None)  # all ranks wait here for the first, because later collective operations time out sooner


class Adapters:
    """Functions of this module for callers that do not import the module; `adapt` stores this class on the model."""

    adapt, reference, learning, save = staticmethod(adapt), Reference, Learning, staticmethod(save)
