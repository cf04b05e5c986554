"""One word per edge of a lineage (parent -> child), with its evidence. Numbers that do not exist are NaN or None."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tracker.config.study_schema import Analysis
from tracker.judge import no_effect
from tracker.judge.measurements import Measurements
from tracker.judge.pairing import Warned, item_clusters, paired_values, warnings
from tracker.judge.power import minimal_detectable_effect, seeds_needed
from tracker.judge.resampling import Numbers
from tracker.judge.sequential import look_weights, sequential_p
from tracker.judge.significance import Array, holm, sign_flip
from tracker.judge.statistics import Estimate, contrast
from tracker.plan.plan_file import PlannedVariant

WORDS = ("better", "worse", "equivalent", "undecided", "confounded", "invalid")
_NAN = float("nan")


@dataclass
class Edge:
    """One comparison; `effect`, `low`, `high`, `mde` in units of the statistic, positive is an improvement."""

    study: str
    parent: str
    child: str
    verdict: str = "invalid"  # one of WORDS
    detail: str = "invalid"  # the word were it not confounded
    effect: float = _NAN
    low: float = _NAN  # interval at 1 - alpha, not adjusted for the number of edges
    high: float = _NAN
    p: float = _NAN  # two-sided; over all looks where the study declares looks
    p_adjusted: float = _NAN  # Holm over the study's edges
    p_sign_flip: float = _NAN  # over seeds, the items taken as fixed
    mde: float = _NAN  # at 80% power and level alpha / edges
    seeds: int = 0
    items: int = 0
    seeds_needed: int | None = None  # to find the observed effect with 80% power
    cost_hours: float = 0.0  # device-hours of the child's stages that the parent does not share
    confounded: bool = False
    factors: tuple[str, ...] = ()
    why: str = ""  # why this verdict
    notes: tuple[str, ...] = ()  # what is known of changes without effect
    warnings: tuple[Warned, ...] = ()  # of runs on either side
    estimate: Estimate | None = field(default=None, repr=False)

    @property
    def reason(self) -> str:
        """Why this verdict, and what else is to be known of it, in one sentence."""
        return "; ".join(filter(None, (self.why, *self.notes, *map(str, self.warnings))))


def judge_edges(study: Measurements) -> list[Edge]:
    """Verdicts of one study's edges, in the order of its variants."""
    edges = [_measure(study, variant, variant.parent) for variant in study.variants if variant.parent is not None]
    analysis = study.analysis
    for edge, p in zip(edges, holm([edge.p for edge in edges]), strict=True):
        edge.p_adjusted = float(p)
    tested = max(sum(not np.isnan(edge.p) for edge in edges), 1)
    for edge in edges:
        if edge.estimate is not None:
            _decide(edge, edge.estimate, analysis, tested)
        edge.notes = _idle(study, edge)
        edge.warnings = warnings(study, (edge.child, edge.parent))
    return edges


def _idle(study: Measurements, edge: Edge) -> tuple[str, ...]:
    """What is known of changes without effect; it does not change the verdict."""
    [changes] = [variant.changes for variant in study.variants if variant.name == edge.child]
    return (*no_effect.planned(changes), *no_effect.trained(study.weights, edge.child, edge.parent))


def _decide(edge: Edge, numbers: Estimate, analysis: Analysis, tested: int) -> None:
    level = analysis.alpha / tested
    noise = numbers.noise
    edge.mde = minimal_detectable_effect(noise, level)
    edge.seeds_needed = seeds_needed(numbers.centre, noise, numbers.seeds, level)
    if edge.detail != "invalid":
        edge.detail, edge.why = _word(edge, numbers, analysis)
    edge.verdict = "confounded" if edge.confounded and edge.detail != "invalid" else edge.detail


