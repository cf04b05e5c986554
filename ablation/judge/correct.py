"""Corrects a study's comparisons for their number: adjusted p-values, and the level left to each comparison."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ablation.judge.family import Family, covariances
from ablation.judge.measure import Measured, interim_shares
from ablation.judge.measurements import Measurements
from ablation.judge.significance import Array, benjamini_hochberg, holm

CORRECTIONS = {
    "max-t": " after the max-t correction",
    "holm": " after Holm's correction",
    "bh": " after Benjamini and Hochberg's correction",
    "one": "",
    "none": ", not corrected for other comparisons",
}


@dataclass(frozen=True, eq=False)
class Correction:
    """Correction for the number of tested comparisons: adjusted p-values, and the level left to each comparison."""

    study: Measurements
    tested: Sequence[Measured]
    p: Sequence[float]
    sides: int = 2  # of each test
    alone: bool = False  # one comparison that is not corrected

    @classmethod
    def of(cls, study: Measurements, comparisons: Sequence[Measured]) -> "Correction":
        """Return the correction of the comparisons that have a p, ordered by name so that random draws are stable."""
        tested = sorted((each for each in comparisons if not np.isnan(each.p)), key=lambda each: each.pair)
        return cls(study, tested, [comparison.p for comparison in tested])

    @property
    def name(self) -> str:
        """Name of the correction, one of CORRECTIONS."""
        if self.alone or len(self.tested) < 2:
            return "none" if self.alone else "one"
        return "bh" if self.study.analysis.error == "fdr" else "holm" if self.family is None else "max-t"

    @cached_property
    def covariances(self) -> tuple[Array, Array] | None:
        """Covariances of the tested effects, over seeds and over items; None for Holm's correction."""
        if self.study.analysis.correction != "max-t" or len(self.tested) < 2:
            return None
        return covariances(self.tested, self.study.prior)

    @cached_property
    def family(self) -> Family | None:
        """The tested comparisons with the correlation of their errors; None if the correlation is not known."""
        if self.covariances is None:
            return None
        noises = [comparison.interims[-1].estimate.noise for comparison in self.tested]
        return Family.of(*self.covariances, noises, interim_shares(self.study.analysis), self.sides)

    @cached_property
    def adjusted(self) -> dict[tuple[str, str], float]:
        """Adjusted p-values, by child and parent."""
        if self.name == "bh":
            adjusted = benjamini_hochberg(self.p)
        else:
            adjusted = self.family.adjusted(self.p) if self.name == "max-t" and self.family else holm(self.p)
        return dict(zip((comparison.pair for comparison in self.tested), adjusted.tolist(), strict=True))

    @cached_property
    def level(self) -> float:
        """Level at which each comparison may be tested alone; with `error: fdr`, the level for one further verdict."""
        alpha, count = self.study.analysis.alpha, len(self.tested)
        if self.name == "bh":
            return self._share * min(self._rejected + 1, count)
        if self.name == "max-t" and self.family:
            return self.family.level(alpha)
        return alpha if self.name in ("one", "none") else self._share

    @property
    def joint(self) -> float:
        """Level of intervals for all comparisons at once; with `error: fdr`, for those that are better or worse.

        Benjamini and Yekutieli (2005, JASA 100, 71-81); 0 if there are none.
        """
        return self._share * self._rejected if self.name == "bh" else self.level

    @property
    def _share(self) -> float:
        return self.study.analysis.alpha / max(len(self.tested), 1)

    @property
    def _rejected(self) -> int:
        return sum(p <= self.study.analysis.alpha for p in self.adjusted.values())
