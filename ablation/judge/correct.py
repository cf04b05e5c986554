"""Corrects for the number of comparisons in a study: adjusted p-values, and the level left to each comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ablation.judge.family import Family, covariances
from ablation.judge.measure import Measured, interim_shares
from ablation.judge.measurements import Measurements
from ablation.judge.significance import Array, Noise, benjamini_hochberg, holm

_MOST_PATHS = 5_000  # whose correlations are computed, in 3 GB; more get Bonferroni's correction
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
        """Level at which each comparison may be tested alone; with `error: fdr`, the level of the next verdict."""
        alpha, count = self.study.analysis.alpha, len(self.tested)
        if self.name == "bh":
            return self._share * min(self._rejected + 1, count)
        if self.name == "max-t" and self.family:
            return self.family.level(alpha)
        return alpha if self.name in ("one", "none") else self._share

    @property
    def joint(self) -> float:
        """Level of intervals for all comparisons at once; with `error: fdr`, for all that are `better` or `worse`.

        Benjamini and Yekutieli (2005, JASA 100, 71-81); 0 if there are none.
        """
        return self._share * self._rejected if self.name == "bh" else self.level

    @cached_property
    def path_level(self) -> float:
        """Level of the interval of each path of the variant tree, if the error over all paths is alpha.

        The family is every variant against every one of its ancestors, so that a reader may look for the best of them.
        A path is the sum of its comparisons, so the comparisons' covariances give the covariances of paths.
        """
        alpha = self.study.analysis.alpha
        found = ways_up(self.study.parents, [comparison.pair for comparison in self.tested])
        ways = [way for _, way in sorted(found.items()) if way]
        paths = sum(map(len, ways))
        if self.covariances is None or not paths or paths > _MOST_PATHS:
            return alpha / max(paths, 1)
        # [paths, comparisons]: the comparisons that each path sums, the beginnings of a variant's way up the tree.
        each = np.eye(len(self.tested))
        steps = np.concatenate([each[way].cumsum(axis=0) for way in ways])
        by_seed, by_item = (steps @ part @ steps.T for part in self.covariances)
        noises = [comparison.interims[-1].estimate.noise for comparison in self.tested]
        weakest = [
            Noise(
                float(by_seed[at, at]),
                min(noise.seed_df for noise, used in zip(noises, path, strict=True) if used),
                float(by_item[at, at]),
                min(noise.item_df for noise, used in zip(noises, path, strict=True) if used),
            )
            for at, path in enumerate(steps)
        ]
        return Family.of(by_seed, by_item, weakest, interim_shares(self.study.analysis)).level(alpha)

    @property
    def _share(self) -> float:
        return self.study.analysis.alpha / max(len(self.tested), 1)

    @property
    def _rejected(self) -> int:
        return sum(p <= self.study.analysis.alpha for p in self.adjusted.values())


def ways_up(parents: Mapping[str, str | None], comparisons: Sequence[tuple[str, str]]) -> dict[str, list[int]]:
    """Return {variant: indices of the comparisons on its path up the variant tree}."""
    index = {comparison: number for number, comparison in enumerate(comparisons)}
    ways: dict[str, list[int]] = {}
    for variant in parents:
        way, at = ways.setdefault(variant, []), variant
        while (above := parents.get(at)) is not None and (number := index.get((at, above))) is not None:
            way.append(number)
            at = above
    return ways
