"""Terms shared by the losses of all policies: means over tokens, the KL, and diagnostics of batches.

Unless a docstring says otherwise, shapes in the objectives are those of `trainers/policy/grpo.py`: N responses, G per
prompt, stored prompt by prompt; T tokens in the longest. `mask` (N, T) is 1 (or True) at a response's tokens, including
its end-of-sequence token.
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
    """Return the mean (N,) of (N, T) values over each response's tokens; it is 0 for an empty response."""
    mask = mask.to(values.dtype)
    return torch.where(mask > 0, values, 0.0).sum(-1) / mask.sum(-1).clamp(min=1.0)


def decayed_sum(values: Tensor, decay: float) -> Tensor:
    """Return y (N, T) with `y_t = x_t + decay * y_{t-1}`, for `values` x (N, T) and 0 <= decay <= 1.

    A parallel prefix sum (Hillis and Steele 1986) needs log2 T steps, while a loop over tokens would need T.
    """
    total, reach = values, 1
    while reach < values.shape[1]:
        total = torch.cat([total[:, :reach], total[:, reach:] + decay**reach * total[:, :-reach]], 1)
        reach *= 2
    return total


def loss_denominator(mask: Tensor, aggregation: Aggregation) -> int:
    """Return the denominator of `aggregate`: the number of tokens in `mask`, or the number of responses with tokens."""
    return int(mask.sum() if aggregation == "token_mean" else (mask.sum(-1) > 0).sum())


def aggregate(values: Tensor, mask: Tensor, aggregation: Aggregation, *, denominator: float | None = None) -> Tensor:
    """Return the mean of per-token `values` (N, T) over tokens or over responses.

    token_mean: every token has the same weight (DAPO, arXiv 2503.14476, equation 8; verl `token-mean`; TRL `dapo`,
    `bnpo`). sequence_mean: every response has the same weight (GRPO, arXiv 2402.03300, equation 3; verl
    `seq-mean-token-mean`; TRL `grpo`). denominator: replaces the number of tokens or responses; with the number of
    a whole minibatch, the losses of its micro-batches add up to its loss (transformers' `num_items_in_batch`).
    """
    denominator = max(loss_denominator(mask, aggregation), 1) if denominator is None else denominator
    if aggregation == "token_mean":
        return torch.where(mask > 0, values, 0.0).sum() / denominator
    if aggregation == "sequence_mean":
        return sequence_mean(values, mask).sum() / denominator
    raise ValueError(f"the aggregation {aggregation!r} does not exist; choose from token_mean, sequence_mean")


# Kullback-Leibler divergence to the reference policy.
def k3(logps: Tensor, reference_logps: Tensor) -> Tensor:
    """Return the k3 estimate (N, T), in nats, of KL(policy || reference): `r - log r - 1` with r = reference / policy.

    It is never negative, and unbiased under the policy's own samples (Schulman 2020, "Approximating KL divergence";
    GRPO, arXiv 2402.03300, equation 4). verl's `low_var_kl` also bounds it at 10. TRL multiplies it by the importance
    ratio, with gradient, unless `use_bias_correction_kl` is false (true by default since 1.16; arXiv 2512.02556).
    """
    difference = (reference_logps - logps).clamp(-20.0, 20.0)
    return difference.exp() - difference - 1


def k1(logps: Tensor, reference_logps: Tensor) -> Tensor:
    """Return the k1 estimate (N, T), in nats, of KL(policy || reference) per token: `log(policy / reference)`.

    It is unbiased but can be negative. Under the policy's own samples its expected gradient is 0, so as a loss it does
    not keep the policy near the reference.
    """
    return logps - reference_logps


ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k3": k3}


def adapt_coefficient(coefficient: float, mean_kl: float, *, target: float) -> float:
    """Return the KL coefficient, times 1.5 if the KL is above `2 * target`, times 0.5 if it is below `target / 2`.

    The result is kept within [0.01, 1]. This is the rule of PPO's adaptive penalty (arXiv 1707.06347, section 4) with
    the factors and bounds of the GSPO notes.
    """
    if mean_kl > 2 * target:
        coefficient *= 1.5
    elif mean_kl < 0.5 * target:
        coefficient *= 0.5
    return min(max(coefficient, 0.01), 1.0)


# Diagnostics of micro-batches that can be joined to those of their minibatch.
#
# The variance of a minibatch is not the mean of its micro-batches' variances, and likewise for the maximum. So
# objectives return the classes below, `join` combines micro-batches, and `value` is called once, at the end. Statistics
# of tokens are in float64 and without gradient. A variance stores the squared distances from its own mean (Chan, Golub
# and LeVeque 1983), because sums of squares would lose the variance of ratios that are nearly 1.
class Statistic(Protocol):
    """Statistic of some values, which can be joined with the statistic of other values."""

    def join(self, other: Self) -> Self:
        """Return the statistic of both sets of values together."""

    def value(self) -> Tensor | None:
        """Return the statistic as a scalar; None if it is undefined."""


Diagnostics = dict[str, Statistic]


