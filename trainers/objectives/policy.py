"""Terms shared by the losses of all policies: means over tokens, the KL, and what is measured of batches.

Shapes in the objectives, unless a docstring says otherwise, are those of `trainers/policy/grpo.py`: N responses, G to
each prompt, side by side; T tokens of the longest. `mask` (N, T) is 1 (or True) at a response's tokens, its
end-of-sequence token included.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, Self

import torch
from torch import Tensor

Aggregation = Literal["token_mean", "sequence_mean"]  # how per-token losses become one number


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of `values` (N, T) over the tokens of `mask` (N, T); 0 if there is no token."""
    mask = mask.to(values.dtype)
    return torch.where(mask > 0, values, 0.0).sum() / mask.sum().clamp(min=1.0)


def sequence_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over each response's tokens: (N, T), (N, T) -> (N,); 0 for an empty response."""
    mask = mask.to(values.dtype)
    return torch.where(mask > 0, values, 0.0).sum(-1) / mask.sum(-1).clamp(min=1.0)


def decayed_sum(values: Tensor, decay: float) -> Tensor:
    """Return y_t = x_t + decay y_{t-1} of `values` x (N, T), 0 <= decay <= 1: (N, T).

    A parallel prefix sum (Hillis and Steele 1986) takes log2 T steps; a loop over tokens waits for a device T times.
    """
    total, reach = values, 1
    while reach < values.shape[1]:
        total = torch.cat([total[:, :reach], total[:, reach:] + decay**reach * total[:, :-reach]], 1)
        reach *= 2
    return total


def loss_denominator(mask: Tensor, aggregation: Aggregation) -> int:
    """Return what `aggregate` divides by: the number of tokens of `mask`, or of its responses that have any."""
    return int(mask.sum() if aggregation == "token_mean" else (mask.sum(-1) > 0).sum())


def aggregate(values: Tensor, mask: Tensor, aggregation: Aggregation, *, denominator: float | None = None) -> Tensor:
    """Return one number from per-token `values` (N, T).

    token_mean: every token counts the same (DAPO, arXiv 2503.14476, equation 8; verl `token-mean`; TRL `dapo`, `bnpo`).
    sequence_mean: every response counts the same (GRPO, arXiv 2402.03300, equation 3; verl `seq-mean-token-mean`;
    TRL `grpo`). `denominator` replaces the number to divide by: with that of a whole minibatch, the losses of its
    micro-batches add up to the loss of the minibatch (transformers' `num_items_in_batch`).
    """
    denominator = max(loss_denominator(mask, aggregation), 1) if denominator is None else denominator
    if aggregation == "token_mean":
        return torch.where(mask > 0, values, 0.0).sum() / denominator
    if aggregation == "sequence_mean":
        return sequence_mean(values, mask).sum() / denominator
    raise ValueError(f"aggregation = {aggregation!r}: expected token_mean or sequence_mean")


# Kullback-Leibler divergence to the reference policy.
def k3(logps: Tensor, reference_logps: Tensor) -> Tensor:
    """Return the k3 estimate of KL(policy || reference) per token: r - log r - 1, r = reference / policy; (N, T), nats.

    Never negative, unbiased under the policy's own samples (Schulman 2020, "Approximating KL divergence"; GRPO, arXiv
    2402.03300, equation 4). verl's `low_var_kl` is this, bounded at 10. TRL multiplies it by the importance ratio, with
    gradient (`use_bias_correction_kl`, true by default since 1.16; DeepSeek-V3.2, arXiv 2512.02556); false gives this.
    """
    difference = (reference_logps - logps).clamp(-20.0, 20.0)
    return difference.exp() - difference - 1


def k1(logps: Tensor, reference_logps: Tensor) -> Tensor:
    """Return the estimate log(policy / reference), (N, T): unbiased, of either sign.

    Its gradient under the policy's own samples is 0 in the mean: in a loss it does not hold the policy.
    """
    return logps - reference_logps


ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k3": k3}


def adapt_coefficient(coefficient: float, mean_kl: float, *, target: float) -> float:
    """Return the next coefficient: times 1.5 above 2 target, times 0.5 below target / 2, kept within [0.01, 1].

    The three-band rule of PPO's adaptive penalty (arXiv 1707.06347, section 4) with GSPO's factors and bounds (the GSPO
    notes).
    """
    if mean_kl > 2 * target:
        coefficient *= 1.5
    elif mean_kl < 0.5 * target:
        coefficient *= 0.5
    return min(max(coefficient, 0.01), 1.0)


# What is measured of a batch, in a form in which parts join: micro-batches give the figures of their minibatch.
#
# The mean of the variances of parts is not the variance of the whole, nor is the mean of their maxima its maximum. So
# objectives return these, `join` puts the parts together, and `value` is read once, at the end. Figures of tokens are
# in float64 and without gradient; a variance keeps the squared distances from its own mean (Chan, Golub and LeVeque
# 1983), since sums of squares would lose the variance of ratios that are nearly 1.
class Statistic(Protocol):
    """A figure of some values, which joins with that of others."""

    def join(self, other: Self) -> Self:
        """Return the statistic of both."""

    def value(self) -> Tensor | None:
        """Return the figure, a scalar; None if it is not defined."""


Diagnostics = dict[str, Statistic]


