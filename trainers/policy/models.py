"""The policy and its copies: where they are, how they are built from scratch, loaded and saved."""

import copy
import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.utils import logging

from ablation.runner.ranks import ALONE, Ranks
from trainers.policy.config import Memory, Precision, Scratch


@dataclass(frozen=True)
class Placement:
    """The device of the models, the processes that share them, and `lora.Adapters` where models learn with some."""

    device: torch.device
    precision: Precision
    ranks: Ranks = ALONE
    adapters: Any = None

    @classmethod
    def of(cls, devices: list[str], precision: Precision, ranks: Ranks = ALONE, adapters: Any = None) -> "Placement":
        """Return the placement on the stage's device, that of this rank; say how devices multiply float32 matrices."""
        torch.backends.cuda.matmul.allow_tf32 = precision.compute == "tf32"
        return cls(torch.device(devices[0]), precision, ranks, adapters)

    @property
    def before_sharding(self) -> torch.device:
        """Return where a model is loaded: several ranks move it to their devices in parts."""
        return self.device if self.ranks.size == 1 else torch.device("cpu")

    def shard(self, model: Any) -> Any:
        """Return a model whose forward passes are in `autocast`, sharded over the ranks."""
        return self.ranks.shard(model, autocast=self.precision.compute == "bfloat16")

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context of a forward: bfloat16 arithmetic where the precision asks for it.

        Autocast keeps the bfloat16 copies of weights until the context ends; several ranks, which gather the weights of
        one block at a time, do without: each weight is used once in a forward.
        """
        enabled, keep = self.precision.compute == "bfloat16", self.ranks.size == 1
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled, cache_enabled=keep)


logging.disable_progress_bar()  # a bar per model fills the logs of a grid
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
Model = TypeVar("Model", bound=nn.Module)
POLICY = "policy"  # subfolder of a stage that holds a trained policy


def build_policy(shape: Scratch, tokenizer: PreTrainedTokenizerBase, seed: int) -> PreTrainedModel:
    """Return a Qwen2 with random weights; the global random state is left as it was."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        intermediate_size=shape.feed_forward,
        max_position_embeddings=shape.positions,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        initializer_range=shape.init_std,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        use_cache=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config)


def save_policy(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, ranks: Ranks = ALONE) -> None:
    """Write model and tokenizer as transformers does, with safetensors."""
    save_weights(folder, model, ranks)
    tokenizer.save_pretrained(folder)


def save_weights(folder: Path, model: PreTrainedModel, ranks: Ranks = ALONE) -> None:
    """Write a model as transformers does; one with adapters as the model that computes the same without them."""
    if adapters := adapters_of(model):
        adapters.save(model, folder, ranks)
    else:
        ranks.save(model, folder)


def adapters_of(model: nn.Module) -> Any:
    """Return `lora.Adapters` where a model or a part of it has adapters."""
    return next((module.adapters for module in model.modules() if "adapters" in vars(module)), None)


def learning(model: nn.Module) -> nn.Module:
    """Return the part of a model that a checkpoint holds: all of it, or the adapters that learn."""
    adapters = adapters_of(model)
    return model if adapters is None else adapters.learning(model)


def load_tokenizer(folder: Path, *, generates: bool = True) -> PreTrainedTokenizerBase:
    """Return the tokenizer in `folder`. Raises ValueError if one that `generates` has no end-of-sequence token."""
    # AutoTokenizer goes by the model's type and would read a word-level vocabulary as Qwen2's byte-level one.
    declared = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("tokenizer_class")
    cls = PreTrainedTokenizerFast if declared in _GENERIC else AutoTokenizer
    tokenizer = cls.from_pretrained(folder, local_files_only=True)
    if generates and tokenizer.eos_token_id is None:
        raise ValueError(f"{folder}: the tokenizer has no end-of-sequence token, so no response would ever end")
    return tokenizer


def checkpoint_activations(model: PreTrainedModel) -> None:
    """Let the backward pass, in training mode, compute activations again instead of keeping them."""
    # transformers below 5.23 has only the old name, and 6 will have only the new one.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def without_dropout(model: Model) -> Model:
    """Return the model, changed, with all dropout layers at 0: they would make importance ratios random."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def refuse_other_tokenizer(folder: Path, policy: Path) -> None:
    """Raise ValueError if the model in `folder` would read the policy's token ids as other tokens."""
    vocabulary, policy_vocabulary = (load_tokenizer(each, generates=False).get_vocab() for each in (folder, policy))
    for token, number in policy_vocabulary.items():
        if vocabulary.get(token) != number:
            raise ValueError(
                f"{folder}: the tokenizer differs from the policy's ({policy}), whose token ids the model gets: "
                f"{token!r} is {number} there but {vocabulary.get(token)} here; use a model of the same family"
            )


def frozen_copy(policy: PreTrainedModel, placement: Placement) -> PreTrainedModel:
    """Return what `load_policy` makes of the policy's weights as they are now, without reading them again.

    With several ranks it is made before the policy is sharded, by all of them, and is sharded itself.
    """
    dtype = torch.bfloat16 if placement.precision.compute == "bfloat16" else torch.float32
    # One by one, so that there is no copy in another precision in between; not the buffers: a rotary embedding's
    # frequencies are float32 in every precision, else the reference would turn late tokens by other angles.
    weights = {id(weight): nn.Parameter(weight.detach().to(dtype, copy=True), False) for weight in policy.parameters()}
    model = copy.deepcopy(policy, weights).eval()
    return placement.ranks.shard(model) if placement.ranks.size > 1 else model.to(placement.device)


def load_policy_and_reference(
    folder: Path, placement: Placement, memory_settings: Memory, seed: int | None, *, reference: bool = False
) -> tuple[PreTrainedModel, nn.Module | None]:
    """Return the causal model that learns, sharded, and a frozen copy of it if there is to be a `reference`.

    With adapters, drawn by `seed`, the reference is the same model without them.
    """
    lora, precision = memory_settings.lora, placement.precision

    def load() -> PreTrainedModel:
        model = load_policy(folder, placement.before_sharding, precision, trainable=lora is None)
        return model if lora is None else placement.adapters.adapt(model, lora, precision, seed=seed or 0)

    model = placement.ranks.build(load)  # of several ranks only the first has the weights before they are sharded
    copied = frozen_copy(model, placement) if reference and lora is None else None
    model = placement.shard(model)
    return model, placement.adapters.reference(model) if reference and lora is not None else copied


def load_policy(
    folder: Path, device: torch.device, precision: Precision | None = None, *, trainable: bool = False
) -> PreTrainedModel:
    """Return the causal model in `folder` on `device`, in float32 (a frozen one in the compute precision), eval mode.

    Dropout is switched off: it would make the importance ratio random. With activation checkpointing the backward pass
    computes activations again instead of keeping them.
    """
    frozen_low = precision is not None and precision.compute == "bfloat16" and not trainable
    dtype = torch.bfloat16 if frozen_low else torch.float32
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True).to(device).eval()
    without_dropout(model).requires_grad_(trainable)
    if trainable and precision is not None and precision.activation_checkpointing:
        checkpoint_activations(model)
    return model
