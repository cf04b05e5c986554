"""Decides the verdict on a comparison, from its measurements and the correction for the number of comparisons."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ablation.judge.correct import Correction
from ablation.judge.measure import Interim, Measured
from ablation.judge.significance import enough_seeds_for_equivalence

VERDICTS = (
    "better",
    "worse",
    "equivalent",
    "undecided",
    "confounded",
    "invalid",
    "not run",
)  # in the order of the page
DECIDED = VERDICTS[:3]
NOT_COMPARED = ("invalid", "not run")
_NAN = float("nan")


@dataclass(frozen=True)
class Judged(Measured):
    """A comparison with its verdict."""

    correction: Correction = field(kw_only=True, repr=False, compare=False)

    @cached_property
    def p_adjusted(self) -> float:
        """P-value adjusted for the study's comparisons."""
        return self.correction.adjusted.get(self.pair, _NAN)

    @cached_property
    def significant(self) -> bool:
        """Whether the adjusted p is at most alpha; it is computed only if the comparison's own p is at most alpha."""
        return self.p <= self.measurements.analysis.alpha and self.p_adjusted <= self.measurements.analysis.alpha

    @cached_property
    def decision(self) -> tuple[str, Interim | None]:
        """The verdict if confounding is ignored, and the interim analysis that decided it; None if no analysis did."""
        if self.problem or self.latest is None:
            return "not run" if self.problem.waiting else "invalid", None

        # Equivalence first: a difference within the margin does not matter, even if it is surely not 0.
        if (interim := self.equivalent_at) is not None:
            enough = enough_seeds_for_equivalence(interim.seeds, self.measurements.analysis)
            return "equivalent" if enough else "undecided", interim

        if self.significant:
            interim = self.smallest_p
            return "better" if interim.estimate.centre > 0 else "worse", interim
        return "undecided", None

    @property
    def detail(self) -> str:
        """The verdict if confounding is ignored, one of VERDICTS."""
        return self.decision[0]

    @property
    def verdict(self) -> str:
        """The verdict on the comparison, one of VERDICTS."""
        return "confounded" if self.confounded and self.detail not in NOT_COMPARED else self.detail

    @property
    def smallest_p(self) -> Interim:
        """Interim analysis with the smallest p relative to its share of alpha, which decides `better` or `worse`."""
        return min(
            (interim for interim in self.interims if not np.isnan(interim.p)),
            key=lambda interim: interim.p / interim.weight,
        )

    @cached_property
    def equivalent_at(self) -> Interim | None:
        """First interim analysis whose interval lies inside the margin, at enough seeds for the verdict `equivalent`.

        If there is none, it is the last one at too few seeds, which the reason mentions, unless a later one calls the
        comparison better or worse.
        """
        analysis = self.measurements.analysis
        within = [
            interim
            for interim in self.interims
            if interim.estimate.within(analysis.margin, analysis.alpha * interim.weight)
        ]
        if usable := [interim for interim in within if enough_seeds_for_equivalence(interim.seeds, analysis)]:
            return usable[0]
        if not within or (within[-1] is not self.interims[-1] and self.significant):
            return None
        return within[-1]
