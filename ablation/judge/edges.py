"""One verdict per edge of a lineage (parent -> child), with its evidence. Missing numbers are NaN or None.

measure(study, child, parent) -> Measured            effect, noise, looks and p of one comparison
correct(study, [Measured]) -> Correction             the level that the family of all edges leaves to each
conclude(study, Measured, Correction) -> Edge        the verdict, and why
judge_edges(study) -> [Edge]                         all three, for every edge of the analysis plan
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ablation.config.lineage import ancestors, compared
from ablation.config.study_schema import Analysis
from ablation.contract.rows import LOGGED
from ablation.judge import no_effect
from ablation.judge.environments import differing
from ablation.judge.factorial import offer
from ablation.judge.family import Family, Member, covariances
from ablation.judge.measurements import Measurements, Problem, Warned, paired_arms, warnings
from ablation.judge.moderation import SeedPrior
from ablation.judge.power import minimal_detectable_effect, seeds_needed
from ablation.judge.scope import DECIDED, share_otherwise, within_scope
from ablation.judge.sequential import look_weights, sequential_p
from ablation.judge.significance import Array, Noise, benjamini_hochberg, holm, sign_flip
from ablation.judge.statistics import Estimate, contrast_arms
from ablation.store.analysis_history import seeds_added

# In the order of the page: what helped, what hurt, what made no difference, what is not known.
WORDS = ("better", "worse", "equivalent", "undecided", "confounded", "invalid", "not run")
NOT_COMPARED = ("invalid", "not run")  # edges without a comparison: something is wrong, or still to come
_NAN = float("nan")
_IMPORTED = ("imported runs, without code fingerprint",)
CORRECTIONS = {
    "max-t": " after the max-t correction",
    "holm": " after Holm's correction",
    "bh": " after Benjamini and Hochberg's correction",
    "one": "",
    "none": ", not corrected for other comparisons",
}


@dataclass(frozen=True)
class Look:
    """An edge with so many of its seeds, and the share of alpha that a look at them may spend."""

    seeds: int
    weight: float
    estimate: Estimate
    noise: Noise  # moderated where the study's other variants say something of it
    p: float  # two-sided, at this look alone


@dataclass(frozen=True)
class Measured:
    """One comparison, without the family; numbers in units of the statistic, positive is an improvement."""

    study: str
    parent: str
    child: str
    problem: Problem = field(default=Problem())  # what keeps runs from being paired
    factors: tuple[str, ...] = ()
    cost_hours: float = 0.0  # device-hours of the child's stages that the parent does not share
    paired: tuple[int, ...] = field(default=(), repr=False)  # its seeds, in the order in which they were added
    estimate: Estimate | None = field(default=None, repr=False)  # of all its seeds
    noise: Noise = field(default=Noise(_NAN, 0, _NAN), repr=False)  # of all its seeds; moderated as a look's
    looks: tuple[Look, ...] = field(default=(), repr=False)  # taken so far, the last one last
    seen: Look | None = field(default=None, repr=False)  # the last of them, or before it all that there is
    low: float = _NAN  # interval at 1 - alpha for this edge alone; with looks, at the level of the last one taken
    high: float = _NAN
    p: float = _NAN  # two-sided; over all looks where the study declares looks

    @property
    def pair(self) -> tuple[str, str]:
        """Child and parent."""
        return self.child, self.parent

    @property
    def confounded(self) -> bool:
        """Whether more than one factor changed."""
        return len(self.factors) > 1

    @property
    def effect(self) -> float:
        """Mean over seeds; NaN where no runs can be paired."""
        return self.estimate.effect if self.estimate else _NAN

    @property
    def seeds(self) -> int:
        """How many were paired."""
        return len(self.paired)

    @property
    def items(self) -> int:
        """How many were paired, over all subsets."""
        return self.estimate.items if self.estimate else 0

    @property
    def p_sign_flip(self) -> float:
        """Over seeds, the items taken as fixed."""
        return sign_flip(self.estimate.per_seed)[0] if self.estimate and self.seeds > 1 else _NAN

    @property
    def prior_df(self) -> float:
        """Degrees of freedom that the study's other variants added to the variance of seeds."""
        return max(self.seen.noise.seed_df - self.seen.estimate.noise.seed_df, 0.0) if self.seen else 0.0

    @property
    def variance(self) -> str:
        """Of seeds: own, or moderated by the study's other variants."""
        return "moderated" if self.prior_df > 0 else "own"


