"""Qwen2 and Llama in float32, computed from their weights with nothing added: a block, and batches without padding.

transformers goes through a dozen Python layers for each block, makes masks and copies; for a small model that takes
longer than the products of its matrices.
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
    """Tell whether `Layer` says all of what a model, or its body, computes: kind, precision, attention, no hooks."""
    if type(model) not in KINDS:
        return False
    config, device, body = model.config, model.device, getattr(model, "model", model)
    linear = [module for name, module in body.named_modules() if name.endswith("_proj")]
    hooked = any(map(_is_hooked, model.modules()))
    return not (
        not sees_everything(config)
        or hooked
        or any(type(module) is not nn.Linear for module in linear)  # adapters, quantised weights
        or model.dtype != torch.float32
        or torch.is_autocast_enabled(device.type)
        or config._attn_implementation != "sdpa"
        or body.rotary_emb.rope_type != "default"
        or getattr(config, "pretraining_tp", 1) > 1
    )


def sees_everything(config: Any) -> bool:
    """Tell whether every layer attends to all that came before: no windows, no layers of another kind."""
    layers = getattr(config, "layer_types", None) or ()
    return getattr(config, "sliding_window", None) is None and all(layer == "full_attention" for layer in layers)


def _is_hooked(module: nn.Module) -> bool:
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in vars(module)  # so does accelerate put itself before a module


class Layer:
    """The weights of one block, found once: looking them up in the modules takes as long as small products do."""

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
        """Return query (R, heads, D), key and value (R, key heads, D) of tokens (R, H), turned by their positions.

        rotation: of `rotations`, with dimensions (R, 1, D).
        """
        cos, sin = rotation
        both = torch.cat([functional.linear(hidden, *self.query), functional.linear(hidden, *self.key)], -1)
        both = both.view(len(hidden), -1, self.head_dim)
        both = both * cos + both.roll(self.head_dim // 2, -1) * sin
        value = functional.linear(hidden, *self.value).view(len(hidden), -1, self.head_dim)
        query, key = both.split([both.shape[1] - value.shape[1], value.shape[1]], 1)
        return query, key, value

    def feed_forward(self, hidden: Tensor) -> Tensor:
        """Return the MLP's output for tokens (R, H), its norm included."""
        inside = self.before_mlp(hidden)
        gate = self.activation(functional.linear(inside, *self.gate))
        return functional.linear(gate * functional.linear(inside, *self.up), *self.down)


