"""Fast forward passes of Qwen2 and Llama in float32, without padding.

For a small model on a CPU, transformers' overhead (a dozen Python functions per block, masks, copies) takes longer than
the matrix products.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaForCausalLM, LlamaModel, Qwen2ForCausalLM, Qwen2Model

from trainers.policy.batch import Sequences

KINDS = (Qwen2ForCausalLM, LlamaForCausalLM, Qwen2Model, LlamaModel)


def is_plain(model: Any) -> bool:
    """Return whether `Layer` gives the results of a model, judged by its type, precision, attention and hooks."""
    if type(model) not in KINDS:
        return False
    config, body = model.config, getattr(model, "model", model)
    linear = [module for name, module in body.named_modules() if name.endswith("_proj")]
    hooked = (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in vars(module)  # accelerate replaces it
        for module in model.modules()
    )
    return (
        all(type(module) is nn.Linear for module in linear)  # no adapters, no quantised weights
        and model.dtype == torch.float32
        and not torch.is_autocast_enabled(model.device.type)
        and config._attn_implementation == "sdpa"
        and getattr(config, "sliding_window", None) is None
        and all(layer == "full_attention" for layer in getattr(config, "layer_types", None) or ())
        and body.rotary_emb.rope_type == "default"
        and getattr(config, "pretraining_tp", 1) == 1
        and not any(hooked)
    )


class Layer:
    """Weights of one block, looked up once, because the look-up takes as long as small matrix products do."""

    def __init__(self, block: Any) -> None:
        attention, mlp = block.self_attn, block.mlp
        self.head_dim, self.scaling, self.activation = attention.head_dim, attention.scaling, mlp.act_fn
        self.before_attention, self.before_mlp = norm(block.input_layernorm), norm(block.post_attention_layernorm)
        self.query, self.key, self.value, self.output = (
            (each.weight, each.bias)
            for each in (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
        )
        self.gate, self.up, self.down = (
            (each.weight, each.bias) for each in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        )

    def attended(self, hidden: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (R, heads, D), keys and values (R, key heads, D) of tokens (R, H), with rotary positions.

        rotation: cosines and sines from `rotations`, (R, 1, D) each.
        """
        cos, sin = rotation
        both = torch.cat([functional.linear(hidden, *self.query), functional.linear(hidden, *self.key)], -1)
        both = both.view(len(hidden), -1, self.head_dim)
        both = both * cos + both.roll(self.head_dim // 2, -1) * sin
        value = functional.linear(hidden, *self.value).view(len(hidden), -1, self.head_dim)
        query, key = both.split([both.shape[1] - value.shape[1], value.shape[1]], 1)
        return query, key, value

    def attention(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output (R, heads, Q, D) of queries (R, heads, Q, D) that attend to keys (R, key heads, K, D)."""
        grouped = query.shape[1] != keys.shape[1]
        return functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, scale=self.scaling, enable_gqa=grouped
        )

    def feed_forward(self, hidden: Tensor) -> Tensor:
        """Return the MLP's output for tokens (R, H), including the norm before the MLP."""
        inside = self.before_mlp(hidden)
        gate = self.activation(functional.linear(inside, *self.gate))
        return functional.linear(gate * functional.linear(inside, *self.up), *self.down)


def rotations(body: Any, like: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines and signed sines (R, D) of the rotation angles at positions (R,).

    `x * cos + roll(x, D / 2) * sin` rotates a head x; for this, the sines of the first half are negated.

    like: a tensor with the device and type of the result.
    """
    cos, sin = (each[0] for each in body.rotary_emb(like, positions[None]))
    half = cos.shape[-1] // 2
    return cos, torch.cat([-sin[:, :half], sin[:, half:]], -1)


def norm(module: Any) -> Callable[[Tensor], Tensor]:
    """Return a function that applies RMSNorm with the module's weight to hidden states."""
    weight, epsilon = module.weight, module.variance_epsilon
    return lambda hidden: functional.rms_norm(hidden, weight.shape, weight, epsilon)


# Packed forward passes for updates and critics: prompts and responses without padding, common beginnings once.
#
# In a padded batch more than half of the computation would be repetition or padding, because the responses of a group
# share their prompt and often their beginnings, and because lengths differ. Packed, all distinct tokens form one row,
# and only attention is computed per response. The last block computes only the last token of a prompt, because nothing
# uses the states of the others. The result equals the model's own forward pass except for rounding. It is used on a CPU
# only, because an accelerator would have to wait for the number of tokens.
@dataclass(frozen=True)
class Packing:
    """Layout of B distinct prompts and M distinct responses in one row of R tokens; a slot is an index into that row.

    Responses with the same beginning share the tokens of that beginning. T: longest response. Masks are true for
    attended positions.
    """

    ids: Tensor  # (R,)
    positions: Tensor  # (R,), of each token in its sequence
    prompts: Tensor  # (B, P) slots
    queries: Tensor  # (B, Q) slots of the prompts' tokens whose attention is computed: all of them, or the last ones
    responses: Tensor  # (M, T) slots
    keys: Tensor  # (M, P + T) slots of the response's prompt and of the response
    prompt_mask: Tensor  # (B, 1, Q, P)
    response_mask: Tensor  # (M, 1, T, P + T)
    written: Tensor  # the positions, among B * Q + M * T, that have a token of their own, in the order of the tokens
    distinct: Tensor  # (N,), the distinct response that each of the N responses equals

    @classmethod
    def of(cls, sequences: Sequences, *, last: bool) -> Self:
        """Return the packing of sequences, without the last token of every response unless `last` is true."""
        read = sequences.completion_mask.bool() if last else sequences.completion_mask.bool()[:, 1:]
        prompt_ids = torch.where(sequences.prompt_mask.bool(), sequences.prompt_ids, -1)
        prompts, owner = prompt_ids.unique(dim=0, return_inverse=True)
        present = prompts >= 0
        width, length = prompts.shape[1], read.shape[1]
        ids = torch.where(read, sequences.completion_ids[:, :length], -1)
        # Sorted, so that a response has tokens of its own only from where it differs from the previous response.
        rows, distinct = torch.cat([owner[:, None], ids], 1).unique(dim=0, return_inverse=True)
        owner, ids = rows[:, 0], rows[:, 1:]
        differs = torch.ones_like(rows, dtype=torch.bool)
        differs[1:] = (rows[1:] != rows[:-1]).cumsum(1) > 0
        moved = differs[:, 1:] & (ids >= 0)
        written = torch.cat([present.flatten(), moved.flatten()])
        slots = written.cumsum(0) - 1
        prompt_slots = slots[: prompts.numel()].view_as(prompts).clamp(min=0)
        response_slots = torch.where(moved, slots[prompts.numel() :].view_as(moved), 0).cummax(0).values
        lengths = present.sum(1)
        after = lengths[owner, None] + torch.arange(length)
        causal = torch.ones(width, width, dtype=torch.bool).tril()
        itself = torch.eye(width, dtype=torch.bool)  # padding attends to itself, as attention to nothing is NaN
        before = present[owner][:, None].expand(-1, length, -1)
        so_far = torch.ones(length, length, dtype=torch.bool).tril().expand(len(rows), -1, -1)
        return cls(
            ids=torch.cat([prompts[present], ids[moved]]),
            positions=torch.cat([(present.cumsum(1) - 1)[present], after[moved]]),
            prompts=prompt_slots,
            queries=prompt_slots,
            responses=response_slots,
            keys=torch.cat([prompt_slots[owner], response_slots], 1),
            prompt_mask=(causal & present[:, None] | itself)[:, None],
            response_mask=torch.cat([before, so_far], 2)[:, None],
            written=written.nonzero()[:, 0],
            distinct=distinct,
        )

    def at_prompt_ends(self) -> tuple[Self, Tensor]:
        """Return the packing that computes only the last token of each prompt, and the slots of all computed tokens."""
        queries, count = self.prompts[:, -1:], len(self.prompts)
        responses = self.written[self.written >= self.prompts.numel()] - self.prompts.numel()
        slots = torch.cat([queries[:, 0], torch.arange(len(self.ids) - len(responses), len(self.ids))])
        written = torch.cat([torch.arange(count), count + responses])
        return replace(self, queries=queries, prompt_mask=self.prompt_mask[:, :, -1:], written=written), slots


def packs(model: Any) -> bool:
    """Return whether `states` gives the results of the body of `model`, which is a body or a causal model."""
    if not is_plain(model) or model.device.type != "cpu":
        return False
    body = getattr(model, "model", model)
    return not (body.training and (body.gradient_checkpointing or body.config.attention_dropout > 0))


def states(body: Any, sequences: Sequences, *, last: bool) -> Tensor:
    """Return the final layer's hidden state for each token of all N responses, (tokens, H), response by response.

    body: a Qwen2Model or LlamaModel for which `packs` is true. last: whether the state is the one after the token, as
    critics need it, or the one before the token, which predicts it.
    """
    packing = Packing.of(sequences, last=last)
    hidden = body.embed_tokens(packing.ids)
    cos, sin = (each[:, None] for each in rotations(body, hidden, packing.positions))
    place = torch.zeros_like(packing.ids)  # row of each slot in the last block
    for number, block in enumerate(body.layers, 1):
        layer = Layer(block)
        inside = layer.before_attention(hidden)
        if number == len(body.layers):
            packing, slots = packing.at_prompt_ends()
            place[slots] = torch.arange(len(slots))
            hidden = hidden.index_select(0, slots)
        hidden = hidden + _attention(layer, inside, (cos, sin), packing)
        hidden = hidden + layer.feed_forward(hidden)
    read = packing.responses if last else packing.keys[:, packing.prompts.shape[1] - 1 :]
    return norm(body.norm)(hidden.index_select(0, place[read[packing.distinct][sequences.completion_mask.bool()]]))


def _attention(layer: Layer, hidden: Tensor, rotation: tuple[Tensor, Tensor], packing: Packing) -> Tensor:
    """Return the attention output of the tokens that the packing computes, for all tokens (R, H)."""
    query, key, value = layer.attended(hidden, rotation)
    keys = torch.cat([key, value], 1)

    def attend(query_slots: Tensor, key_slots: Tensor, mask: Tensor) -> Tensor:
        """Return the output (tokens, H) of queries (rows, Q) that attend to keys (rows, K), both given by slots."""
        key_rows, value_rows = _rows(keys, key_slots).split(value.shape[1], 1)
        output = layer.attention(_rows(query, query_slots), key_rows, value_rows, mask)
        return output.transpose(1, 2).reshape(-1, query.shape[1] * layer.head_dim)

    outputs = [attend(packing.queries, packing.prompts, packing.prompt_mask)]
    if packing.responses.shape[1] > 0:
        outputs.append(attend(packing.responses, packing.keys, packing.response_mask))
    return functional.linear(torch.cat(outputs).index_select(0, packing.written), *layer.output)


def _rows(tokens: Tensor, slots: Tensor) -> Tensor:
    """Return the tokens (R, heads, D) at slots (rows, K), as (rows, heads, K, D)."""
    chosen = tokens.flatten(1).index_select(0, slots.flatten())
    return chosen.view(*slots.shape, *tokens.shape[1:]).transpose(1, 2)