@dataclass(frozen=True)
class Correction:
    """The correction for the number of edges: the level at which each may be tested on its own, and its derivation.

    With `error: per_word` it is the level for one further verdict, and `joint` the level for the verdicts found, for
    their intervals (Benjamini and Yekutieli, 2005, JASA 100, 71-81); 0 if there are none.
    """

    name: str
    level: float
    joint: float
    adjusted: Mapping[tuple[str, str], float]  # p-values of the tested edges, by child and parent


@dataclass(frozen=True)
class Edge(Measured):
    """A comparison with its verdict."""

    p_adjusted: float = _NAN  # over the study's edges
    detail: str = "invalid"  # one of WORDS: the verdict if the edge were not confounded
    why: str = ""
    in_seeds: float = _NAN  # least share of seeds that a decided verdict covers: the rest may behave differently
    joint_low: float = _NAN  # interval corrected for all edges of the study that could be tested
    joint_high: float = _NAN
    mde: float = _NAN  # at 80% power and the level that the family leaves
    seeds_needed: int | None = None  # to find the observed effect with 80% power
    notes: tuple[str, ...] = ()  # what is known of changes without effect
    warnings: tuple[Warned, ...] = ()  # of runs on either side
    root: str = ""  # the first of the child's ancestors, and the child against it: `ablation.judge.paths`
    root_effect: float = _NAN
    root_low: float = _NAN  # for all paths of the lineage at once
    root_high: float = _NAN

    @property
    def verdict(self) -> str:
        """One of WORDS."""
        return "confounded" if self.confounded and self.detail not in NOT_COMPARED else self.detail

    @property
    def reason(self) -> str:
        """The reason for the verdict, with further remarks, in one sentence."""
        return "; ".join(filter(None, (self.why, *self.notes, *map(str, self.warnings))))


def judge_edges(study: Measurements, *, planning: bool = True) -> list[Edge]:
    """Verdicts of one study's edges, in the order of its variants or as the analysis plan lists them.

    Without `planning`, slow numbers on which no verdict depends are not computed (smallest detectable effects, seeds
    needed, joint intervals, how far above alpha an adjusted p is): for callers that need only the verdicts and the
    edges' own intervals.
    """
    edges = [measure(study, child, parent) for child, parent in study_pairs(study)]
    correction = correct(study, edges, planning=planning)
    return [conclude(study, edge, correction, planning=planning) for edge in edges]


def conclude(study: Measurements, measured: Measured, correction: Correction, *, planning: bool) -> Edge:
    """Give a measured edge its verdict and further remarks."""
    problem = measured.problem
    edge = Edge(
        **vars(measured),
        p_adjusted=correction.adjusted.get(measured.pair, _NAN),
        detail="not run" if problem.waiting else "invalid" if problem else "",
        why=problem.text,
        notes=(
            *_idle(study, measured),
            *differing(study.environments, measured.child, measured.parent, measured.paired),
            *_added(study, measured),
            *(_IMPORTED if study.imported else ()),
            *_told_apart(study, measured),
        ),
        warnings=warnings(study, measured.pair),
    )
    if measured.estimate is None or measured.seen is None:
        return edge
    if planning:
        edge = replace(edge, **_plan_ahead(measured.seen, measured.estimate, study.analysis, correction.level))
    more = {} if problem else _decide(edge, measured.seen, measured.estimate, study, correction, planning=planning)
    return replace(edge, **more)


