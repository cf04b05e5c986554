"""Sampling on an accelerator: continuous batching (Yu et al. 2022, "Orca") with tensors that never change their shapes.

A token of a small model is a thousand small kernels, and a host takes longer to launch them than a device to run them.
So on CUDA the step that writes a token in every row is captured as a graph, once a call, and replayed: its tensors are
allocated once and changed in place, and it asks the device nothing. Once per `BLOCK` tokens the host looks which groups
of rows have ended and gives their places to prompts that wait. The graph holds the kernels of the step itself, so where
it cannot be captured the step gives the same tokens, more slowly.

Keys and values are in a ring of columns, as many as the longest prompt and response need. All rows write to the same
column, and a mask says which columns belong to a row; a new prompt goes into the columns before that one.
"""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad as padded
from transformers.cache_utils import Cache, StaticLayer

from ablation.runner.stage import RUNTIME_FACTS
from trainers.policy.decode import Read, read
from trainers.policy.plain import sees_everything

BLOCK = 16  # tokens
_NO_GRAPH = "without a CUDA graph"
_log = logging.getLogger(__name__)


class Written(NamedTuple):
    """S responses to each of B prompts: tokens and log-probabilities (B, S, T), padded on the right, lengths (B, S).

    many: (B, S); of even samples that are the same response, at the first how many they are, and 0 at the others.
    """

    tokens: Tensor
    logps: Tensor
    lengths: Tensor
    many: Tensor


def applies(model: Any, device: torch.device) -> bool:
    """Tell whether `write` samples from a model: on an accelerator, where its layers take one mask as it is."""
    config = model.config
    return device.type != "cpu" and config._attn_implementation == "sdpa" and sees_everything(config)


