"""Forward passes of sampling: the prompts first, then one token at a time.

For a small model on a CPU, transformers' overhead exceeds the arithmetic: per token and layer it makes masks, copies
the cache to extend it and calls a dozen Python functions. For Qwen2 and Llama, `ModuleDecoder` computes a token from
the weights, with a cache of the final size: the same numbers in about half the time. `ModelDecoder` calls all other
models, and those with hooks, sliding windows or autocast.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import DynamicCache

from trainers.policy.plain import Layer, is_plain, norm, rotations


def read_prompts(
    model: Any, prompt_ids: Tensor, prompt_mask: Tensor, *, room: int
) -> tuple[Tensor, "ModelDecoder | ModuleDecoder"]:
    """Return the logits (B, V) of the first response tokens, and a decoder for all later tokens.

    prompt_ids, prompt_mask: (B, P), padded on the left; columns that are padding in all prompts are left out. room:
    largest number of tokens that follow.
    """
    longest = int(prompt_mask.sum(1).max())
    ids, mask = prompt_ids[:, -longest:], prompt_mask[:, -longest:]
    cache = DynamicCache(config=model.config)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    logits = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    ).logits[:, -1]
    decoder = ModuleDecoder if is_plain(model) else ModelDecoder
    return logits, decoder(model, cache, mask, positions[:, -1], room=room)


def cumulative(shares: Tensor) -> Tensor:
    """Return the cumulative sums of rows (R, V), always added in the same order.

    For a single long row, CUDA's order of addition changes from call to call; for several rows it does not. torch's
    deterministic mode warns in both cases.
    """
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("default")
    try:
        return shares.expand(max(2, len(shares)), -1).cumsum(-1)[: len(shares)]
    finally:
        torch.set_deterministic_debug_mode(mode)


class ModelDecoder:
    """Computes the next token of each row by calling the model, with transformers' cache."""

    def __init__(self, model: Any, cache: DynamicCache, mask: Tensor, last: Tensor, *, room: int) -> None:
        self.model, self.cache = model, cache
        self.mask, self.position = mask, last[:, None]

    def keep(self, rows: Tensor) -> None:
        """Keep the rows with these numbers, in this order; a row may occur several times."""
        if _is_each(rows, self.position):
            return
        self.mask, self.position = self.mask[rows], self.position[rows]
        self.cache.batch_select_indices(rows)

    def next_logits(self, tokens: Tensor) -> Tensor:
        """Append a token (R,) to each row; return the logits (R, V) of the next token."""
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
    """Computes the next token of each row from a Qwen2's or Llama's weights.

    Each layer stores keys and values (R, key heads, P + room, D).
    """

    def __init__(self, model: Any, cache: DynamicCache, mask: Tensor, last: Tensor, *, room: int) -> None:
        body, self.head = model.model, model.lm_head
        self.embedding, self.last_norm = body.embed_tokens.weight, norm(body.norm)
        self.layers = [Layer(block) for block in body.layers]
        self.length = mask.shape[1]  # filled columns of the cache
        self.position = last
        self.keys = [functional.pad(layer.keys, (0, 0, 0, room)) for layer in cache.layers]
        self.values = [functional.pad(layer.values, (0, 0, 0, room)) for layer in cache.layers]
        self.mask = None  # no padding
        if not mask.all():
            self.mask = functional.pad(mask.bool(), (0, room), value=True)[:, None, None]
        self.cos, self.sin = rotations(body, self.keys[0], torch.arange(self.length + room, device=mask.device))

    def keep(self, rows: Tensor) -> None:
        """Keep the rows with these numbers, in this order; a row may occur several times."""
        if _is_each(rows, self.position):
            return
        self.position = self.position[rows]
        self.keys = [each.index_select(0, rows) for each in self.keys]
        self.values = [each.index_select(0, rows) for each in self.values]
        if self.mask is not None:
            self.mask = self.mask[rows]

    def next_logits(self, tokens: Tensor) -> Tensor:
        """Append a token (R,) to each row; return the logits (R, V) of the next token."""
        self.position = self.position + 1
        rotation = self.cos[self.position][:, None], self.sin[self.position][:, None]
        hidden = functional.embedding(tokens, self.embedding)
        for number, layer in enumerate(self.layers):
            hidden = hidden + self._attention(number, layer.before_attention(hidden), rotation)
            hidden = hidden + layer.feed_forward(hidden)
        self.length += 1
        return self.head(self.last_norm(hidden))

    def _attention(self, number: int, hidden: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """Return the attention output (R, H) of the last token, and store its key and value."""
        layer, rows, end = self.layers[number], len(hidden), self.length + 1
        keys, values = self.keys[number], self.values[number]
        query, keys[:, :, self.length], values[:, :, self.length] = layer.attended(hidden, rotation)
        mask = None if self.mask is None else self.mask[..., :end]
        output = layer.attention(query[:, :, None], keys[:, :, :end], values[:, :, :end], mask)
        return functional.linear(output.reshape(rows, -1), *layer.output)


def _is_each(rows: Tensor, token: Tensor) -> bool:
    """Return whether `rows` numbers all rows of `token` in order, so that nothing has to be copied."""
    return len(rows) == len(token) and torch.equal(rows, torch.arange(len(token), device=rows.device))