def _chosen(values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the values in float64, 0 outside the mask, and the mask in float64."""
    keep = torch.ones_like(values, dtype=torch.bool) if mask is None else mask > 0
    return torch.where(keep, values.detach().double(), 0.0), keep.double()


@dataclass(frozen=True)
class Sum:
    """Statistic that is the sum of its parts, such as the losses of micro-batches."""

    total: Tensor

    def join(self, other: Self) -> Self:  # noqa: D102
        return type(self)(self.total + other.total)

    def value(self) -> Tensor:  # noqa: D102
        return self.total.detach()


@dataclass(frozen=True)
class Mean:
    """Mean of values, over tokens (values and mask (N, T)) or over responses (values (N,))."""

    total: Tensor
    count: Tensor

    @classmethod
    def of(cls, values: Tensor, mask: Tensor | None = None) -> Self:
        """Return the mean of `values`, of any shape, where `mask` of the same shape is not 0; 0 for an empty mask."""
        values, mask = _chosen(values, mask)
        return cls(values.sum(), mask.sum())

    def join(self, other: Self) -> Self:  # noqa: D102
        return type(self)(self.total + other.total, self.count + other.count)

    def value(self) -> Tensor:  # noqa: D102
        return self.total / self.count.clamp(min=1.0)


@dataclass(frozen=True)
class Maximum:
    """Largest of some values. Unlike other statistics, it is not averaged over the minibatches of a step."""

    largest: Tensor

    @classmethod
    def of(cls, values: Tensor, mask: Tensor | None = None) -> Self:
        """Return the maximum of `values` where `mask` is not 0; -inf for an empty mask."""
        chosen, keep = _chosen(values, mask)
        return cls(torch.where(keep > 0, chosen, -torch.inf).max())

    def join(self, other: Self) -> Self:  # noqa: D102
        return type(self)(torch.maximum(self.largest, other.largest))

    def value(self) -> Tensor:  # noqa: D102
        return self.largest


@dataclass(frozen=True)
class Variance:
    """Population variance of values."""

    count: Tensor
    mean: Tensor
    squares: Tensor  # sum of squared distances from the mean

    @classmethod
    def of(cls, values: Tensor, mask: Tensor | None = None) -> Self:
        """Return the variance of `values` where `mask` is not 0; 0 for an empty mask."""
        values, mask = _chosen(values, mask)
        count = mask.sum()
        mean = values.sum() / count.clamp(min=1.0)
        return cls(count, mean, ((values - mean) ** 2 * mask).sum())

    def join(self, other: Self) -> Self:  # noqa: D102
        count = self.count + other.count
        share = other.count / count.clamp(min=1.0)
        difference = other.mean - self.mean
        squares = self.squares + other.squares + difference**2 * self.count * share
        return type(self)(count, self.mean + difference * share, squares)

    def value(self) -> Tensor:  # noqa: D102
        return self.squares / self.count.clamp(min=1.0)


@dataclass(frozen=True)
class VarianceReduction:
    """Reduction of variance, `1 - Var(after) / Var(raw)`; undefined if Var(raw) is rounding noise (equal ratios)."""

    raw: Variance
    after: Variance

    def join(self, other: Self) -> Self:  # noqa: D102
        return type(self)(self.raw.join(other.raw), self.after.join(other.after))

    def value(self) -> Tensor | None:  # noqa: D102
        raw = self.raw.value()
        return None if raw <= 1e-10 else 1 - self.after.value() / raw


def group_metrics(rewards: Tensor, group_size: int) -> dict[str, Tensor]:
    """Return the logged statistics of a step's rewards (N,), and of their groups if `group_size` is above 1."""
    metrics = {"reward/mean": rewards.mean(), "reward/std": rewards.std(correction=0)}
    if group_size > 1:
        groups = rewards.view(-1, group_size)
        metrics["reward/zero_std_groups"] = (groups == groups[:, :1]).all(1).float().mean()
        metrics["reward/group_std"] = groups.std(1).mean()
    return metrics


class StepMetrics:
    """Metrics of a step: the means of its minibatches' statistics, and the largest of their maxima.

    Statistics of micro-batches are joined within their minibatch, so that metrics do not depend on the size of
    micro-batches. A statistic that is undefined on a minibatch is left out of the mean.
    """

    def __init__(self) -> None:
        self._figures: dict[str, list[float]] = defaultdict(list)
        self._largest: set[str] = set()

    def close_minibatch(self, *parts: Mapping[str, Statistic]) -> None:
        """Join the statistics in `parts`, which belong to one minibatch, and store their values."""
        joined: dict[str, Statistic] = {}
        for name, statistic in (item for statistics in parts for item in statistics.items()):
            if not hasattr(statistic, "join"):
                problem = f"the diagnostic {name} has the type {type(statistic).__name__}"
                raise TypeError(f"{problem}; return a statistic such as Mean.of(values, mask)")
            joined[name] = joined[name].join(statistic) if name in joined else statistic
        self._largest |= {name for name, statistic in joined.items() if isinstance(statistic, Maximum)}
        values = {name: statistic.value() for name, statistic in joined.items()}
        defined = {name: value.double() for name, value in values.items() if value is not None}

        # All values in one transfer, because the host waits for it.
        for name, value in zip(defined, torch.stack(list(defined.values())).tolist() if defined else [], strict=True):
            self._figures[name].append(value)

    def compute(self) -> dict[str, float]:
        """Return the metrics of the step by name."""
        return {
            name: max(values) if name in self._largest else sum(values) / len(values)
            for name, values in self._figures.items()
        }