@torch.no_grad()
def write(
    model: Any,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    *,
    samples: int,
    max_new_tokens: int,
    uniforms: Tensor | None,
    eos: int,
    pad: int,
    temperature: float = 1.0,
    batch_size: int | None = None,
    even: bool = False,
) -> Written:
    """Return `samples` responses of at most `max_new_tokens` to each prompt (B, P), padded on the left.

    uniforms: (B * samples, max_new_tokens) in [0, 1), float64; None: the most likely tokens. batch_size: rows at once;
    None: all. even: systematic samples (`trainers.policy.systematic_sampling`), those of a prompt together, or
    `batch_size` of them.
    """
    device, prompts, limit = prompt_ids.device, len(prompt_ids), max_new_tokens
    size = min(samples, batch_size or samples)
    per_prompt = -(-samples // size)  # groups of a prompt
    count, surplus = prompts * per_prompt, per_prompt * size - samples
    at_once = count if batch_size is None else min(count, batch_size // size)
    if uniforms is not None:
        uniforms = padded(uniforms.to(device).view(prompts, samples, limit), (0, 1, 0, surplus))
        uniforms = uniforms.view(count, size, limit + 1)
    exists = padded(torch.ones(prompts, samples, dtype=torch.bool, device=device), (0, surplus)).view(count, size)
    ids, mask = (each.repeat_interleave(per_prompt, 0) for each in (prompt_ids, prompt_mask))
    lengths = prompt_mask.sum(1).tolist()

    rows: _Rows | None = None
    done: list[Tensor] = []
    waiting, places = list(range(count)), [-1] * at_once  # groups by number; -1: nobody
    while waiting or max(places) >= 0:
        free = [place for place, group in enumerate(places) if group < 0][: len(waiting)]
        if free:
            fresh, waiting = waiting[: len(free)], waiting[len(free) :]
            width = max(lengths[group // per_prompt] for group in fresh)
            at, groups = torch.tensor([free, fresh], device=device)
            prefilled = read(model, ids[groups, -width:], mask[groups, -width:])
            if rows is None:
                rows = _Rows(model, prefilled, (at_once, size), max(lengths) + limit, limit)
                rows.eos, rows.pad, rows.temperature = eos, pad, temperature
                rows.uniforms = None if uniforms is None else uniforms.new_zeros(at_once * size, limit + 1)
                done = [value.new_zeros(count, *value.shape[1:]) for value in rows.results()]
            rows.begin(at, prefilled, exists[groups], None if uniforms is None else uniforms[groups], even=even)
            del prefilled  # its cache
            for place, group in zip(free, fresh, strict=True):
                places[place] = group
        assert rows is not None
        for _ in range(min(BLOCK, limit)):
            rows.advance()
        ended = rows.grouped(rows.length).all(1).tolist()  # the host waits for the device
        if over := [place for place, group in enumerate(places) if group >= 0 and ended[place]]:
            at, groups = torch.tensor([over, [places[place] for place in over]], device=device)
            for kept, value in zip(done, rows.results(), strict=True):
                kept[groups] = value[at]
            for place in over:
                places[place] = -1
    return Written(*(value.view(prompts, per_prompt * size, *value.shape[2:])[:, :samples] for value in done))


class _Rows:
    """Groups of rows that are written at the same time, R rows in all. A group follows one prompt.

    `step` changes its tensors in place, and `begin` those of some groups. length: (R,), 0 while a row is written.
    first, many: (R,), the first of the rows with the same beginning and their number, if samples are even.
    """

    eos: int
    pad: int
    temperature: float
    uniforms: Tensor | None

    def __init__(self, model: Any, prefilled: Read, shape: tuple[int, int], columns: int, limit: int) -> None:
        rows, device = shape[0] * shape[1], prefilled.logits.device
        self.model, self.shape, self.limit = model, shape, limit
        self.number = torch.arange(rows, device=device)
        self.first, self.many = self.number.clone(), torch.ones_like(self.number)
        self.length, self.written = torch.ones_like(self.number), torch.zeros_like(self.number)
        self.tokens = self.number.new_zeros(rows, limit + 1)  # the last column takes what follows an end
        self.logps = torch.zeros(rows, limit + 1, device=device)
        self.logits = torch.zeros(rows, prefilled.logits.shape[1], device=device)
        self.position = torch.zeros_like(self.number)
        self.mask = torch.zeros(rows, columns, dtype=torch.bool, device=device)
        self.column = torch.zeros(1, dtype=torch.long, device=device)  # the next one to be written
        self.steps, self.run = 0, self.step
        self.cache = Cache(layers=[_Ring(layer, rows, columns, self.column) for layer in prefilled.cache.layers])

    def grouped(self, tensor: Tensor) -> Tensor:
        """Return rows (R, ...) as (groups, size, ...)."""
        return tensor.unflatten(0, self.shape)

    def results(self) -> list[Tensor]:
        """Return the fields of `Written`, by group."""
        many = torch.where(self.first == self.number, self.many, 0)
        return [self.grouped(each) for each in (self.tokens[:, :-1], self.logps[:, :-1], self.length, many)]

    def begin(self, at: Tensor, prefilled: Read, exists: Tensor, uniforms: Tensor | None, *, even: bool) -> None:
        """Begin groups at the places (G,) after prompts that were read; exists: (G, size), which rows there are."""
        columns = self.mask.shape[1]
        written = torch.arange(self.steps - prefilled.mask.shape[1], self.steps, device=at.device) % columns
        for ring, layer in zip(self.cache.layers, prefilled.cache.layers, strict=True):
            ring.put(self.grouped, at, written, layer)
        mask = self.mask.new_zeros(len(at), columns)
        mask[:, written] = prefilled.mask.bool()
        number, together = self.grouped(self.number)[at], exists if even else torch.zeros_like(exists)
        new = {
            "first": torch.where(together, number[:, :1], number),
            "many": torch.where(together, exists.sum(1, keepdim=True), 1),
            "length": (~exists).long(),
            "written": torch.zeros_like(number),
            "tokens": torch.full_like(self.grouped(self.tokens)[at], self.pad),
            "logps": torch.zeros_like(self.grouped(self.logps)[at]),
            "mask": mask[:, None],
            "position": prefilled.last[:, None],
            "logits": prefilled.logits.float()[:, None],
        }
        for name, value in (new if uniforms is None else new | {"uniforms": uniforms}).items():
            self.grouped(getattr(self, name))[at] = value

    def advance(self) -> None:
        """Write a token in every row. The first time kernels are loaded, which a capture forbids.

        torch's deterministic mode would have each write sort its places; here no two are the same, and no sum depends
        on an order.
        """
        mode = torch.get_deterministic_debug_mode()
        torch.set_deterministic_debug_mode("default")
        try:
            if self.steps == 1:
                self.run = _captured(self.step, self.number.device)
            self.run()
        finally:
            torch.set_deterministic_debug_mode(mode)
        self.steps += 1

    def step(self) -> None:
        """Choose a token in every row, from the logits before it, and compute those after it."""
        live = self.length == 0
        token, logp = self._choose()
        token = torch.where(live, token, self.pad)
        self.tokens.scatter_(1, self.written[:, None], token[:, None])
        self.logps.scatter_(1, self.written[:, None], torch.where(live, logp, 0.0)[:, None])
        self.written.add_(live)
        ended = live & ((token == self.eos) | (self.written == self.limit))
        self.length.add_(torch.where(ended, self.written, 0))
        apart = (token != token.roll(1)) | (self.number == self.first)
        self.first.copy_(torch.where(apart, self.number, 0).cummax(0).values)
        first = self.grouped(self.first)
        self.many.copy_((first[:, :, None] == first[:, None]).sum(2).flatten())
        self.position.add_(live)
        self.mask.index_fill_(1, self.column, True)
        logits = self.model(
            input_ids=token[:, None],
            attention_mask=self.mask[:, None, None],
            position_ids=self.position[:, None],
            past_key_values=self.cache,
            use_cache=True,
        ).logits
        self.logits.copy_(logits[:, -1])
        self.column.add_(1).remainder_(self.mask.shape[1])

    def _choose(self) -> tuple[Tensor, Tensor]:
        """Return a token and its log-probability for each row; a row alone is one of many = 1."""
        logits = self.logits / self.temperature
        if self.uniforms is None:
            token = logits.argmax(-1)
        else:
            shares = logits.softmax(-1)
            # CUDA adds up one long row by itself in an order that changes, several rows in one that does not.
            cumulative = shares.expand(max(2, len(shares)), -1).cumsum(-1)[: len(shares)]
            total, offset = cumulative[:, -1], self.uniforms[self.first, self.written]
            points = ((self.number - self.first + offset) / self.many * total).float()
            points = torch.minimum(points, total.nextafter(torch.zeros_like(total)))  # rounding: below the sum of all
            token = torch.searchsorted(cumulative, points[:, None], right=True)[:, 0].clamp(max=logits.shape[1] - 1)
        return token, logits.gather(1, token[:, None])[:, 0] - logits.logsumexp(-1)


class _Ring(StaticLayer):
    """Keys and values (R, heads, columns, D) of one layer, in the precision of attention."""

    def __init__(self, like: Any, rows: int, columns: int, column: Tensor) -> None:
        super().__init__(columns)
        device, dtype = like.keys.device, like.keys.dtype
        if torch.is_autocast_enabled(device.type):
            dtype = torch.get_autocast_dtype(device.type)
        self.keys, self.values = (
            torch.zeros(rows, each.shape[1], columns, each.shape[3], device=device, dtype=dtype)
            for each in (like.keys, like.values)
        )
        self.column, self.is_initialized = column, True

    def put(self, grouped: Callable[[Tensor], Tensor], at: Tensor, written: Tensor, prefilled: Any) -> None:
        """Write the keys and values of prompts (G, heads, W, D) into W columns of all rows of groups."""
        for own, new in ((self.keys, prefilled.keys), (self.values, prefilled.values)):
            grouped(own)[at[:, None], :, :, written] = new.transpose(1, 2)[:, :, None].to(own.dtype)

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write the keys and values (R, heads, 1, D) of a token; return those of all columns."""
        for own, new in ((self.keys, keys), (self.values, values)):
            own.index_copy_(2, self.column, new.to(own.dtype))
        return self.keys, self.values


def _captured(step: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Return what repeats a step that has run before: a CUDA graph, or the step itself where there can be none."""
    if device.type != "cuda" or RUNTIME_FACTS.get("sampling", "").startswith(_NO_GRAPH):
        return step
    stream, graph = torch.cuda.current_stream(), torch.cuda.CUDAGraph()
    try:
        # Only what this thread does counts: NCCL's watchdog may ask after its events meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        reason = f"{_NO_GRAPH} ({str(error).strip().splitlines()[0]})"
        _log.warning("sampling %s: the same tokens, more slowly", reason)
        RUNTIME_FACTS["sampling"] = reason
        return step
    finally:
        torch.cuda.set_stream(stream)  # that of a capture which fails stays the current one
    RUNTIME_FACTS["sampling"] = "CUDA graph"
    return graph.replay
