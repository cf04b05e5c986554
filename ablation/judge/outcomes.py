"""Computes pass@k, cons@k and pass^k from the number of an item's samples that are right."""

from dataclasses import dataclass
from math import comb
from typing import Literal

import numpy as np

from ablation.judge.significance import Array


@dataclass(frozen=True)
class Outcome:
    """`pass`, `cons` or `all` of k samples drawn without replacement from an item's samples, exact and unbiased.

    pass@k: the chance that any is right, 1 - C(n - c, k) / C(n, k) (Chen et al., 2021, arXiv 2107.03374);
    cons@k: the chance that most are; a tie counts half;
    all@k: the chance that all are, C(c, k) / C(n, k): pass^k of tau-bench (Yao et al., 2024, arXiv 2406.12045).
    """

    kind: Literal["pass", "cons", "all"]
    k: int

    @property
    def option(self) -> str:
        """Option of the command `compare` for this outcome."""
        return f"--{self.kind}-at"

    def of(self, samples: int) -> list[float]:
        """Return the outcome of an item for each possible number of right samples, from 0 to all."""
        return [
            sum(self._weight(j) * _drawn(right, samples, j, self.k) for j in range(self.k + 1))
            for right in range(samples + 1)
        ]

    def _weight(self, right: int) -> float:
        if self.kind == "pass":
            return float(right > 0)
        if self.kind == "all":
            return float(right == self.k)
        return float(2 * right > self.k) + 0.5 * (2 * right == self.k)


def _drawn(right: int, samples: int, j: int, k: int) -> float:
    """Return the chance that exactly j of k drawn samples are right."""
    return comb(right, j) * comb(samples - right, k - j) / comb(samples, k)


def outcome_values(values: Array, samples: int, outcome: Outcome) -> tuple[Array, int | None]:
    """Return the outcome of each item [items], and the place of the first value that is not a share of the samples."""
    right = np.asarray(values, dtype=float) * samples
    odd = np.flatnonzero(~((abs(right - right.round()) <= 1e-6) & (right >= 0) & (right <= samples)))
    if len(odd):
        return right, int(odd[0])
    return np.array(outcome.of(samples))[right.round().astype(int)], None