def _measure(study: Measurements, variant: PlannedVariant, parent: str) -> Edge:
    factors = variant.factors
    edge = Edge(study.name, parent, variant.name, factors=factors, confounded=len(factors) > 1)
    values, seeds, problem = paired_values(study, [variant.name, parent])
    edge.cost_hours = _cost_hours(study, variant.name, parent)
    edge.detail, edge.why = ("invalid", problem) if problem else ("", "")
    if not values:
        return edge
    direction, confidence = study.direction, 1 - study.analysis.alpha
    clusters = item_clusters(study, variant.name, seeds[0])
    numbers = contrast(values, (1, -1), direction, confidence=confidence, clusters=clusters)
    edge.estimate, edge.seeds, edge.items = numbers, numbers.seeds, numbers.items
    edge.effect, edge.low, edge.high = numbers.effect, numbers.low, numbers.high
    if numbers.seeds > 1:
        edge.p_sign_flip = sign_flip(numbers.per_seed)[0]
    if not problem:
        edge.p = _p_over_looks(study, values, clusters, numbers)
    return edge


def _p_over_looks(
    study: Measurements, values: Sequence[Array], clusters: Sequence[Numbers], numbers: Estimate
) -> float:
    if not (looks := study.analysis.looks):
        return numbers.p
    taken = {}
    for look in (count for count in looks if count <= numbers.seeds):
        seen = [subset[:, :look] for subset in values]
        then = numbers if look == numbers.seeds else contrast(seen, (1, -1), study.direction, clusters=clusters)
        taken[look] = then.p
    return sequential_p(taken, look_weights(looks, study.analysis.alpha))


def _word(edge: Edge, numbers: Estimate, analysis: Analysis) -> tuple[str, str]:
    margin, alpha = analysis.margin, analysis.alpha
    if numbers.seeds == 1:
        tendency = "no difference" if numbers.item_p > alpha else ("better" if numbers.effect > 0 else "worse")
        said = f"item noise alone would say {tendency} (p = {numbers.item_p:.2g})"
        return "undecided", f"one seed: seed noise is unknown; {said}"
    sign = "better" if numbers.centre > 0 else "worse"
    significant = edge.p_adjusted <= alpha
    shown = f"p = {edge.p_adjusted:.2g} after Holm's correction"
    same = numbers.effect == 0 and numbers.seed_variance + numbers.item_variance == 0
    if _inside(numbers, margin, analysis):
        if same:
            return "equivalent", "no item differs, in any seed: the change had no effect on these runs"
        tail = f"; {sign} by less than the margin, {shown}" if significant else ""
        return "equivalent", f"the interval lies within ±{margin:g}{tail}"
    if significant:
        return sign, shown
    if np.isnan(edge.p):
        shown = f"before the first look, at {analysis.looks[0]} seeds"
    if same:
        unseen = "no item differs, in any seed; a difference too rare for so few items would not have been seen"
        return "undecided", unseen
    more = f"about {edge.seeds_needed} seeds" if edge.seeds_needed else "more items, not only more seeds,"
    return "undecided", f"{shown}; {more} would be needed for an effect this large"


def _inside(numbers: Estimate, margin: float, analysis: Analysis) -> bool:
    """Two one-sided tests at alpha / 2; with looks, the interval is widened to what the look may spend."""
    low, high = numbers.low, numbers.high
    if looks := analysis.looks:
        weights = look_weights(looks, analysis.alpha)
        taken = [look for look in looks if look <= numbers.seeds]
        if not taken or weights[taken[-1]] <= 0:
            return False
        level = analysis.alpha * weights[taken[-1]]
        low, high = numbers.interval(numbers.noise, level)
    return -margin <= low and high <= margin


def _cost_hours(study: Measurements, child: str, parent: str) -> float:
    stages = study.stages
    shared = set(stages.loc[stages["variant"] == parent, "key"])
    own = stages[(stages["variant"] == child) & ~stages["key"].isin(shared)].drop_duplicates("key")
    return float(own["hours"].sum())
