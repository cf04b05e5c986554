"""Judges worlds of known truth, and bounds how often each verdict is wrong in them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, isnan

import numpy as np
from scipy import special

from ablation.config.study_schema import Analysis
from ablation.judge import comparisons
from ablation.judge.comparisons import DECIDED, NOT_COMPARED, study_pairs
from ablation.judge.measurements import Measurements
from tests.simulations.worlds import FORMS, NOISY, World, forms_of, parts_of, worlds

SEED = 20260101


@dataclass(frozen=True)
class Size:
    """How many worlds are judged."""

    trees: int = 200  # of each form that carries noise
    comparisons: int = 400  # of each form that carries none
    forms: tuple[str, ...] = FORMS


@dataclass(frozen=True)
class Evidence:
    """How often one verdict was wrong in worlds of one form."""

    verdict: str  # better or worse, equivalent, or interval
    form: str
    promise: float  # the rate that the verdict must not exceed
    trials: int  # worlds for better or worse, comparisons for the others
    rate: float
    lower: float  # one-sided bound, at a confidence corrected for all bounds
    upper: float  # one-sided, at 95%


CONFIDENCE = 0.95  # of an upper bound, and of all lower bounds of a study together
DIRECTION = "better or worse"  # the two verdicts have one promise
_EPSILON = 1e-9


@dataclass(frozen=True)
class Judged:
    """One comparison of a world: its true effect, the verdict that it got, and its interval."""

    truth: float  # NaN where it is not known
    verdict: str
    low: float
    high: float


@dataclass(frozen=True)
class Trial:
    """One judged world."""

    form: str
    comparisons: tuple[Judged, ...]

    def direction(self, *, fdr: bool) -> float:
        """The share of wrong ones among verdicts better and worse; unless `fdr`, 1 where there is any."""
        said = [
            comparison
            for comparison in self.comparisons
            if comparison.verdict in ("better", "worse") and not isnan(comparison.truth)
        ]
        wrong = sum(comparison.truth * (1 if comparison.verdict == "better" else -1) <= _EPSILON for comparison in said)
        return wrong / len(said) if wrong and fdr else float(wrong > 0)

    def equivalent(self, margin: float) -> list[bool]:
        """Whether each comparison whose true effect reaches the margin was called equivalent."""
        return [
            comparison.verdict == "equivalent"
            for comparison in self.comparisons
            if abs(comparison.truth) >= margin * (1 - 1e-6)
        ]

    def interval(self) -> list[bool]:
        """Whether the interval of each comparison misses its true effect."""
        known = [
            comparison
            for comparison in self.comparisons
            if not isnan(comparison.truth + comparison.low + comparison.high)
        ]
        return [not comparison.low - _EPSILON <= comparison.truth <= comparison.high + _EPSILON for comparison in known]


def tally(trials: Sequence[Trial], analysis: Analysis) -> list[Evidence]:
    """How often verdicts were wrong, and intervals missed, by form."""
    fdr = analysis.error == "fdr"
    found: list[tuple[str, str, list[Sequence[float]]]] = []
    for form in dict.fromkeys(trial.form for trial in trials):
        of = [trial for trial in trials if trial.form == form]
        groups: dict[str, list[Sequence[float]]] = {}
        if form not in ("seeds", "rare"):
            groups[DIRECTION] = [[trial.direction(fdr=fdr)] for trial in of]
        groups["equivalent"] = [trial.equivalent(analysis.margin) for trial in of]
        if form in ("signs", "planted"):
            groups["interval"] = [trial.interval() for trial in of]
        for verdict, every in groups.items():
            if kept := [group for group in every if group]:
                found.append((verdict, form, kept))
    return [_evidence(verdict, form, analysis.alpha, groups, len(found)) for verdict, form, groups in found]


def _evidence(verdict: str, form: str, promise: float, groups: Sequence[Sequence[float]], kinds: int) -> Evidence:
    trials = sum(map(len, groups))
    rate = sum(map(sum, groups)) / trials
    confidence = 1 - (1 - CONFIDENCE) / kinds
    below, above = effective_trials(groups, confidence), effective_trials(groups, CONFIDENCE)
    return Evidence(
        verdict=verdict,
        form=form,
        promise=promise,
        trials=trials,
        rate=rate,
        lower=lower_bound(rate * below, below, confidence),
        upper=upper_bound(rate * above, above, CONFIDENCE),
    )


def lower_bound(wrong: float, trials: float, confidence: float) -> float:
    """The one-sided Clopper-Pearson lower bound of a rate; `wrong` and `trials` need not be whole.

    Numbers that are not whole come from an effective number of trials: Korn and Graubard (1998, Survey Methodology 24,
    193-201) put it, and the rate times it, into the bound of Clopper and Pearson (1934, Biometrika 26, 404-413).
    """
    return 0.0 if wrong <= 0 else float(special.betaincinv(wrong, trials - wrong + 1, 1 - confidence))


def upper_bound(wrong: float, trials: float, confidence: float) -> float:
    """The one-sided upper bound, likewise."""
    return 1.0 if wrong >= trials else float(special.betaincinv(wrong + 1, trials - wrong, confidence))


def effective_trials(groups: Sequence[Sequence[float]], confidence: float) -> float:
    """The effective number of independent trials after Korn and Graubard, for a one-sided bound.

    The design effect is estimated from the groups, and so has only their degrees of freedom: hence the squared ratio of
    the two quantiles of Student's t. Without variation between groups there is neither estimate nor ratio.
    """
    trials = sum(map(len, groups))
    if len(groups) < 2 or len({value for group in groups for value in group}) < 2:
        return float(trials)
    ratio = special.stdtrit(trials - 1, confidence) / special.stdtrit(len(groups) - 1, confidence)
    return float(trials / design_effect(groups) * ratio**2)


def design_effect(groups: Sequence[Sequence[float]]) -> float:
    """The design effect of trials in groups, relative to independent trials; at least 1.

    The variance of the rate between groups, over the variance for independent trials. It is 1 if all trials are right,
    or all wrong.
    """
    size = np.array([len(group) for group in groups], dtype=float)
    rate = np.array([np.mean(group) for group in groups])
    mean, count = float((size * rate).sum() / size.sum()), len(groups)
    if count < 2 or size.max() <= 1 or mean in (0.0, 1.0):
        return 1.0
    between = float(((size * (rate - mean)) ** 2).sum()) * count / (count - 1) / float(size.sum()) ** 2
    return max(1.0, between * float(size.sum()) / (mean * (1 - mean)))


def evidence_of(study: Measurements, size: Size = Size()) -> list[Evidence]:
    """Judge worlds of known truth made from this study's runs; how often were verdicts wrong, and intervals missed?"""
    judged = comparisons.judge_comparisons(study)
    items_only = any(comparison.estimate is not None and comparison.estimate.items_only for comparison in judged)
    parts = parts_of(study, items_only=items_only)
    detectable = [comparison.mde for comparison in judged if np.isfinite(comparison.mde) and comparison.mde > 0]
    mde = float(np.median(detectable)) if detectable else 2 * study.analysis.margin
    trials: list[Trial] = []
    for form in forms_of(study, items_only=items_only) if parts else ():
        rounds = size.trees if form in NOISY else ceil(size.comparisons / len(study_pairs(study)))
        if parts and form in size.forms:
            trials += (judge(form, world) for world in worlds(study, parts, form, rounds=rounds, mde=mde, seed=SEED))
    return tally(trials, study.analysis)


def judge(form: str, world: World) -> Trial:
    """Judge a world at every interim analysis, stopping at a decision: each comparison's first decided verdict."""
    study = world.study
    found: dict[tuple[str, str], Judged] = {}
    for seen in _looks(study):
        for comparison in comparisons.judge_comparisons(seen):
            if comparison.detail not in NOT_COMPARED and (
                comparison.pair not in found or found[comparison.pair].verdict not in DECIDED
            ):
                truth = world.gains[comparison.child] - world.gains[comparison.parent]
                found[comparison.pair] = Judged(truth, comparison.detail, comparison.low, comparison.high)
    return Trial(form, tuple(found.values()))


def _looks(study: Measurements) -> Iterator[Measurements]:
    """The study as it was at each interim analysis that has been passed, and as it is."""
    most = max((len(study.seeds(variant.name)) for variant in study.variants), default=0)
    for interim in study.analysis.interim_analyses:
        if interim < most:
            kept = {
                (variant.name, seed)
                for variant in study.variants
                for seed in study.in_order_added(study.seeds(variant.name))[:interim]
            }
            states = {run: state for run, state in study.states.items() if run in kept}
            yield replace(study, states=states, values={run: study.values[run] for run in states})
    yield study
