"""Measures one comparison of a child with its parent, apart from the others: effect, noise, and interim analyses."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from ablation.config.study_schema import Analysis
from ablation.config.variant_tree import ancestors
from ablation.judge import remarks
from ablation.judge.measurements import Measurements, Problem, comparable
from ablation.judge.moderation import SeedPrior
from ablation.judge.significance import Noise, interim_weights, sequential_p
from ablation.judge.statistics import Estimate, contrast_groups

_NAN = float("nan")


@dataclass(frozen=True)
class Interim:
    """A comparison's interim analysis at a number of seeds; `weight` is the share of alpha that it may spend."""

    seeds: int
    weight: float
    runs: tuple[tuple[int, ...], ...]  # seeds of the child's runs and of the parent's, in the order they were added
    estimate: Estimate

    @property
    def p(self) -> float:
        """Two-sided p-value of this interim analysis alone."""
        return self.estimate.p


@dataclass(frozen=True)
class Measured:
    """One comparison before any correction, in units of the statistic; a positive effect is an improvement."""

    measurements: Measurements = field(repr=False, compare=False)
    parent: str
    child: str
    problem: Problem = field(default=Problem())  # what keeps runs from being paired
    factors: tuple[str, ...] = ()
    all_seeds: Interim | None = field(default=None, repr=False)  # None where no runs can be paired
    interims: tuple[Interim, ...] = field(default=(), repr=False)  # taken so far, the last one last
    p: float = _NAN  # two-sided; over all interim analyses, if the study declares any

    @property
    def study(self) -> str:
        """Name of the study."""
        return self.measurements.name

    @property
    def pair(self) -> tuple[str, str]:
        """Names of the compared child and parent."""
        return self.child, self.parent

    @property
    def confounded(self) -> bool:
        """Whether more than one factor changed."""
        return len(self.factors) > 1

    @property
    def latest(self) -> Interim | None:
        """Last interim analysis; before the first planned one, an analysis of all seeds so far; None without seeds."""
        return self.interims[-1] if self.interims else self.all_seeds

    @property
    def estimate(self) -> Estimate | None:
        """The estimate from all seeds of the comparison; None if no runs can be paired."""
        return self.all_seeds.estimate if self.all_seeds else None

    @property
    def noise(self) -> Noise:
        """The noise of the estimate from all seeds."""
        return self.estimate.noise if self.estimate else Noise(_NAN, 0, _NAN)

    @property
    def unseen_in_full(self) -> bool:
        """Whether the verdicts `better` and `worse` fully allow for unseen items with far larger differences."""
        return self.estimate is None or self.estimate.counts or self.estimate.unseen_share == 1

    @property
    def runs(self) -> tuple[tuple[int, ...], ...]:
        """Seeds of the child's runs and of the parent's, in the order in which they were added."""
        return self.all_seeds.runs if self.all_seeds else ((), ())

    @property
    def effect(self) -> float:
        """Mean effect over seeds; NaN if no runs can be paired."""
        return self.estimate.effect if self.estimate else _NAN

    def interval_at(self, level: float) -> tuple[float, float]:
        """Return the interval at the last interim analysis's share of a level.

        The interval always contains the effect.
        """
        if self.latest is None:
            return _NAN, _NAN
        low, high = self.latest.estimate.interval(level * self.latest.weight)
        return min(low, self.effect), max(high, self.effect)

    @property
    def paired(self) -> tuple[int, ...]:
        """Seeds that were paired; none if runs are independent."""
        return self.runs[0] if self.measurements.design.paired else ()

    @property
    def seeds(self) -> int:
        """Number of runs of the variant that has fewer runs."""
        return min(map(len, self.runs))

    @property
    def items(self) -> int:
        """Number of paired items, over all subsets."""
        return self.estimate.items if self.estimate else 0


def measure(study: Measurements, child: str, parent: str, *, moderate: bool = True) -> Measured:
    """Return one comparison before correction: the effect, the interim analyses, and the p over all of them.

    moderate: let the study's other variants inform the variance over seeds. Only comparisons that are corrected for
    their number may do so: alone, a child that is several times as noisy as the others would err too often.
    """
    variants = (child, parent)
    groups, runs, problem = comparable(study, variants)
    analysis, prior = study.analysis, study.prior if moderate else None
    measured = Measured(study, parent, child, problem, _factors(study, child, parent))
    if not groups:
        return measured

    most = min(map(len, runs))
    weights = interim_weights(analysis.interim_analyses) or {most: 1.0}

    def analysed(count: int, weight: float) -> Interim:
        first = runs if count == most else [seeds[:count] for seeds in runs]
        of_first = [study.group(name, seeds, groups[0].clusters) for name, seeds in zip(variants, first, strict=True)]
        estimate = contrast_groups(of_first, (1, -1), 1 - analysis.alpha, study.design)
        if estimate.noise.total == 0 and study.design.paired:
            same = remarks.same_measured(study.weights, child, parent, runs[0])
            unseen = 0.0 if same else estimate.noise.unseen  # other items differ no more than these
            estimate = replace(estimate, noise=replace(estimate.noise, unseen=unseen))
        return Interim(count, weight, tuple(map(tuple, first)), moderated(estimate, variants, prior))

    everything = analysed(most, weights.get(most, next(iter(weights.values()))))
    taken = {count: weight for count, weight in weights.items() if count <= most}
    interims = [everything if count == most else analysed(count, weight) for count, weight in taken.items()]
    p = sequential_p({interim.seeds: interim.p for interim in interims}, weights)
    return replace(measured, all_seeds=everything, interims=tuple(interims), p=_NAN if problem else p)


def moderated(numbers: Estimate, variants: Sequence[str], prior: SeedPrior | None, squares: float = 2.0) -> Estimate:
    """Return the estimate with moderated noise (`SeedPrior.moderated`); unchanged without a prior, or with one seed.

    squares: the sum of the squared weights of the contrast.
    """
    noise = numbers.noise
    if prior is None or not noise.seeds_known or numbers.copied or numbers.design.claim == "checkpoints":
        return numbers
    plain = float(np.var(numbers.per_seed, ddof=1)) if numbers.per_seed else inf
    hidden = max(noise.seed_variance * numbers.seeds - plain, 0.0)
    return replace(numbers, noise=prior.moderated(noise, variants, numbers.seeds, hidden, squares))


def _factors(study: Measurements, child: str, parent: str) -> tuple[str, ...]:
    """Return the factors that differ on the path from child to parent through their last common ancestor."""
    factors_of = {variant.name: variant.factors for variant in study.variants}
    if study.parents[child] == parent:
        return factors_of[child]
    on_child_path, on_parent_path = ({name, *ancestors(name, study.parents)} for name in (child, parent))
    steps = on_child_path ^ on_parent_path
    if len(steps) == 1:
        return factors_of[steps.pop()]
    return tuple(sorted({factor for name in steps for factor in factors_of[name]}))


def interim_shares(analysis: Analysis) -> list[float]:
    """Return the share of alpha of each interim analysis; a single share of 1 if no interim analysis is planned."""
    return list(interim_weights(analysis.interim_analyses).values()) or [1.0]
