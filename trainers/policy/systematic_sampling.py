"""Samples of a prompt that are spread evenly over its responses; those with a common beginning share its cost.

Systematic sampling, token by token: of m samples with the same beginning, a next token of probability p gets m p, up
or down to a whole number, by one random offset. On average each response gets what independent samples would give
it, so means are unbiased; but they vary less, as in arithmetic sampling (Vilnis et al., 2023, arXiv 2210.15458), which
has one offset for the whole response. Here each place in the tree of responses has its own, so that a small change of
the model, or of rounding, does not change everything that follows, and two models that are nearly the same get nearly
the same responses.

Samples are one row of the batch until their tokens differ: many samples of a model that is sure cost little more
than one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainers.policy.batch import Sequences, concatenate
from trainers.policy.decode import cumulative, read_prompts


@dataclass(frozen=True)
class Distinct:
    """M different responses: the number of the prompt (M,) of each, and its share (M,) of that prompt's samples.

    Those of a prompt stand side by side, prompts in order. Their `sequences` have no log-probabilities.
    """

    sequences: Sequences
    prompts: Tensor
    shares: Tensor

    @classmethod
    def single(cls, sequences: Sequences) -> "Distinct":
        """Return one response per prompt."""
        prompts = torch.arange(len(sequences))
        return cls(sequences, prompts, torch.ones(len(prompts), dtype=torch.float64))

    @classmethod
    def join(cls, parts: Iterable[tuple[int, "Distinct"]], pad: int) -> "Distinct":
        """Return the responses to all prompts, of parts that each begin at the prompt of a number."""
        starts, pieces = zip(*parts, strict=True)
        return cls(
            concatenate([part.sequences for part in pieces], pad),
            torch.cat([part.prompts + start for start, part in zip(starts, pieces, strict=True)]),
            torch.cat([part.shares for part in pieces]),
        )

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean of values (M,) of responses over the samples of each prompt, float64, on the CPU."""
        prompts, shares = self.prompts.cpu(), self.shares.cpu()
        means = torch.zeros(int(prompts.max()) + 1, dtype=torch.float64)
        return means.index_add_(0, prompts, shares * values.detach().cpu().double())


@dataclass(frozen=True)
class _Rows:
    """Beginnings of responses: prompt (R,), number of the first of its samples (R,), how many (R,), tokens (R, T)."""

    prompt: Tensor
    first: Tensor
    many: Tensor
    tokens: Tensor

    def select(self, rows: Tensor) -> "_Rows":
        return _Rows(*(value[rows] for value in vars(self).values()))


@torch.no_grad()
def sample_evenly(
    model: nn.Module,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    *,
    uniforms: Tensor,
    eos: int,
    pad: int,
    temperature: float = 1.0,
    batch_size: int | None = None,
) -> Distinct:
    """Return the different ones among S responses per prompt.

    The arguments are those of `rollout.sample`, but for these. uniforms: (B, S, longest response) in [0, 1), float64.
    At each token the first of the samples with the same beginning gives the offset. batch_size: responses at once, even
    if all differ; None: all. What is sampled does not depend on it, unless it is below S: then the samples of a prompt
    are spread in batches of this many.
    """
    samples = uniforms.shape[1]
    rows = len(prompt_ids) * samples if batch_size is None else batch_size
    step, together = max(1, rows // samples), min(rows, samples)
    batches = []
    for start in range(0, len(prompt_ids), step):
        chosen = slice(start, start + step)
        ids, mask = prompt_ids[chosen], prompt_mask[chosen]
        for number in range(0, samples, together):
            numbers = uniforms[chosen, number : number + together].to(ids.device)
            grown = _grow(model, (ids, mask), numbers, eos=eos, pad=pad, temperature=temperature)
            batches.append((grown.prompt + start, grown.many, grown.tokens, grown.first))
    prompt, many, tokens, length = (torch.cat(column) for column in zip(*batches, strict=True))
    order = prompt.argsort(stable=True)
    prompt, many, tokens, length = prompt[order], many[order], tokens[order], length[order]
    width = int(length.max())
    mask = (torch.arange(width, device=length.device) < length[:, None]).long()
    sequences = Sequences(prompt_ids[prompt], prompt_mask[prompt], tokens[:, :width], mask)
    return Distinct(sequences, prompt, many.double() / samples)


def _grow(
    model: nn.Module, prompts: tuple[Tensor, Tensor], uniforms: Tensor, *, eos: int, pad: int, temperature: float
) -> _Rows:
    """Return the different responses; `first` holds their lengths."""
    device, (count, samples, limit) = uniforms.device, uniforms.shape
    logits, decoder = read_prompts(model, *prompts, room=limit)
    numbers = torch.arange(count, device=device)
    rows = _Rows(
        numbers,
        torch.zeros_like(numbers),
        torch.full_like(numbers, samples),
        torch.full((count, limit), pad, device=device),
    )
    done = []
    for t in range(limit):
        parent, token, before, many = _divide(logits / temperature, uniforms[rows.prompt, rows.first, t], rows.many)
        rows = rows.select(parent)
        rows.tokens[:, t] = token
        rows = _Rows(rows.prompt, rows.first + before, many, rows.tokens)
        ended = token == eos if t + 1 < limit else torch.ones_like(token, dtype=torch.bool)
        over = rows.select(ended)
        done.append(_Rows(over.prompt, torch.full_like(over.many, t + 1), over.many, over.tokens))
        rows, parent, token = rows.select(~ended), parent[~ended], token[~ended]
        if len(token) == 0:
            break
        decoder.keep(parent)
        logits = decoder.next_logits(token)
    return _Rows(*(torch.cat(column) for column in zip(*(vars(rows).values() for rows in done), strict=True)))


def _divide(logits: Tensor, offsets: Tensor, many: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Divide the samples (R,) of rows of logits (R, V) among next tokens, each row by its offset (R,).

    Return of each pair of row and token that gets some: row, token, how many samples of the row come before, and its
    number of samples. In double precision: the rounding of a sum over a large vocabulary must not move probability to
    its end.
    """
    sums = cumulative(logits.double().softmax(-1))
    place = torch.arange(int(many.max()), device=many.device).expand(len(many), -1)
    points = (place + offsets[:, None]) / many[:, None] * sums[:, -1:]
    tokens = torch.searchsorted(sums, points, right=True).clamp(max=logits.shape[-1] - 1)
    there = place < many[:, None]
    keys = torch.arange(len(many), device=many.device)[:, None] * logits.shape[-1] + tokens  # in order, as points are
    pairs, counts = keys[there].unique_consecutive(return_counts=True)
    before = place[there][counts.cumsum(0) - counts]
    return pairs // logits.shape[-1], pairs % logits.shape[-1], before, counts


Keep = Callable[[str, Distinct, Sequence[str], Mapping[str, Sequence[float]]], None]
"""Takes a protocol, its M different responses, their texts, and their values by name, M each."""