def rotations(body: Any, like: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines and sines (R, D) of rotary positions (R,): a head is x cos + x with its halves changed over sin.

    like: a tensor of the device and type.
    """
    cos, sin = (each[0] for each in body.rotary_emb(like, positions[None]))
    half = cos.shape[-1] // 2
    return cos, torch.cat([-sin[:, :half], sin[:, half:]], -1)


def norm(module: Any) -> Callable[[Tensor], Tensor]:
    """Return RMSNorm with the module's weight."""
    weight, epsilon = module.weight, module.variance_epsilon
    return lambda hidden: functional.rms_norm(hidden, weight.shape, weight, epsilon)


# Prompts and responses without padding, each beginning once: the forward passes of updates and critics.
#
# The responses of a group follow the same prompt, many of them begin alike, and a batch is padded to its longest
# response, so that more than half of what a model computes in an update is repetition or padding. Here the tokens that
# differ, or follow others, are one row of tokens; only attention is computed by response. The last block computes, of a
# prompt, the last token alone, as nothing reads the states of the others. Equal to the model's own forward but for
# rounding. On a CPU only: an accelerator would wait for the numbers of tokens.
@dataclass(frozen=True)
class Packing:
    """Where the R tokens of B distinct prompts and M distinct responses stand; slots are numbers of tokens.

    Responses with the same beginning share its tokens. T: tokens of the longest response that are read. All masks are
    true if there is something.
    """

    ids: Tensor  # (R,)
    positions: Tensor  # (R,), in their sequence
    prompts: Tensor  # (B, P) slots
    asking: Tensor  # (B, Q) slots: the tokens of the prompts that attend to others, all of them or the last ones
    responses: Tensor  # (M, T) slots
    keys: Tensor  # (M, P + T) slots: of the response's prompt, and of the response
    prompt_mask: Tensor  # (B, 1, Q, P), what attends to what
    response_mask: Tensor  # (M, 1, T, P + T)
    written: Tensor  # which of the B * Q + M * T places have a token of their own: the tokens in their order
    distinct: Tensor  # (N,), which of the distinct responses each one is

    @classmethod
    def of(cls, sequences: Sequences, *, last: bool) -> Self:
        """Pack sequences; without `last` the last token of every response is not read."""
        read = sequences.completion_mask.bool() if last else sequences.completion_mask.bool()[:, 1:]
        prompt_ids = torch.where(sequences.prompt_mask.bool(), sequences.prompt_ids, -1)
        prompts, owner = prompt_ids.unique(dim=0, return_inverse=True)
        there = prompts >= 0
        width, length = prompts.shape[1], read.shape[1]
        ids = torch.where(read, sequences.completion_ids[:, :length], -1)
        # In order, so that a response has tokens of its own from where it differs from the one before.
        rows, distinct = torch.cat([owner[:, None], ids], 1).unique(dim=0, return_inverse=True)
        owner, ids = rows[:, 0], rows[:, 1:]
        differs = torch.ones_like(rows, dtype=torch.bool)
        differs[1:] = (rows[1:] != rows[:-1]).cumsum(1) > 0
        moved = differs[:, 1:] & (ids >= 0)
        written = torch.cat([there.flatten(), moved.flatten()])
        slots = written.cumsum(0) - 1
        prompt_slots = slots[: prompts.numel()].view_as(prompts).clamp(min=0)
        response_slots = torch.where(moved, slots[prompts.numel() :].view_as(moved), 0).cummax(0).values
        lengths = there.sum(1)
        after = lengths[owner, None] + torch.arange(length)
        causal = torch.ones(width, width, dtype=torch.bool).tril()
        itself = torch.eye(width, dtype=torch.bool)  # so that padding attends to something
        before = there[owner][:, None].expand(-1, length, -1)
        so_far = torch.ones(length, length, dtype=torch.bool).tril().expand(len(rows), -1, -1)
        return cls(
            ids=torch.cat([prompts[there], ids[moved]]),
            positions=torch.cat([(there.cumsum(1) - 1)[there], after[moved]]),
            prompts=prompt_slots,
            asking=prompt_slots,
            responses=response_slots,
            keys=torch.cat([prompt_slots[owner], response_slots], 1),
            prompt_mask=(causal & there[:, None] | itself)[:, None],
            response_mask=torch.cat([before, so_far], 2)[:, None],
            written=written.nonzero()[:, 0],
            distinct=distinct,
        )

    def at_prompt_ends(self) -> tuple[Self, Tensor]:
        """Return the packing in which only the last tokens of prompts attend to others, and the slots of what does."""
        asking, count = self.prompts[:, -1:], len(self.prompts)
        responses = self.written[self.written >= self.prompts.numel()] - self.prompts.numel()
        slots = torch.cat([asking[:, 0], torch.arange(len(self.ids) - len(responses), len(self.ids))])
        written = torch.cat([torch.arange(count), count + responses])
        return replace(self, asking=asking, prompt_mask=self.prompt_mask[:, :, -1:], written=written), slots


def packs(model: Any) -> bool:
    """Tell whether `states` computes what a model's body does; `model` is the body, or a causal model with it."""
    if not is_plain(model) or model.device.type != "cpu":
        return False
    body = getattr(model, "model", model)
    return not (body.training and (body.gradient_checkpointing or body.config.attention_dropout > 0))


def states(body: Any, sequences: Sequences, *, last: bool) -> Tensor:
    """Return the last hidden states (tokens, H) at the tokens of all N responses, row by row.

    body: a Qwen2Model or LlamaModel for which `packs` is true. last: the state of a token is that after it (a
    critic's), else that before it, from which it is predicted.
    """
    packing = Packing.of(sequences, last=last)
    hidden = body.embed_tokens(packing.ids)
    cos, sin = (each[:, None] for each in rotations(body, hidden, packing.positions))
    place = torch.zeros_like(packing.ids)  # by slot: which of the rows of the last block it is
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
    """Return the attention's output of the tokens that attend to others, of tokens (R, H)."""
    query, key, value = layer.attended(hidden, rotation)
    keys = torch.cat([key, value], 1)

    def attend(asking: Tensor, asked: Tensor, mask: Tensor) -> Tensor:
        """Return the output (tokens, H) of queries in `asking` (rows, Q) on keys in `asked` (rows, K)."""
        key_rows, value_rows = _rows(keys, asked).split(value.shape[1], 1)
        output = functional.scaled_dot_product_attention(
            _rows(query, asking),
            key_rows,
            value_rows,
            attn_mask=mask,
            scale=layer.scaling,
            enable_gqa=query.shape[1] != value.shape[1],
        )
        return output.transpose(1, 2).reshape(-1, query.shape[1] * layer.head_dim)

    outputs = [attend(packing.asking, packing.prompts, packing.prompt_mask)]
    if packing.responses.shape[1] > 0:
        outputs.append(attend(packing.responses, packing.keys, packing.response_mask))
    return functional.linear(torch.cat(outputs).index_select(0, packing.written), *layer.output)


def _rows(tokens: Tensor, slots: Tensor) -> Tensor:
    """Return tokens (R, heads, D) by slots (rows, K): (rows, heads, K, D)."""
    chosen = tokens.flatten(1).index_select(0, slots.flatten())
    return chosen.view(*slots.shape, *tokens.shape[1:]).transpose(1, 2)
