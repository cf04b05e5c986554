"""Log-probabilities and entropies of responses under a model."""

from typing import Any

import torch
from torch import Tensor, nn

from trainers.objectives.entropy import token_entropy
from trainers.policy.batch import Sequences
from trainers.policy.plain import packs, states
from trainers.running.micro_batch import MicroBatch


def response_logits(model: nn.Module, sequences: Sequences) -> Tensor:
    """Return the logits (N, T, V) of the response's tokens, float32 or more: position t sees what is before it."""
    width = sequences.response_ids.shape[1]
    logits = model(**sequences.model_inputs(), use_cache=False, logits_to_keep=width + 1).logits
    return logits[:, :-1].to(torch.promote_types(logits.dtype, torch.float32))


def per_token_logps(
    model: Any, sequences: Sequences, temperature: float = 1.0, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of the response's tokens and the entropies there, both (N, T), 0 at padding.

    entropy_gradient: whether the entropies have a gradient, for which a graph over the vocabulary is kept.
    """
    keep = sequences.mask.bool()
    if packs(model):
        logits = model.lm_head(states(model.model, sequences, last=False)) / temperature
        logps = _chosen(logits, sequences.response_ids[keep])
        entropy = token_entropy(logits if entropy_gradient else logits.detach())
        zeros = logits.new_zeros(keep.shape)
        return zeros.masked_scatter(keep, logps), zeros.masked_scatter(keep, entropy)
    logits = response_logits(model, sequences) / temperature
    logps = _chosen(logits, sequences.response_ids)
    entropy = token_entropy(logits if entropy_gradient else logits.detach())
    return torch.where(keep, logps, 0.0), torch.where(keep, entropy, 0.0)


def _chosen(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the log-probabilities of tokens (...) under logits (..., V)."""
    return torch.log_softmax(logits, -1).gather(-1, tokens[..., None])[..., 0]


@torch.no_grad()
def batched_logps(
    model: nn.Module, sequences: Sequences, temperature: float, batch_size: MicroBatch | int | None
) -> Tensor:
    """Return `per_token_logps` (N, T) without gradient, `batch_size` responses at a time (None: all)."""
    memory = batch_size if isinstance(batch_size, MicroBatch) else MicroBatch(batch_size)
    width = sequences.mask.shape[1]

    def logps(rows: Tensor) -> Tensor:
        chosen, _ = per_token_logps(model, sequences.select(rows), temperature)
        return nn.functional.pad(chosen, (0, width - chosen.shape[1]))

    return torch.cat(memory.run(torch.arange(len(sequences)), logps))