def study_pairs(study: Measurements) -> list[tuple[str, str]]:
    """The pairs (child, parent) that the analysis plan compares."""
    return compared(study.analysis.edges, {variant.name: variant.parent for variant in study.variants})


def correct(study: Measurements, edges: Sequence[Measured], *, planning: bool = True) -> Correction:
    """Adjust the p-values of a study's edges, and return the level that the family leaves to each."""
    analysis, tested = study.analysis, those_tested(edges)
    p = [edge.p for edge in tested]
    needed = planning or any(edge.p <= analysis.alpha for edge in tested)
    name, level, joint = "holm", analysis.alpha / max(len(tested), 1), None
    if len(tested) < 2:
        adjusted, name, level = holm(p), "one", analysis.alpha
    elif analysis.error == "per_word":
        adjusted, name, share = benjamini_hochberg(p), "bh", level
        words = int((adjusted <= analysis.alpha).sum())
        level, joint = share * min(words + 1, len(tested)), share * words
    elif not needed or (found := family_covariances(study, tested)) is None:
        adjusted = holm(p)
    else:
        family = Family.of(*found, [edge.looks[-1].noise for edge in tested], look_shares(analysis))
        adjusted, name = family.adjusted(p, 1.0 if planning else analysis.alpha), "max-t"
        level = family.level(analysis.alpha) if planning else _NAN
    by_pair = dict(zip((edge.pair for edge in tested), adjusted.tolist(), strict=True))
    return Correction(name, level, level if joint is None else joint, by_pair)


def those_tested(edges: Sequence[Measured]) -> list[Measured]:
    """The edges that could be tested."""
    return [edge for edge in edges if not np.isnan(edge.p)]


def family_covariances(study: Measurements, tested: Sequence[Measured]) -> tuple[Array, Array] | None:
    """Covariances of the tested edges' effects, by seeds and by items; None if the correction is Holm's."""
    if study.analysis.correction != "max-t" or len(tested) < 2:
        return None
    members = [
        Member(edge.child, edge.parent, edge.paired[: look.seeds], look.noise, look.estimate.item_draws)
        for edge in tested
        for look in edge.looks[-1:]
    ]
    return covariances(members, study.prior)


def look_shares(analysis: Analysis) -> list[float]:
    """Each look's share of alpha; one look without a plan of looks."""
    return list(look_weights(analysis.looks).values()) if analysis.looks else [1.0]


def _idle(study: Measurements, edge: Measured) -> tuple[str, ...]:
    """Notes on changes without effect; they do not change the verdict."""
    [variant] = [variant for variant in study.variants if variant.name == edge.child]
    planned = no_effect.planned(variant.changes) if variant.parent == edge.parent else ()
    return (*planned, *no_effect.trained(study.weights, edge.child, edge.parent))


def _told_apart(study: Measurements, edge: Measured) -> tuple[str, ...]:
    """A note on what would tell the factors of a confounded edge apart; imported runs are made elsewhere."""
    if not edge.confounded or study.imported or not edge.estimate:
        return ()
    return (offer(study.name, edge.parent, edge.child, len(edge.factors), edge.cost_hours),)


def _added(study: Measurements, edge: Measured) -> tuple[str, ...]:
    """Notes on variants that got seeds after results without planned looks: chance verdicts are then more likely."""
    added = seeds_added(study.history)
    of = [f"{n} had {added[n][0]} seeds and has {added[n][1]}" for n in (edge.child, edge.parent) if n in added]
    return (f"seeds were added after results without planned looks ({', '.join(of)})",) if of else ()


def _plan_ahead(seen: Look, numbers: Estimate, analysis: Analysis, level: float) -> dict[str, Any]:
    weights = look_weights(analysis.looks) if analysis.looks else None
    return {
        "mde": minimal_detectable_effect(seen.noise, level * seen.weight),
        "seeds_needed": seeds_needed(numbers.centre, seen.noise, seen.seeds, level, looks=weights),
    }


