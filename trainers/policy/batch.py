"""Prompts and responses as tensors."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Sequences:
    """N prompts (N, P), padded on the left, and their responses (N, T), padded on the right; masks are 1 at tokens.

    A response ends with the end-of-sequence token unless it was truncated. logps: the sampler's log-probabilities
    (N, T), in nats, at the sampling temperature; None for responses that were not sampled.
    """

    prompt_ids: Tensor
    prompt_mask: Tensor
    completion_ids: Tensor
    completion_mask: Tensor
    logps: Tensor | None = None

    def __len__(self) -> int:
        return len(self.completion_ids)

    @property
    def lengths(self) -> Tensor:
        """Return the number of tokens of each response, (N,)."""
        return self.completion_mask.sum(1)

    def select(self, rows: Tensor) -> "Sequences":
        """Return the responses with these row numbers, without columns that are padding in all of them."""
        rows = rows.to(self.completion_mask.device)
        mask, prompt_mask = self.completion_mask[rows], self.prompt_mask[rows]
        width, longest = 0, self.prompt_ids.shape[1]
        if len(rows):  # both lengths in one transfer, because the host waits for it
            width, longest = torch.stack([each.sum(-1).max().long() for each in (mask, prompt_mask)]).tolist()
        start = self.prompt_ids.shape[1] - longest
        return Sequences(
            self.prompt_ids[rows, start:],
            prompt_mask[:, start:],
            self.completion_ids[rows, :width],
            mask[:, :width],
            None if self.logps is None else self.logps[rows, :width],
        )

    def ended(self, eos: int) -> Tensor:
        """Return a mask (N,) of the responses with an end-of-sequence token, which are not truncated."""
        return ((self.completion_ids == eos) & self.completion_mask.bool()).any(1)

    def to(self, device: torch.device | str) -> "Sequences":
        """Return the sequences on another device."""
        moved = {name: value.to(device) for name, value in vars(self).items() if value is not None}
        return replace(self, **moved)

    def model_inputs(self) -> dict[str, Tensor]:
        """Return the input arguments of a causal model; positions count tokens but not padding."""
        mask = torch.cat([self.prompt_mask, self.completion_mask.to(self.prompt_mask.dtype)], 1)
        return {
            "input_ids": torch.cat([self.prompt_ids, self.completion_ids], 1),
            "attention_mask": mask,
            "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
        }


def concatenate(batches: list[Sequences], pad: int) -> Sequences:
    """Return the rows of all batches, padded to the longest prompt and the longest response."""
    if len(batches) == 1:
        return batches[0]
    prompt, width = max(p.prompt_ids.shape[1] for p in batches), max(p.completion_mask.shape[1] for p in batches)

    def left(tensor: Tensor, value: int) -> Tensor:
        return nn.functional.pad(tensor, (prompt - tensor.shape[1], 0), value=value)

    def right(tensor: Tensor, value: int) -> Tensor:
        return nn.functional.pad(tensor, (0, width - tensor.shape[1]), value=value)

    logps = [right(p.logps, 0) for p in batches if p.logps is not None]
    return Sequences(
        torch.cat([left(p.prompt_ids, pad) for p in batches]),
        torch.cat([left(p.prompt_mask, 0) for p in batches]),
        torch.cat([right(p.completion_ids, pad) for p in batches]),
        torch.cat([right(p.completion_mask, 0) for p in batches]),
        torch.cat(logps) if logps else None,
    )
