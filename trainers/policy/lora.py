"""Low-rank adapters by peft: frozen weights, and for each linear layer W a change scale * B A that learns.

Hu et al. 2021, arXiv 2106.09685. B begins as 0, so that the model begins as it was; at the first step A has no gradient
yet. Dropout is 0: it would make importance ratios random. The frozen weights are in the compute precision, like
every frozen model; adapters and their optimiser are float32.
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

NAME = "default"  # of the only adapter, in peft
Model = TypeVar("Model", bound=nn.Module)


def adapt(model: PreTrainedModel, settings: Lora, precision: Precision, *, seed: int) -> PreTrainedModel:
    """Give a model adapters that learn, in place, drawn by `seed`; freeze all else, in the compute precision.

    Raises ValueError if a target names no linear layer of the blocks.
    """
    targets = _targets(model, settings.targets)
    config = LoraConfig(r=settings.rank, lora_alpha=settings.alpha, lora_dropout=0.0, target_modules=targets)
    with torch.random.fork_rng(devices=[]):  # peft draws numbers that are not used
        inject_adapter_in_model(config, model, NAME)
    generator = torch.Generator().manual_seed(seed)
    low = precision.compute == "bfloat16"
    learning = set()
    for layer in _layers(model):
        first, second = layer.lora_A[NAME], layer.lora_B[NAME]
        # As peft does, but on the CPU and in float32, so that the numbers are those of the seed on every device.
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
    """Return the full names of the linear layers that get adapters."""
    kinds = set(model._no_split_modules or ())
    linear = [
        f"{block}.{name}"
        for block, module in model.named_modules()
        if type(module).__name__ in kinds
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D"
    ]
    there = sorted({name.rpartition(".")[2] for name in linear})
    for name in names or ():
        if name not in there:
            raise ValueError(
                f"memory.lora.targets: no linear layer of {type(model).__name__}'s blocks is named {name!r}; "
                f"choose from {', '.join(there)}"
            )
    return [name for name in linear if names is None or name.rpartition(".")[2] in names]


def _layers(model: nn.Module) -> Iterator[Any]:
    yield from (module for module in model.modules() if isinstance(module, LoraLayer))


class Reference(nn.Module):
    """The model as it was before adapters learnt: the same weights, so that there is no copy of them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._model = (model,)  # not a module of its own, whose weights would be here twice

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Call the model without its adapters."""
        # Not by peft's `enable_adapters`, which also makes adapters learn or not: FSDP asks for that when it gathers.
        layers = list(_layers(self._model[0]))
        for layer in layers:
            layer._disable_adapters = True
        try:
            return self._model[0](*inputs, **named)
        finally:
            for layer in layers:
                layer._disable_adapters = False


class Learning(nn.Module):
    """Checkpoint of a model with adapters: the parameters that learn."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._model = (model,)

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """Return the parameters that learn, by name."""
        (model,) = self._model
        learning = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        return {name: value for name, value in model.state_dict().items() if name in learning}


def merged(model: nn.Module, ranks: Ranks) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of a model without adapters that computes the same, one after the other, float32, on the CPU.

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
        yield name.replace(".base_layer.", "."), weight.cpu()  # together they are more than the model on the device


def save(model: PreTrainedModel, folder: Path, ranks: Ranks) -> None:
    """Write the merged model as transformers would, whole, once. All ranks must call it."""
    weights = {name: weight for name, weight in merged(model, ranks) if ranks.rank == 0}
    if ranks.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(folder, state_dict=weights)
        path = folder / "config.json"  # says in which precision the frozen weights were
        described = json.loads(path.read_text(encoding="utf-8")) | {"dtype": "float32"}
        path.write_text(json.dumps(described, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    ranks.gather(None)  # none goes on, to wait for the first where all compute together


class Adapters:
    """Interface for callers that do not know whether a model has adapters; `adapt` leaves it on the model."""

    adapt, reference, learning, save = staticmethod(adapt), Reference, Learning, staticmethod(save)
