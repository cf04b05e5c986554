"""Policies and their copies: placement on devices, construction, loading and saving."""

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
    """Device and precision of models, the ranks that share them, and `lora.Adapters` if models have adapters."""

    device: torch.device
    precision: Precision
    ranks: Ranks = ALONE
    adapters: Any = None

    @classmethod
    def of(cls, devices: list[str], precision: Precision, ranks: Ranks = ALONE, adapters: Any = None) -> "Placement":
        """Return the placement on this rank's first device, and set how devices multiply float32 matrices."""
        torch.backends.cuda.matmul.allow_tf32 = precision.compute == "tf32"
        return cls(torch.device(devices[0]), precision, ranks, adapters)

    @property
    def before_sharding(self) -> torch.device:
        """Return the device on which a model is loaded: with several ranks, the CPU, until the model is sharded."""
        return self.device if self.ranks.size == 1 else torch.device("cpu")

    def shard(self, model: Any) -> Any:
        """Return the model sharded over the ranks, for forward passes inside `autocast`."""
        return self.ranks.shard(model, autocast=self.precision.compute == "bfloat16")

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context of a forward pass, with bfloat16 arithmetic if the precision asks for it.

        Autocast caches bfloat16 copies of weights until the context ends. Several ranks, which gather one block at a
        time, do not cache them, because a forward pass uses each weight once.
        """
        enabled, keep = self.precision.compute == "bfloat16", self.ranks.size == 1
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled, cache_enabled=keep)


logging.disable_progress_bar()  # a bar for each model would fill the logs
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
Model = TypeVar("Model", bound=nn.Module)
POLICY = "policy"  # subfolder of a stage that holds a trained policy


def build_policy(shape: Scratch, tokenizer: PreTrainedTokenizerBase, seed: int) -> PreTrainedModel:
    """Return a Qwen2 with random weights, without changing the global random state."""
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
    """Write model and tokenizer to `folder` in transformers' format, with safetensors."""
    save_weights(folder, model, ranks)
    tokenizer.save_pretrained(folder)


def save_weights(folder: Path, model: PreTrainedModel, ranks: Ranks = ALONE) -> None:
    """Write a model to `folder` in transformers' format, with adapters merged into the weights."""
    if adapters := adapters_of(model):
        adapters.save(model, folder, ranks)
    else:
        ranks.save(model, folder)


def adapters_of(model: nn.Module) -> Any:
    """Return `lora.Adapters` if the model or a part of it has adapters, else None."""
    return next((module.adapters for module in model.modules() if "adapters" in vars(module)), None)


def learning(model: nn.Module) -> nn.Module:
    """Return the part of a model that checkpoints hold: its adapters if there are any, else the whole model."""
    adapters = adapters_of(model)
    return model if adapters is None else adapters.learning(model)


def load_tokenizer(folder: Path, *, generates: bool = True) -> PreTrainedTokenizerBase:
    """Return the tokenizer in `folder`.

    Raises ValueError if the model `generates` but there is no end-of-sequence token.
    """
    # AutoTokenizer chooses by the model's type, so it would read a word-level vocabulary as Qwen2's byte-level one.
    declared = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("tokenizer_class")
    cls = PreTrainedTokenizerFast if declared in _GENERIC else AutoTokenizer
    tokenizer = cls.from_pretrained(folder, local_files_only=True)
    if generates and tokenizer.eos_token_id is None:
        raise ValueError(f"{folder}: the tokenizer has no end-of-sequence token; use another model")
    return tokenizer


def checkpoint_activations(model: PreTrainedModel) -> None:
    """Make the backward pass recompute activations, in training mode, instead of storing them."""
    # transformers below 5.23 has only the old name, and 6 will have only the new one.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def without_dropout(model: Model) -> Model:
    """Return the model with all dropout set to 0, in place, because dropout makes importance ratios random."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def refuse_other_tokenizer(folder: Path, policy: Path) -> None:
    """Raise ValueError if the tokenizer in `folder` gives a token of the tokenizer in `policy` another id, or none."""
    vocabulary, policy_vocabulary = (load_tokenizer(each, generates=False).get_vocab() for each in (folder, policy))
    for token, number in policy_vocabulary.items():
        if vocabulary.get(token) != number:
            raise ValueError(
                f"{folder}: the token {token!r} has the id {vocabulary.get(token)} here, but {number} in the policy's "
                f"tokenizer ({policy}); use a model of the policy's family"
            )


def frozen_copy(policy: PreTrainedModel, placement: Placement) -> PreTrainedModel:
    """Return a frozen copy of the policy's current weights, equal to a frozen model from `load_policy`.

    Several ranks must all call it, before the policy is sharded; the copy is then sharded too.
    """
    dtype = torch.bfloat16 if placement.precision.compute == "bfloat16" else torch.float32
    # Weights are converted one by one, to save memory. Buffers are not converted: a rotary embedding's frequencies stay
    # float32 in every precision, else late tokens would be rotated by other angles than in the policy.
    weights = {id(weight): nn.Parameter(weight.detach().to(dtype, copy=True), False) for weight in policy.parameters()}
    model = copy.deepcopy(policy, weights).eval()
    return placement.ranks.shard(model) if placement.ranks.size > 1 else model.to(placement.device)


def load_policy_and_reference(
    folder: Path, placement: Placement, memory_settings: Memory, seed: int | None, *, reference: bool = False
) -> tuple[PreTrainedModel, nn.Module | None]:
    """Return the trainable, sharded causal model in `folder` and, if `reference` is true, a frozen copy of the model.

    With adapters, which `seed` initialises, the reference is the same model without them.
    """
    lora, precision = memory_settings.lora, placement.precision

    def load() -> PreTrainedModel:
        model = load_policy(folder, placement.before_sharding, precision, trainable=lora is None)
        return model if lora is None else placement.adapters.adapt(model, lora, precision, seed=seed or 0)

    model = placement.ranks.build(load)  # only the first of several ranks has the weights until they are sharded
    copied = frozen_copy(model, placement) if reference and lora is None else None
    model = placement.shard(model)
    return model, placement.adapters.reference(model) if reference and lora is not None else copied


def load_policy(
    folder: Path, device: torch.device, precision: Precision | None = None, *, trainable: bool = False
) -> PreTrainedModel:
    """Return the causal model in `folder` on `device`, in evaluation mode and without dropout.

    A trainable model is float32, and has activation checkpointing if the precision asks for it; a frozen model has the
    compute precision.
    """
    frozen_low = precision is not None and precision.compute == "bfloat16" and not trainable
    dtype = torch.bfloat16 if frozen_low else torch.float32
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True).to(device).eval()
    without_dropout(model).requires_grad_(trainable)
    if trainable and precision is not None and precision.activation_checkpointing:
        checkpoint_activations(model)
    return model
