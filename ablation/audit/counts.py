"""Compute which numbers can result from counts of items, for one run, the mean of several runs, or batches.

The possible sums of runs are a set of integers, stored as the bits of one Python integer: adding a run is one shift per
value.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, floor, lcm, prod

import numpy as np

from ablation.config.printed import Printed
from ablation.config.published_schema import largest

MOST_RUNS = 50  # runs up to which the smallest number is sought
MOST_BITS = 30_000_000_000  # to shift for one set of sums, which takes about a second
MOST_VALUES = 2_000_000  # of a mean over batches; with more, every printed number is possible


class TooLongError(Exception):
    """Raised if finding the possible sums over runs would take too long."""


@dataclass(frozen=True)
class Lattice:
    """The possible values of a number, as sorted integer numerators over a common denominator."""

    numerators: tuple[int, ...]
    denominator: int

    @property
    def least(self) -> Fraction:
        """Smallest value of the lattice."""
        return Fraction(self.numerators[0], self.denominator)

    @property
    def largest(self) -> Fraction:
        """Largest value of the lattice."""
        return Fraction(self.numerators[-1], self.denominator)

    @cached_property
    def _array(self) -> np.ndarray:
        return np.array(self.numerators, dtype=np.int64)

    def inside(self, low: Fraction, high: Fraction) -> tuple[Fraction, ...]:
        """Return the values of the lattice in [low, high]."""
        first = int(np.searchsorted(self._array, ceil(low * self.denominator), side="left"))
        last = int(np.searchsorted(self._array, floor(high * self.denominator), side="right"))
        return tuple(Fraction(number, self.denominator) for number in self.numerators[first:last])

    def neighbours(self, value: Fraction) -> list[float]:
        """Return the nearest values of the lattice below and above a value, if there are any."""
        place = int(np.searchsorted(self._array, floor(value * self.denominator), side="right"))
        return [self.numerators[i] / self.denominator for i in (place - 1, place) if 0 <= i < len(self.numerators)]

    def can_be_mean(self, low: Fraction, high: Fraction, runs: int) -> bool:
        """Return whether a mean over `runs` runs, each with a value of the lattice, can lie in [low, high].

        Raises:
            TooLongError: the search would take too long.
        """
        if runs == 1:
            return bool(self.inside(low, high))
        scale = self.denominator * runs
        first, last = max(ceil(low * scale), 0), floor(high * scale)
        if last < first:
            return False
        if self._gap is not None:  # sums of an arithmetic progression are one
            start, most = self.numerators[0] * runs, self.numerators[-1] * runs
            nearest = start + max(-(-(first - start) // self._gap), 0) * self._gap
            return nearest <= min(last, most)
        return bool((self._sums(runs) >> first) & ((1 << (last - first + 1)) - 1))

    def fewest_runs(self, number: Printed) -> int | None:
        """Return the smallest number of runs whose mean can print as `number`; None if more than MOST_RUNS."""
        if number.high < self.least or number.low > self.largest:
            return None
        found = (runs for runs in range(1, MOST_RUNS + 1) if self.can_be_mean(number.low, number.high, runs))
        return next(found, None)

    @cached_property
    def _gap(self) -> int | None:
        """Distance between neighbouring values of the lattice; None if the distance is not constant."""
        gaps = np.unique(np.diff(self._array))
        return int(gaps[0]) if len(gaps) == 1 else None

    @cached_property
    def _sets(self) -> list[int]:
        """Possible sums over 0, 1, ... runs, each as a set of bits; `_sums` appends the sets as they are needed."""
        return [1]  # of no run: the sum 0

    def _sums(self, runs: int) -> int:
        if len(self.numerators) * self.numerators[-1] * runs > MOST_BITS:
            raise TooLongError
        while len(self._sets) <= runs:
            last, total = self._sets[-1], 0
            for number in self.numerators:
                total |= last << number
            self._sets.append(total)
        return self._sets[runs]


def item_weights(items: int, batches: Sequence[int] = ()) -> Mapping[Fraction, int]:
    """Return {weight in the mean over batches: number of items with this weight}; the last batch may be smaller.

    batches: sizes of nested batches, the outer first; within a batch, the means of its inner batches are averaged.
    """
    if not batches:
        return {Fraction(1, items): items}
    size, *inner = batches
    full, rest = divmod(items, size)
    weights: Counter[Fraction] = Counter()
    for batch, number in ((size, full), (rest, 1 if rest else 0)):
        for weight, count in item_weights(batch, inner).items() if number else ():
            weights[weight / (full + (rest > 0))] += count * number
    return weights


def attainable(items: int, batches: Sequence[int] = (), target: Fraction | None = None) -> Lattice:
    """Return the values that a rate over `items` yes/no items, or the rate's distance from `target`, can take.

    batches: sizes of nested batches, as in `item_weights`. Items count equally if there are no batches, or if the mean
        over batches could have more than MOST_VALUES values.
    """
    weights = item_weights(items, batches)
    if prod(count + 1 for count in weights.values()) > MOST_VALUES:
        weights = item_weights(items)
    denominator = lcm(*(weight.denominator for weight in weights))
    numbers = np.zeros(1, dtype=np.int64)
    for weight, count in weights.items():
        steps = np.arange(count + 1, dtype=np.int64) * int(weight * denominator)
        numbers = np.unique(numbers[:, None] + steps)
    if target is not None:
        factor = lcm(denominator, target.denominator) // denominator
        denominator *= factor
        numbers = np.abs(numbers * factor - target.numerator * (denominator // target.denominator))
    return Lattice(tuple(np.unique(numbers).tolist()), denominator)


@dataclass(frozen=True)
class Evaluation:
    """How a column was computed: the number of items, the sizes of batches, and the target, which is None for rates."""

    items: int
    batches: tuple[int, ...]
    target: Fraction | None

    @cached_property
    def plain(self) -> Lattice:
        """Values that one run can give if the column is a mean over items, not over batches."""
        return attainable(self.items, (), self.target)

    @cached_property
    def batched(self) -> Lattice:
        """Values that one run can give as a mean over batches; the object `plain` itself if the values are equal."""
        lattice = attainable(self.items, self.batches, self.target)
        return self.plain if lattice == self.plain else lattice

    @property
    def has_uneven_batches(self) -> bool:
        """Whether the mean over batches differs from the mean over items."""
        return self.plain is not self.batched

    @cached_property
    def _rates(self) -> Lattice:
        return attainable(self.items)

    def can_be_of_mean(self, number: Printed, runs: int) -> bool:
        """Return whether the runs' mean rate, or the distance of this mean from a target, can print as `number`."""
        low, high = number.low, number.high
        if self.target is None:
            return self.plain.can_be_mean(low, high, runs)
        low = max(low, Fraction(0))
        sides = (self.target + low, self.target + high), (self.target - high, self.target - low)
        return any(self._rates.can_be_mean(*side, runs) for side in sides)

    def fewest_runs_of_mean(self, number: Printed) -> int | None:
        """Return the fewest runs for which `can_be_of_mean` is true; None if more than MOST_RUNS."""
        return next((runs for runs in range(1, MOST_RUNS + 1) if self.can_be_of_mean(number, runs)), None)

    def share(self, like: Printed) -> tuple[int, int]:
        """Return how many values with as many decimals as `like` one run can give, and how many such values exist."""
        unit = 2 * like.exact_half
        total = floor(largest(self.target) / unit) + 1
        if self.gives_all(like):
            return total, total
        scale = 2 * unit.numerator * self.batched.denominator
        reached: set[int] = set()
        for number in self.batched.numerators:  # rounded up and down: value / unit +- 1/2
            twice, half = 2 * number * unit.denominator, scale // 2
            reached |= {(twice + half) // scale, -((half - twice) // scale)}
        return min(len(reached), total), total

    def gives_all(self, like: Printed) -> bool:
        """Return whether one run can give every value with as many decimals as `like`."""
        return 2 * like.exact_half * self.items >= 1
