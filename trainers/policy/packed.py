"""Prompts and responses without padding, each prompt once: the forward passes of updates and critics.

The responses of a group follow the same prompt, and a batch is padded to its longest response, so that half of what a
model computes in an update is repetition or padding. For the models that `decode` samples from by their weights the
tokens that differ are one row of tokens; only attention is computed by response. Equal to the model's own forward but
for rounding. On a CPU only: an accelerator would wait for the numbers of tokens.
"""

from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from torch.nn import functional

from trainers.policy.plain import Layer, is_plain, norm, rotations


class Sequences(Protocol):
    """What is read of `trainers.policy.batch.Sequences`, whose module imports this one."""

    @property
    def prompt_ids(self) -> Tensor:
        """(N, P)."""

    @property
    def prompt_mask(self) -> Tensor:
        """(N, P)."""

    @property
    def response_ids(self) -> Tensor:
        """(N, T)."""

    @property
    def mask(self) -> Tensor:
        """(N, T), of the responses."""


@dataclass(frozen=True)
class Packing:
    """Where the R tokens of B distinct prompts and N responses stand; slots are numbers of tokens.

    T: tokens of the longest response that are read. All masks are true where there is something.
    """

    ids: Tensor  # (R,)
    positions: Tensor  # (R,), in their sequence
    prompts: Tensor  # (B, P) slots
    responses: Tensor  # (N, T) slots
    keys: Tensor  # (N, P + T) slots: of the response's prompt, and of the response
    prompt_mask: Tensor  # (B, 1, P, P), what attends to what
    response_mask: Tensor  # (N, 1, T, P + T)
    written: Tensor  # which of the B * P + N * T places have a token: the R tokens in their order

    @classmethod
    def of(cls, sequences: Sequences, *, last: bool) -> Self:
        """Pack sequences; without `last` the last token of every response is not read."""
        read = sequences.mask.bool() if last else sequences.mask.bool()[:, 1:]
        prompt_ids = torch.where(sequences.prompt_mask.bool(), sequences.prompt_ids, -1)
        prompts, owner = prompt_ids.unique(dim=0, return_inverse=True)
        there = prompts >= 0
        written = torch.cat([there.flatten(), read.flatten()])
        slots = written.cumsum(0) - 1
        of_prompts = slots[: prompts.numel()].view_as(prompts).clamp(min=0)
        of_responses = slots[prompts.numel() :].view_as(read)
        width, length = prompts.shape[1], read.shape[1]
        lengths = there.sum(1)
        after = lengths[owner, None] + torch.arange(length)
        causal = torch.ones(width, width, dtype=torch.bool).tril()
        itself = torch.eye(width, dtype=torch.bool)  # so that padding attends to something
        before = there[owner][:, None].expand(-1, length, -1)
        so_far = torch.ones(length, length, dtype=torch.bool).tril().expand(len(read), -1, -1)
        return cls(
            ids=torch.cat([prompts[there], sequences.response_ids[:, :length][read]]),
            positions=torch.cat([(there.cumsum(1) - 1)[there], after[read]]),
            prompts=of_prompts,
            responses=of_responses,
            keys=torch.cat([of_prompts[owner], of_responses], 1),
            prompt_mask=(causal & there[:, None] | itself)[:, None],
            response_mask=torch.cat([before, so_far], 2)[:, None],
            written=written.nonzero()[:, 0],
        )


def packs(model: Any) -> bool:
    """Tell whether `states` computes what a model's body does; `model` is the body, or a causal model with it."""
    if not is_plain(model) or model.device.type != "cpu":
        return False
    body = getattr(model, "model", model)
    return not (body.training and (body.gradient_checkpointing or body.config.attention_dropout > 0))


def states(body: Any, sequences: Sequences, *, last: bool) -> Tensor:
    """Return the last hidden states (M, H) at the M tokens of all responses, row by row.

    Args:
        body: a Qwen2Model or LlamaModel for which `packs` is true.
        sequences: N prompts and responses.
        last: the state of a token is that after it (a critic's), else that before it, from which it is predicted.
    """
    packing = Packing.of(sequences, last=last)
    hidden = body.embed_tokens(packing.ids)
    cos, sin = (each[:, None] for each in rotations(body, hidden, packing.positions))
    for block in body.layers:
        layer = Layer(block)
        hidden = hidden + _attention(layer, layer.before_attention(hidden), (cos, sin), packing)
        hidden = hidden + layer.feed_forward(hidden)
    slots = packing.responses if last else packing.keys[:, packing.prompts.shape[1] - 1 :]
    return norm(body.norm)(hidden.index_select(0, slots[sequences.mask.bool()]))


def _attention(layer: Layer, hidden: Tensor, rotation: tuple[Tensor, Tensor], packing: Packing) -> Tensor:
    """Return the attention's output (R, H) of all tokens."""
    query, key, value = layer.attended(hidden, rotation)
    keys = torch.cat([key, value], 1)

    def attend(asking: Tensor, asked: Tensor, mask: Tensor) -> Tensor:
        """Return the output (tokens, H) of queries in `asking` (rows, Q) on keys in `asked` (rows, K)."""
        key_rows, value_rows = _rows(keys, asked).split(value.shape[1], 1)
        found = functional.scaled_dot_product_attention(
            _rows(query, asking),
            key_rows,
            value_rows,
            attn_mask=mask,
            scale=layer.scaling,
            enable_gqa=query.shape[1] != value.shape[1],
        )
        return found.transpose(1, 2).reshape(-1, query.shape[1] * layer.head_dim)

    parts = [attend(packing.prompts, packing.prompts, packing.prompt_mask)]
    if packing.responses.shape[1] > 0:
        parts.append(attend(packing.responses, packing.keys, packing.response_mask))
    return functional.linear(torch.cat(parts).index_select(0, packing.written), *layer.output)


def _rows(tokens: Tensor, slots: Tensor) -> Tensor:
    """Return tokens (R, heads, D) by slots (rows, K): (rows, heads, K, D)."""
    chosen = tokens.flatten(1).index_select(0, slots.flatten())
    return chosen.view(*slots.shape, *tokens.shape[1:]).transpose(1, 2)
