"""One token at a time: the forward passes of sampling, after the prompts were read. How a CPU does it.

Small models are bound by what surrounds their arithmetic: per token and layer transformers makes masks, grows the cache
by copying it and goes through a dozen Python layers. For the models that are trained from scratch here (Qwen2), and for
Llama, which is built the same way, a token is computed from the weights themselves, with a cache of its final size: the
same numbers in about half the time. All other models, and those with hooks, sliding windows or autocast, are called as
they are.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import DynamicCache

from trainers.policy.plain import Layer, is_plain, norm, rotations


@dataclass(frozen=True)
class Read:
    """Prompts (B, P) that were read: logits (B, V) of the token after each, keys and values, last position (B,)."""

    logits: Tensor
    cache: DynamicCache
    mask: Tensor
    last: Tensor


def read(model: Any, prompt_ids: Tensor, prompt_mask: Tensor) -> Read:
    """Read prompts (B, P), padded on the left."""
    cache = DynamicCache(config=model.config)
    positions = (prompt_mask.cumsum(1) - 1).clamp(min=0)
    logits = model(
        input_ids=prompt_ids,
        attention_mask=prompt_mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    ).logits[:, -1]
    return Read(logits, cache, prompt_mask, positions[:, -1])


def read_prompts(
    model: Any, prompt_ids: Tensor, prompt_mask: Tensor, *, room: int
) -> tuple[Tensor, "ModelDecoder | ModuleDecoder"]:
    """Return the logits (B, V) of the first tokens of the responses, and what computes the further ones.

    prompt_ids, prompt_mask: (B, P), padded on the left; each prompt is read once, without columns that are padding in
    all of them. room: tokens to come at most.
    """
    longest = int(prompt_mask.sum(1).max())
    prefilled = read(model, prompt_ids[:, -longest:], prompt_mask[:, -longest:])
    decoder = ModuleDecoder if is_plain(model) else ModelDecoder
    return prefilled.logits, decoder(model, prefilled.cache, prefilled.mask, prefilled.last, room=room)


def cumulative(shares: Tensor) -> Tensor:
    """Return the cumulative sums of rows (R, V), each added up in the same order every time.

    CUDA adds up a single long row in an order that changes from call to call, but several rows in one that does not.
    torch's deterministic mode warns of both.
    """
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("default")
    try:
        return shares.expand(max(2, len(shares)), -1).cumsum(-1)[: len(shares)]
    finally:
        torch.set_deterministic_debug_mode(mode)


class ModelDecoder:
    """The rows that are being written, by a model that is called as it is, with transformers' growing cache."""

    def __init__(self, model: Any, cache: DynamicCache, mask: Tensor, last: Tensor, *, room: int) -> None:
        self.model, self.cache = model, cache
        self.mask, self.position = mask, last[:, None]

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows, by number; one may go on several times."""
        if _is_each(rows, self.position):
            return
        self.mask, self.position = self.mask[rows], self.position[rows]
        self.cache.batch_select_indices(rows)

    def next_logits(self, tokens: Tensor) -> Tensor:
        """Append a token (R,) to each row; return the logits (R, V) of the one after it."""
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), 1)], 1)
        self.position = self.position + 1
        return self.model(
            input_ids=tokens[:, None],
            attention_mask=self.mask,
            position_ids=self.position,
            past_key_values=self.cache,
            use_cache=True,
        ).logits[:, -1]


class ModuleDecoder:
    """Computes the next token of a Qwen2 or Llama; each layer keeps keys and values (R, key heads, P + room, D)."""

    def __init__(self, model: Any, cache: DynamicCache, mask: Tensor, last: Tensor, *, room: int) -> None:
        body, self.head = model.model, model.lm_head
        self.embedding, self.last_norm = body.embed_tokens.weight, norm(body.norm)
        self.layers = [Layer(block) for block in body.layers]
        self.length = mask.shape[1]  # columns that are written
        self.position = last
        self.keys = [_with_room(layer.keys, room) for layer in cache.layers]
        self.values = [_with_room(layer.values, room) for layer in cache.layers]
        self.mask = None  # nothing to leave out
        if not mask.all():
            self.mask = _with_room(mask.bool()[:, None, :, None], room, fill=True)[..., 0][:, :, None]
        self.cos, self.sin = rotations(body, self.keys[0], torch.arange(self.length + room, device=mask.device))

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows, by number; one may go on several times."""
        if _is_each(rows, self.position):
            return
        self.position = self.position[rows]
        self.keys = [each.index_select(0, rows) for each in self.keys]
        self.values = [each.index_select(0, rows) for each in self.values]
        if self.mask is not None:
            self.mask = self.mask[rows]

    def next_logits(self, tokens: Tensor) -> Tensor:
        """Append a token (R,) to each row; return the logits (R, V) of the one after it."""
        self.position = self.position + 1
        rotation = self.cos[self.position][:, None], self.sin[self.position][:, None]
        hidden = functional.embedding(tokens, self.embedding)
        for number, layer in enumerate(self.layers):
            hidden = hidden + self._attention(number, layer.before_attention(hidden), rotation)
            hidden = hidden + layer.feed_forward(hidden)
        self.length += 1
        return self.head(self.last_norm(hidden))

    def _attention(self, number: int, hidden: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """Return the attention's output (R, H) for the last token; its key and value are kept."""
        layer, rows, end = self.layers[number], len(hidden), self.length + 1
        keys, values = self.keys[number], self.values[number]
        query, keys[:, :, self.length], values[:, :, self.length] = layer.attended(hidden, rotation)
        output = functional.scaled_dot_product_attention(
            query[:, :, None],
            keys[:, :, :end],
            values[:, :, :end],
            attn_mask=None if self.mask is None else self.mask[..., :end],
            scale=layer.scaling,
            enable_gqa=query.shape[1] != keys.shape[1],
        )
        return functional.linear(output.reshape(rows, -1), *layer.output)


def _is_each(rows: Tensor, token: Tensor) -> bool:
    """Tell whether `rows` are all the rows of a tensor in their order, so that nothing has to be copied."""
    return len(rows) == len(token) and torch.equal(rows, torch.arange(len(token), device=rows.device))


def _with_room(tensor: Tensor, room: int, fill: float = 0) -> Tensor:
    """Return a tensor (B, key heads, P, D) with `room` further columns of `fill`."""
    return functional.pad(tensor, (0, 0, 0, room), value=fill)
