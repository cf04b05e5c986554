"""Systematic sampling: samples that are spread evenly over the responses to a prompt.

Among m samples with the same beginning, a next token of probability p gets m p samples, rounded up or down by one
random offset. Each response has the same expected number of samples as with independent sampling, so means are
unbiased, but they vary less, as in arithmetic sampling (Vilnis et al., 2023, arXiv 2210.15458). Arithmetic sampling has
one offset for the whole response; here each node in the tree of responses has its own, so that a small change of the
model changes only a few responses.

Samples share one row of the batch until their tokens differ, so many samples of a confident model cost little more than
one sample.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainers.policy.batch import Sequences, concatenate
from trainers.policy.decode import cumulative, read_prompts


@dataclass(frozen=True)
class Distinct:
    """M distinct responses, each with the number of its prompt (M,) and its share (M,) of that prompt's samples.

    Responses are stored prompt by prompt. Their `sequences` have no log-probabilities.
    """

    sequences: Sequences
    prompts: Tensor
    shares: Tensor

    @classmethod
    def single(cls, sequences: Sequences) -> "Distinct":
        """Return sequences with one response per prompt as distinct responses with a share of 1."""
        prompts = torch.arange(len(sequences))
        return cls(sequences, prompts, torch.ones(len(prompts), dtype=torch.float64))

    @classmethod
    def join(cls, parts: Iterable[tuple[int, "Distinct"]], pad: int) -> "Distinct":
        """Join parts, each given with the number of its first prompt, into the responses to all prompts."""
        starts, pieces = zip(*parts, strict=True)
        return cls(
            concatenate([part.sequences for part in pieces], pad),
            torch.cat([part.prompts + start for start, part in zip(starts, pieces, strict=True)]),
            torch.cat([part.shares for part in pieces]),
        )

    def mean(self, values: Tensor) -> Tensor:
        """Return the means (B,) of values (M,) over the samples of each prompt, in float64 on the CPU."""
        prompts, shares = self.prompts.cpu(), self.shares.cpu()
        means = torch.zeros(int(prompts.max()) + 1, dtype=torch.float64)
        return means.index_add_(0, prompts, shares * values.detach().cpu().double())


@dataclass(frozen=True)
class _Rows:
    """Beginnings of R responses: prompts, numbers of first samples, counts of samples, (R,) each; tokens (R, T)."""

    prompt: Tensor
    first: Tensor
    count: Tensor
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
    """Return the distinct responses among S systematic samples per prompt.

    uniforms: float64 numbers in [0, 1), (B, S, longest response); among samples with the same beginning, the first one
    provides the offset. batch_size: largest number of responses at once, even if all are distinct; None: all. It
    affects the samples only if it is below S; then each prompt's samples are spread in batches of this size. The other
    arguments are those of `rollout.sample`.
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
            batches.append((grown.prompt + start, grown.count, grown.tokens, grown.first))
    prompt, counts, tokens, length = (torch.cat(column) for column in zip(*batches, strict=True))
    order = prompt.argsort(stable=True)
    prompt, counts, tokens, length = prompt[order], counts[order], tokens[order], length[order]
    width = int(length.max())
    mask = (torch.arange(width, device=length.device) < length[:, None]).long()
    sequences = Sequences(prompt_ids[prompt], prompt_mask[prompt], tokens[:, :width], mask)
    return Distinct(sequences, prompt, counts.double() / samples)


def _grow(
    model: nn.Module, prompts: tuple[Tensor, Tensor], uniforms: Tensor, *, eos: int, pad: int, temperature: float
) -> _Rows:
    """Return the distinct responses of a batch, with their lengths in the field `first`."""
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
        parent, token, before, counts = _divide(logits / temperature, uniforms[rows.prompt, rows.first, t], rows.count)
        rows = rows.select(parent)
        rows.tokens[:, t] = token
        rows = _Rows(rows.prompt, rows.first + before, counts, rows.tokens)
        ended = token == eos if t + 1 < limit else torch.ones_like(token, dtype=torch.bool)
        over = rows.select(ended)
        done.append(_Rows(over.prompt, torch.full_like(over.count, t + 1), over.count, over.tokens))
        rows, parent, token = rows.select(~ended), parent[~ended], token[~ended]
        if len(token) == 0:
            break
        decoder.keep(parent)
        logits = decoder.next_logits(token)
    return _Rows(*(torch.cat(column) for column in zip(*(vars(rows).values() for rows in done), strict=True)))


def _divide(logits: Tensor, offsets: Tensor, samples: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Divide the samples (R,) of each row of logits (R, V) among next tokens, by the row's offset (R,).

    Return, for each pair of row and token with samples: the row, the token, the number of the row's samples before
    these, and the number of samples. Double precision, because rounding in a sum over a large vocabulary would move
    probability to its end.
    """
    sums = cumulative(logits.double().softmax(-1))
    place = torch.arange(int(samples.max()), device=samples.device).expand(len(samples), -1)
    points = (place + offsets[:, None]) / samples[:, None] * sums[:, -1:]
    tokens = torch.searchsorted(sums, points, right=True).clamp(max=logits.shape[-1] - 1)
    valid = place < samples[:, None]
    keys = torch.arange(len(samples), device=samples.device)[:, None] * logits.shape[-1] + tokens  # sorted, as points
    pairs, counts = keys[valid].unique_consecutive(return_counts=True)
    before = place[valid][counts.cumsum(0) - counts]
    return pairs // logits.shape[-1], pairs % logits.shape[-1], before, counts


Keep = Callable[[str, Distinct, Sequence[str], Mapping[str, Sequence[float]]], None]
"""Takes a protocol's name, its M distinct responses, their texts, and {name of a value: values (M,)}."""
