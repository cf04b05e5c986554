"""Prompts and responses as tensors, and what a model says about the responses."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from trainers.objectives.entropy import token_entropy
from trainers.policy.plain import packs, states
from trainers.running.micro_batch import MicroBatch


@dataclass(frozen=True)
class Sequences:
    """N prompts (N, P), padded on the left, and their responses (N, T), padded on the right; masks are 1 at tokens.

    A response ends with the end-of-sequence token unless it was cut. `logps` (N, T), nats, at the sampling temperature:
    what the sampler gave the tokens; None for responses that nobody sampled.
    """

    prompt_ids: Tensor
    prompt_mask: Tensor
    response_ids: Tensor
    mask: Tensor
    logps: Tensor | None = None

    def __len__(self) -> int:
        return len(self.response_ids)

    def select(self, rows: Tensor) -> "Sequences":
        """Return the rows, without columns that are padding in all of them."""
        rows = rows.to(self.mask.device)
        mask, prompt_mask = self.mask[rows], self.prompt_mask[rows]
        width, longest = 0, self.prompt_ids.shape[1]
        if len(rows):  # both at once: the host waits for an accelerator
            width, longest = torch.stack([each.sum(-1).max().long() for each in (mask, prompt_mask)]).tolist()
        start = self.prompt_ids.shape[1] - longest
        return Sequences(
            self.prompt_ids[rows, start:],
            prompt_mask[:, start:],
            self.response_ids[rows, :width],
            mask[:, :width],
            None if self.logps is None else self.logps[rows, :width],
        )

    def ended(self, eos: int) -> Tensor:
        """Return which responses (N,) ended by themselves and were not cut."""
        return ((self.response_ids == eos) & self.mask.bool()).any(1)

    def to(self, device: torch.device | str) -> "Sequences":
        """Return the same on another device."""
        moved = {name: value.to(device) for name, value in vars(self).items() if value is not None}
        return replace(self, **moved)

    @property
    def attention_mask(self) -> Tensor:
        """Return the mask of prompt and response, (N, P + T)."""
        return torch.cat([self.prompt_mask, self.mask.to(self.prompt_mask.dtype)], 1)

    def model_inputs(self) -> dict[str, Tensor]:
        """Return what a causal model is called with; positions count tokens, not padding."""
        mask = self.attention_mask
        return {
            "input_ids": torch.cat([self.prompt_ids, self.response_ids], 1),
            "attention_mask": mask,
            "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
        }


def concatenate(parts: list[Sequences], pad: int) -> Sequences:
    """Return the rows of all parts, padded to the longest prompt and the longest response."""
    if len(parts) == 1:
        return parts[0]
    prompt, width = max(p.prompt_ids.shape[1] for p in parts), max(p.mask.shape[1] for p in parts)

    def left(tensor: Tensor, value: int) -> Tensor:
        return nn.functional.pad(tensor, (prompt - tensor.shape[1], 0), value=value)

    def right(tensor: Tensor, value: int) -> Tensor:
        return nn.functional.pad(tensor, (0, width - tensor.shape[1]), value=value)

    return Sequences(
        torch.cat([left(p.prompt_ids, pad) for p in parts]),
        torch.cat([left(p.prompt_mask, 0) for p in parts]),
        torch.cat([right(p.response_ids, pad) for p in parts]),
        torch.cat([right(p.mask, 0) for p in parts]),
        torch.cat([right(p.logps, 0) for p in parts if p.logps is not None]) if parts[0].logps is not None else None,
    )


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