def _decide(
    edge: Edge, seen: Look, numbers: Estimate, study: Measurements, correction: Correction, *, planning: bool
) -> dict[str, Any]:
    analysis, found = study.analysis, dict[str, Any]()
    shown = edge.p_adjusted <= analysis.alpha or correction.name != "bh"
    if edge.looks and shown and not np.isnan(edge.p + correction.joint):
        low, high = _around(numbers.effect, seen.estimate, seen.noise, correction.joint * seen.weight)
        found = {"joint_low": low, "joint_high": high}
    detail, why, of = _word(edge, seen, numbers, study, correction.name, planning=planning)
    detail, why = within_scope(detail, why, of, analysis)
    if detail in DECIDED:
        found["in_seeds"] = 1 - share_otherwise(of.seeds, analysis.alpha)
    if numbers.items_only and numbers.seeds > 1:
        why += f"; {_these_items(numbers, analysis)}"
    return found | {"detail": detail, "why": why}


def _around(effect: float, numbers: Estimate, noise: Noise, level: float) -> tuple[float, float]:
    """The interval at a level; it always holds the effect that is shown."""
    low, high = numbers.interval(noise, level)
    return min(low, effect), max(high, effect)


def measure(study: Measurements, child: str, parent: str) -> Measured:
    """One comparison without the family: effect, its looks, and the p over them."""
    arms, seeds, problem = paired_arms(study, [child, parent])
    measured = Measured(
        study.name,
        parent,
        child,
        problem=problem,
        factors=_factors(study, child, parent),
        cost_hours=_cost_hours(study, child, parent),
    )
    if not arms:
        return measured
    analysis = study.analysis
    same = no_effect.same_measured(study.weights, child, parent, seeds)

    def estimate(count: int) -> tuple[Estimate, Noise]:
        of = [study.arm(name, seeds[:count], arms[0].clusters) for name in (child, parent)]
        found = contrast_arms(of, (1, -1), 1 - analysis.alpha)
        found = found.with_nothing_unseen() if found.noise.total == 0 and same else found
        return found, _moderated(found, (child, parent), study.prior)

    numbers, noise = estimate(len(seeds))
    shares = look_weights(analysis.looks) if analysis.looks else {numbers.seeds: 1.0}
    looks: list[Look] = []
    for count, share in shares.items():
        if count <= numbers.seeds:
            then, of_then = (numbers, noise) if count == numbers.seeds else estimate(count)
            looks.append(Look(count, share, then, of_then, then.p_value(of_then)))
    seen = looks[-1] if looks else Look(numbers.seeds, look_shares(analysis)[0], numbers, noise, _NAN)
    low, high = _around(numbers.effect, seen.estimate, seen.noise, analysis.alpha * seen.weight)
    return replace(
        measured,
        paired=tuple(seeds),
        estimate=numbers,
        noise=noise,
        looks=tuple(looks),
        seen=seen,
        low=low,
        high=high,
        p=_NAN if problem else sequential_p({look.seeds: look.p for look in looks}, shares),
    )


def _moderated(numbers: Estimate, variants: Sequence[str], prior: SeedPrior | None) -> Noise:
    if prior is None or numbers.seeds < 2:
        return numbers.noise
    plain = float(np.var(numbers.per_seed, ddof=1))
    return prior.moderated(
        numbers.noise, variants, numbers.seeds, max(numbers.noise.seed_variance * numbers.seeds - plain, 0.0)
    )


def _factors(study: Measurements, child: str, parent: str) -> tuple[str, ...]:
    """The factors that differ on the way from one to the other, through their last common ancestor."""
    parents = {variant.name: variant.parent for variant in study.variants}
    own = {variant.name: variant.factors for variant in study.variants}
    ours, theirs = ([name, *ancestors(name, parents)] for name in (child, parent))
    steps = [name for name in ours if name not in theirs] + [name for name in theirs if name not in ours]
    return own[steps[0]] if len(steps) == 1 else tuple(sorted({factor for name in steps for factor in own[name]}))


