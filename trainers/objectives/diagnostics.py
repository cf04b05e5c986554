"""What is measured of batches, and of scores."""

from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor


# What is measured of a batch, in a form in which parts join: micro-batches give the figures of their minibatch.
#
# The mean of the variances of parts is not the variance of the whole, nor is the mean of their maxima its maximum. So
# objectives return these, `join` puts the parts together, and `value` is read once, at the end. All are in float64 and
# without gradient; a variance keeps the squared distances from its own mean (Chan, Golub and LeVeque 1983), since sums
# of squares would lose the variance of ratios that are nearly 1.
class Statistic(Protocol):
    """A figure of some values, which joins with that of others."""

    def join(self, other: Self) -> Self:
        """Return the statistic of both."""

    def value(self) -> Tensor | None:
        """Return the figure, a scalar; None where it is not defined."""


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
    """The mean of values: over tokens (values and mask (B, T)) or over responses (values (B,))."""

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
class Reduction:
    """1 - Var(after) / Var(raw); undefined where raw is rounding noise (ratios that are all 1 up to about 1e-5)."""

    raw: Variance
    after: Variance

    @classmethod
    def of(cls, raw: Tensor, after: Tensor, mask: Tensor | None = None) -> Self:
        """Return the reduction from `raw` to `after`, of the same shape, where `mask` is not 0."""
        return cls(Variance.of(raw, mask), Variance.of(after, mask))

    def join(self, other: Self) -> Self:  # noqa: D102
        return type(self)(self.raw.join(other.raw), self.after.join(other.after))

    def value(self) -> Tensor | None:  # noqa: D102
        raw = self.raw.value()
        return None if raw <= 1e-10 else 1 - self.after.value() / raw


def group_metrics(rewards: Tensor, group_size: int) -> dict[str, Tensor]:
    """Return what is logged of the rewards (B * G,) of a step's groups; spreads within groups where G is above 1."""
    metrics = {"reward/mean": rewards.mean(), "reward/std": rewards.std(correction=0)}
    if group_size > 1:
        groups = rewards.view(-1, group_size)
        metrics["reward/zero_std_groups"] = (groups == groups[:, :1]).all(1).float().mean()
        metrics["reward/group_std"] = groups.std(1).mean()
    return metrics


# Whether scores rank the responses to one prompt as their quality does.
def within_group_correlation(scores: Tensor, quality: Tensor, group_size: int) -> Tensor:
    """Return the Pearson correlation of scores and quality, both (B * G,), after each group's mean is taken off.

    Differences between prompts do not count: only those within a group reach the advantages. NaN where no group has
    a spread in both.
    """
    x, y = (v.double().view(-1, group_size) for v in (scores, quality))
    x, y = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    # A group of equal values has rounding noise around its mean, not exactly 0.
    x, y = (torch.where(v.abs().amax(1, keepdim=True) > 1e-9, v, 0.0) for v in (x, y))
    scale = (x.square().sum() * y.square().sum()).sqrt()
    return torch.where(scale > 0, (x * y).sum() / scale, torch.nan)