def _chosen(values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return values in float64, 0 outside the mask, and the mask as numbers."""
    values = values.detach().double()
    if mask is None:
        return values, torch.ones_like(values)
    keep = mask > 0
    return torch.where(keep, values, 0.0), keep.double()


@dataclass(frozen=True)
class Sum:
    """The sum of its parts, such as the parts of a minibatch's loss."""

    total: Tensor

    def join(self, other: Self) -> Self:  # noqa: D102
        return type(self)(self.total + other.total)

    def value(self) -> Tensor:  # noqa: D102
        return self.total.detach()


@dataclass(frozen=True)
class Mean:
    """The mean of values: over tokens (values and mask (N, T)) or over responses (values (N,))."""

    total: Tensor
    count: Tensor

    @classmethod
    def of(cls, values: Tensor, mask: Tensor | None = None) -> Self:
        """Return the mean of `values`, of any shape, where `mask` of the same shape is not 0; 0 if there is none."""
        values, mask = _chosen(values, mask)
        return cls(values.sum(), mask.sum())

    def join(self, other: Self) -> Self:  # noqa: D102
        return type(self)(self.total + other.total, self.count + other.count)

    def value(self) -> Tensor:  # noqa: D102
        return self.total / self.count.clamp(min=1.0)


@dataclass(frozen=True)
class Maximum:
    """The largest of values; also over the minibatches of a step, where other figures are averaged."""

    largest: Tensor

    @classmethod
    def of(cls, values: Tensor, mask: Tensor | None = None) -> Self:
        """Return the maximum of `values` where `mask` is not 0."""
        chosen, keep = _chosen(values, mask)
        return cls(torch.where(keep > 0, chosen, -torch.inf).max())

    def join(self, other: Self) -> Self:  # noqa: D102
        return type(self)(torch.maximum(self.largest, other.largest))

    def value(self) -> Tensor:  # noqa: D102
        return self.largest


@dataclass(frozen=True)
class Variance:
    """The population variance of values."""

    count: Tensor
    mean: Tensor
    squares: Tensor  # sum of squared distances from the mean

    @classmethod
    def of(cls, values: Tensor, mask: Tensor | None = None) -> Self:
        """Return the variance of `values` where `mask` is not 0; 0 if there is none."""
        values, mask = _chosen(values, mask)
        count = mask.sum()
        mean = values.sum() / count.clamp(min=1.0)
        return cls(count, mean, ((values - mean) ** 2 * mask).sum())

    def join(self, other: Self) -> Self:  # noqa: D102
        count = self.count + other.count
        share = other.count / count.clamp(min=1.0)
        apart = other.mean - self.mean
        squares = self.squares + other.squares + apart**2 * self.count * share
        return type(self)(count, self.mean + apart * share, squares)

    def value(self) -> Tensor:  # noqa: D102
        return self.squares / self.count.clamp(min=1.0)


@dataclass(frozen=True)
class VarianceReduction:
    """1 - Var(after) / Var(raw); undefined where raw is rounding noise (ratios that are all 1 up to about 1e-5)."""

    raw: Variance
    after: Variance

    def join(self, other: Self) -> Self:  # noqa: D102
        return type(self)(self.raw.join(other.raw), self.after.join(other.after))

    def value(self) -> Tensor | None:  # noqa: D102
        raw = self.raw.value()
        return None if raw <= 1e-10 else 1 - self.after.value() / raw


def group_metrics(rewards: Tensor, group_size: int) -> dict[str, Tensor]:
    """Return what is logged of the rewards (N,) of a step's groups; spreads within groups where G is above 1."""
    metrics = {"reward/mean": rewards.mean(), "reward/std": rewards.std(correction=0)}
    if group_size > 1:
        groups = rewards.view(-1, group_size)
        metrics["reward/zero_std_groups"] = (groups == groups[:, :1]).all(1).float().mean()
        metrics["reward/group_std"] = groups.std(1).mean()
    return metrics


class StepMetrics:
    """Figures of a step: the mean of those of its minibatches, and the largest of maxima.

    Within a minibatch the statistics of micro-batches join, so that no figure depends on their size. What is not
    defined on a minibatch (a reduction of variance while all ratios are 1) is left out of the mean.
    """

    def __init__(self) -> None:
        self._open: dict[str, Statistic] = {}
        self._figures: dict[str, list[float]] = defaultdict(list)
        self._largest: set[str] = set()

    def add(self, statistics: Mapping[str, Statistic]) -> None:
        """Add the statistics of a micro-batch, or of the minibatch as a whole."""
        for name, statistic in statistics.items():
            if not hasattr(statistic, "join"):
                kind = type(statistic).__name__
                raise TypeError(f"the diagnostic {name} is a {kind}; return Mean.of(values, mask), for example")
            earlier = self._open.get(name)
            self._open[name] = statistic if earlier is None else earlier.join(statistic)

    def close_minibatch(self, *statistics: Mapping[str, Statistic]) -> None:
        """Note that a minibatch is complete, after adding `statistics`."""
        for each in statistics:
            self.add(each)
        self._largest |= {name for name, statistic in self._open.items() if isinstance(statistic, Maximum)}
        values = {name: statistic.value() for name, statistic in self._open.items()}
        defined = {name: value.double() for name, value in values.items() if value is not None}
        # Together: the host waits for the device once.
        for name, value in zip(defined, torch.stack(list(defined.values())).tolist() if defined else [], strict=True):
            self._figures[name].append(value)
        self._open.clear()

    def compute(self) -> dict[str, float]:
        """Return the figures of the step."""
        return {
            name: max(values) if name in self._largest else sum(values) / len(values)
            for name, values in self._figures.items()
        }