def _word(
    edge: Edge, seen: Look, numbers: Estimate, study: Measurements, correction: str, *, planning: bool
) -> tuple[str, str, Estimate]:
    """The verdict, the reason, and the numbers behind it, from the look that decided."""
    analysis = study.analysis
    if numbers.seeds == 1:
        return "undecided", f"one seed: seed noise is unknown; {_on_items_alone(numbers, analysis)}", numbers
    decided = _smallest_p(edge) or seen
    sign = "better" if decided.estimate.centre > 0 else "worse"
    significant = edge.p_adjusted <= analysis.alpha
    shown = f"p = {edge.p_adjusted:.2g}{CORRECTIONS[correction]}"
    same = numbers.effect == 0 and numbers.noise.total == 0

    def at(look: Look) -> str:
        return f" at the look at {look.seeds} seeds" if analysis.looks else ""

    if (look := _equivalent_at(edge, analysis)) is not None:
        tail = f"; {sign} by less than the margin, {shown}" if significant else ""
        inside = f"the {1 - 2 * analysis.alpha:.0%} interval lies within ±{analysis.margin:g}{at(look)}{tail}"
        nothing = "no item differs, in any seed: the change had no effect on these runs"
        if no_effect.same_measured(study.weights, edge.child, edge.parent, edge.paired):
            nothing = "the models that were measured are equal in every seed, so no item can differ"
        return "equivalent", nothing if same else inside, look.estimate
    if significant:
        return sign, f"{shown}{at(decided)}", decided.estimate
    if same:
        unseen = "no item differs, in any seed; a difference too rare for so few items would not have been seen"
        return "undecided", unseen, numbers
    if np.isnan(edge.p):
        shown = f"before the first look, at {analysis.looks[0]} seeds"
    more = f"; {_more(edge, analysis.looks)} would be needed for an effect this large" if planning else ""
    return "undecided", f"{shown}{more}", numbers


def _on_items_alone(numbers: Estimate, analysis: Analysis) -> str:
    if numbers.items_only:
        return _these_items(numbers, analysis)
    tendency = "no difference" if numbers.item_p > analysis.alpha else ("better" if numbers.effect > 0 else "worse")
    return f"item noise alone would say {tendency} (p = {numbers.item_p:.2g})"


def _more(edge: Edge, looks: Sequence[int]) -> str:
    """What would decide the edge if the true effect were the observed one."""
    if edge.seeds_needed:
        return f"{'a look at' if looks else 'about'} {edge.seeds_needed} seeds"
    return f"more than the {looks[-1]} seeds of the last look" if looks else "more items, not only more seeds,"


def _these_items(numbers: Estimate, analysis: Analysis) -> str:
    if analysis.protocol == LOGGED:
        return "of final metrics, without items: the noise of their evaluation is not in the interval"
    clusters = "1 cluster" if numbers.clusters == 1 else f"{numbers.clusters} clusters"
    return f"items of {clusters} are too few to stand for others: this is about these items only"


def _smallest_p(edge: Edge) -> Look | None:
    """The look with the smallest p relative to its share of alpha: it decides between better and worse."""
    known = [look for look in edge.looks if not np.isnan(look.p)]
    return min(known, key=lambda look: look.p / look.weight, default=None)


def _equivalent_at(edge: Edge, analysis: Analysis) -> Look | None:
    """The first look whose interval lies inside the margin; it stays decided.

    A look at too few seeds to call anything equivalent decides nothing; it is the last resort here, so that the reason
    can say so.
    """
    within = [
        look for look in edge.looks if look.estimate.within(analysis.margin, look.noise, analysis.alpha * look.weight)
    ]
    enough = [look for look in within if share_otherwise(look.seeds, analysis.alpha) <= analysis.rare]
    return next(iter(enough or within[-1:]), None)


def _cost_hours(study: Measurements, child: str, parent: str) -> float:
    shared = study.stage_hours.get(parent, {})
    own = [hours for key, hours in study.stage_hours.get(child, {}).items() if key not in shared]
    return float(np.array(own).sum()) if own else 0.0
