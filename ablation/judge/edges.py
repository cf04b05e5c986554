"""One word per edge of a lineage (parent -> child), with its evidence. Numbers that do not exist are NaN or None."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ablation.config.lineage import ancestors, compared
from ablation.config.logged import LOGGED
from ablation.config.study_schema import Analysis
from ablation.judge import no_effect
from ablation.judge.environments import differing
from ablation.judge.family import Family, Member, covariances
from ablation.judge.measurements import Measurements
from ablation.judge.moderation import SeedPrior, seed_prior
from ablation.judge.pairing import Reuse, Warned, paired_values, warnings
from ablation.judge.power import minimal_detectable_effect, seeds_needed
from ablation.judge.scope import DECIDED, share_otherwise, within_scope
from ablation.judge.sequential import look_weights, sequential_p
from ablation.judge.significance import Array, Noise, benjamini_hochberg, holm, sign_flip
from ablation.judge.statistics import Estimate, contrast, run_statistics
from ablation.store.analysis_history import seeds_added

# In the order of the page: what helped, what hurt, what made no difference, what is not known.
WORDS = ("better", "worse", "equivalent", "undecided", "confounded", "invalid", "not run")
NOT_COMPARED = ("invalid", "not run")  # words of edges that are not a comparison: something is wrong, or still to come
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


@dataclass
class Edge:
    """One comparison; `effect`, `low`, `high`, `mde` in units of the statistic, positive is an improvement."""

    study: str
    parent: str
    child: str
    verdict: str = "invalid"  # one of WORDS
    detail: str = "invalid"  # the word were it not confounded
    effect: float = _NAN
    low: float = _NAN  # interval at 1 - alpha for this edge alone; with looks, at the level of the last one taken
    high: float = _NAN
    joint_low: float = _NAN  # the same corrected for all edges of the study that could be tested
    joint_high: float = _NAN
    p: float = _NAN  # two-sided; over all looks where the study declares looks
    p_adjusted: float = _NAN  # over the study's edges
    p_sign_flip: float = _NAN  # over seeds, the items taken as fixed
    mde: float = _NAN  # at 80% power and the level that the family leaves
    seeds: int = 0
    items: int = 0
    seeds_needed: int | None = None  # to find the observed effect with 80% power
    variance: str = "own"  # of seeds: own, or moderated by the study's other variants
    prior_df: float = 0.0  # degrees of freedom that the others added
    cost_hours: float = 0.0  # device-hours of the child's stages that the parent does not share
    in_seeds: float = _NAN  # share of seeds, at least, of which a decided word is said: the rest may behave otherwise
    confounded: bool = False
    factors: tuple[str, ...] = ()
    root: str = ""  # the first of the child's ancestors, and the child against it: `ablation.judge.paths`
    root_effect: float = _NAN
    root_low: float = _NAN  # for all paths of the lineage at once
    root_high: float = _NAN
    why: str = ""  # why this verdict
    notes: tuple[str, ...] = ()  # what is known of changes without effect
    warnings: tuple[Warned, ...] = ()  # of runs on either side
    estimate: Estimate | None = field(default=None, repr=False)  # of all its seeds
    noise: Noise = field(default=Noise(_NAN, 0, _NAN), repr=False)  # of all its seeds; moderated as a look's
    paired: tuple[int, ...] = field(default=(), repr=False)  # its seeds, in the order in which they were added
    looks: tuple[Look, ...] = field(default=(), repr=False)  # taken so far, the last one last

    @property
    def reason(self) -> str:
        """Why this verdict, and what else is to be known of it, in one sentence."""
        return "; ".join(filter(None, (self.why, *self.notes, *map(str, self.warnings))))


@dataclass(frozen=True)
class Correction:
    """What the number of edges leaves: the level at which each may be tested on its own, and how that came about.

    With `error: per_word` it is that of one word more, and `joint` that of the words found, for their intervals
    (Benjamini and Yekutieli, 2005, JASA 100, 71-81); 0 where there are none.
    """

    name: str
    level: float
    joint: float


def judge_edges(study: Measurements, *, planning: bool = True, reuse: Reuse | None = None) -> list[Edge]:
    """Verdicts of one study's edges, in the order of its variants or as the analysis plan lists them.

    Without `planning` what no word depends on and what takes most of the time is not computed (smallest detectable
    effects, seeds needed, joint intervals, how far above alpha an adjusted p is): for those who read the words and the
    edges' own intervals only.
    """
    reuse = reuse or Reuse()
    prior = study_prior(study, reuse)
    edges = [measure(study, child, parent, prior, reuse) for child, parent in study_pairs(study)]
    correction = correct(study, edges, prior, planning=planning)
    for edge in edges:
        conclude(study, edge, correction, planning=planning)
    return edges


def conclude(study: Measurements, edge: Edge, correction: Correction, *, planning: bool) -> None:
    """Fill in the word of a measured edge whose `p_adjusted` is known, and what else is to be said of it."""
    if edge.estimate is not None:
        if planning:
            _plan_ahead(edge, edge.estimate, study, correction)
        _decide(edge, edge.estimate, study, correction, planning=planning)
    elsewhere = differing(study.environments, edge.child, edge.parent, edge.paired)
    edge.notes = (*_idle(study, edge), *elsewhere, *_added(study, edge), *(_IMPORTED if study.imported else ()))
    edge.warnings = warnings(study, (edge.child, edge.parent))


def study_pairs(study: Measurements) -> list[tuple[str, str]]:
    """The pairs (child, parent) that the analysis plan compares."""
    return compared(study.analysis.edges, {variant.name: variant.parent for variant in study.variants})


def study_prior(study: Measurements, reuse: Reuse | None = None) -> SeedPrior | None:
    """What the study's variants say of each other's noise; with looks, from the seeds of the first one, for good."""
    reuse = reuse or Reuse()
    if not reuse.prior:
        reuse.prior.append(None if study.analysis.variance == "own" else _seed_prior(study, reuse))
    return reuse.prior[0]


def _seed_prior(study: Measurements, reuse: Reuse) -> SeedPrior | None:
    first = study.analysis.looks[0] if study.analysis.looks else None
    gains: dict[str, dict[int, float]] = {}
    for variant in study.variants:
        values, seeds, _ = paired_values(study, [variant.name], reuse)
        if values:
            found = run_statistics(values, study.direction)[0].tolist()
            gains[variant.name] = dict(list(zip(seeds, found, strict=True))[:first])
    return seed_prior(gains)


def correct(
    study: Measurements, edges: Sequence[Edge], prior: SeedPrior | None, *, planning: bool = True
) -> Correction:
    """Fill in the adjusted p-values; return what the family leaves to each edge."""
    analysis = study.analysis
    tested = those_tested(edges)
    p = [edge.p for edge in tested]
    needed = planning or any(edge.p <= analysis.alpha for edge in tested)
    if len(tested) < 2:
        adjusted, correction = holm(p), Correction("one", analysis.alpha, analysis.alpha)
    elif analysis.error == "per_word":
        adjusted, share = benjamini_hochberg(p), analysis.alpha / len(tested)
        words = int((adjusted <= analysis.alpha).sum())
        correction = Correction("bh", share * min(words + 1, len(tested)), share * words)
    elif not needed or (found := family_covariances(study, tested, prior)) is None:
        adjusted, level = holm(p), analysis.alpha / len(tested)
        correction = Correction("holm", level, level)
    else:
        family = Family.of(*found, [edge.looks[-1].noise for edge in tested], look_shares(analysis))
        adjusted = family.adjusted(p, 1.0 if planning else analysis.alpha)
        level = family.level(analysis.alpha) if planning else _NAN
        correction = Correction("max-t", level, level)
    for edge, value in zip(tested, adjusted, strict=True):
        edge.p_adjusted = float(value)
    return correction


def those_tested(edges: Sequence[Edge]) -> list[Edge]:
    """The edges that could be tested."""
    return [edge for edge in edges if not np.isnan(edge.p)]


def family_covariances(
    study: Measurements, tested: Sequence[Edge], prior: SeedPrior | None
) -> tuple[Array, Array] | None:
    """Covariances of the tested edges' effects, by seeds and by items; None where the correction is Holm's."""
    if study.analysis.correction != "max-t" or len(tested) < 2:
        return None
    members = [
        Member(edge.child, edge.parent, edge.paired[: look.seeds], look.noise, look.estimate.item_draws)
        for edge in tested
        for look in edge.looks[-1:]
    ]
    return covariances(members, prior)


def look_shares(analysis: Analysis) -> list[float]:
    """Each look's share of alpha; one look without a plan of looks."""
    return list(look_weights(analysis.looks).values()) if analysis.looks else [1.0]


def _idle(study: Measurements, edge: Edge) -> tuple[str, ...]:
    """What is known of changes without effect; it does not change the verdict."""
    [variant] = [variant for variant in study.variants if variant.name == edge.child]
    planned = no_effect.planned(variant.changes) if variant.parent == edge.parent else ()
    return (*planned, *no_effect.trained(study.weights, edge.child, edge.parent))


def _added(study: Measurements, edge: Edge) -> tuple[str, ...]:
    """Which of its variants got seeds after results, without a plan of looks: a word by chance is then more likely."""
    added = seeds_added(study.history)
    of = [f"{n} had {added[n][0]} seeds and has {added[n][1]}" for n in (edge.child, edge.parent) if n in added]
    return (f"seeds were added after results without planned looks ({', '.join(of)})",) if of else ()


def _seen(edge: Edge, numbers: Estimate, analysis: Analysis) -> Look:
    """The last look that was taken; before the first one, all that there is, at the share of the first."""
    return edge.looks[-1] if edge.looks else Look(numbers.seeds, look_shares(analysis)[0], numbers, edge.noise, _NAN)


def _plan_ahead(edge: Edge, numbers: Estimate, study: Measurements, correction: Correction) -> None:
    seen, looks = _seen(edge, numbers, study.analysis), study.analysis.looks
    weights = look_weights(looks) if looks else None
    edge.mde = minimal_detectable_effect(seen.noise, correction.level * seen.weight)
    edge.seeds_needed = seeds_needed(numbers.centre, seen.noise, seen.seeds, correction.level, looks=weights)


def _decide(edge: Edge, numbers: Estimate, study: Measurements, correction: Correction, *, planning: bool) -> None:
    analysis = study.analysis
    if edge.detail not in NOT_COMPARED:
        found = edge.p_adjusted <= analysis.alpha or correction.name != "bh"
        if edge.looks and found and not np.isnan(edge.p + correction.joint):
            seen = edge.looks[-1]
            edge.joint_low, edge.joint_high = _around(edge, seen.estimate, seen.noise, correction.joint * seen.weight)
        edge.detail, edge.why, of = _word(edge, numbers, study, correction, planning=planning)
        edge.detail, edge.why = within_scope(edge.detail, edge.why, of, analysis)
        if edge.detail in DECIDED:
            edge.in_seeds = 1 - share_otherwise(of.seeds, analysis.alpha)
        if numbers.items_only and numbers.seeds > 1:
            edge.why += f"; {_these_items(numbers, analysis)}"
    edge.verdict = "confounded" if edge.confounded and edge.detail not in NOT_COMPARED else edge.detail


def _around(edge: Edge, numbers: Estimate, noise: Noise, level: float) -> tuple[float, float]:
    """The interval at a level; it always holds the effect that is shown."""
    low, high = numbers.interval(noise, level)
    return min(low, edge.effect), max(high, edge.effect)


def measure(study: Measurements, child: str, parent: str, prior: SeedPrior | None, reuse: Reuse | None = None) -> Edge:
    """One comparison without the family: effect, its looks, and the p over them."""
    factors, reuse = _factors(study, child, parent), reuse or Reuse()
    edge = Edge(study.name, parent, child, factors=factors, confounded=len(factors) > 1)
    values, seeds, problem = paired_values(study, [child, parent], reuse)
    edge.cost_hours = _cost_hours(study, child, parent, reuse)
    edge.why = problem.text
    edge.verdict = edge.detail = ("not run" if problem.waiting else "invalid") if problem else ""
    if not values:
        return edge
    alpha = study.analysis.alpha
    clusters = reuse.item_clusters(study, child, seeds[0])

    def estimate(arrays: Sequence[Array]) -> Estimate:
        names = [(name, *seeds[: arrays[0].shape[1]]) for name in (child, parent)]
        found = contrast(
            arrays, (1, -1), study.direction, confidence=1 - alpha, clusters=clusters, names=names, known=reuse.draws
        )
        return found.with_nothing_unseen() if found.noise.total == 0 and same else found

    same = no_effect.same_measured(study.weights, child, parent, seeds)
    numbers = estimate(values)
    edge.estimate, edge.seeds, edge.items, edge.paired = numbers, numbers.seeds, numbers.items, tuple(seeds)
    edge.effect, edge.noise = numbers.effect, _moderated(numbers, (child, parent), prior)
    if numbers.seeds > 1:
        edge.p_sign_flip = sign_flip(numbers.per_seed)[0]
    shares = look_weights(study.analysis.looks) if study.analysis.looks else {numbers.seeds: 1.0}
    for count, share in shares.items():
        if count > numbers.seeds:
            break
        then = numbers if count == numbers.seeds else estimate([subset[:, :count] for subset in values])
        noise = _moderated(then, (child, parent), prior)
        edge.looks += (Look(count, share, then, noise, then.p_value(noise)),)
    shown = _seen(edge, numbers, study.analysis)
    edge.low, edge.high = _around(edge, shown.estimate, shown.noise, alpha * shown.weight)
    edge.prior_df = max(shown.noise.seed_df - shown.estimate.noise.seed_df, 0.0)
    edge.variance = "moderated" if edge.prior_df > 0 else "own"
    if not problem:
        edge.p = sequential_p({look.seeds: look.p for look in edge.looks}, shares)
    return edge


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
    edge: Edge, numbers: Estimate, study: Measurements, correction: Correction, *, planning: bool
) -> tuple[str, str, Estimate]:
    """The word, why, and the numbers that it rests on: those of the look that decided."""
    analysis = study.analysis
    if numbers.seeds == 1:
        return "undecided", f"one seed: seed noise is unknown; {_on_items_alone(numbers, analysis)}", numbers
    decided = _smallest_p(edge) or _seen(edge, numbers, analysis)
    sign = "better" if decided.estimate.centre > 0 else "worse"
    significant = edge.p_adjusted <= analysis.alpha
    shown = f"p = {edge.p_adjusted:.2g}{CORRECTIONS[correction.name]}"
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
    """What would decide the edge, were the effect what it seems."""
    if edge.seeds_needed:
        return f"{'a look at' if looks else 'about'} {edge.seeds_needed} seeds"
    return f"more than the {looks[-1]} seeds of the last look" if looks else "more items, not only more seeds,"


def _these_items(numbers: Estimate, analysis: Analysis) -> str:
    if analysis.protocol == LOGGED:
        return "of final metrics, without items: the noise of their evaluation is not in the interval"
    clusters = "1 cluster" if numbers.clusters == 1 else f"{numbers.clusters} clusters"
    return f"items of {clusters} are too few to stand for others: this is about these items only"


def _smallest_p(edge: Edge) -> Look | None:
    """The look whose p, for its share of alpha, is the smallest: it decides between better and worse."""
    known = [look for look in edge.looks if not np.isnan(look.p)]
    return min(known, key=lambda look: look.p / look.weight, default=None)


def _equivalent_at(edge: Edge, analysis: Analysis) -> Look | None:
    """The first look whose interval lies inside the margin; it stays decided.

    A look of so few seeds that nothing could be called equivalent decides nothing; it is the last resort here, so that
    the reason can say so.
    """
    within = [
        look for look in edge.looks if look.estimate.within(analysis.margin, look.noise, analysis.alpha * look.weight)
    ]
    enough = [look for look in within if share_otherwise(look.seeds, analysis.alpha) <= analysis.rare]
    return next(iter(enough or within[-1:]), None)


def _cost_hours(study: Measurements, child: str, parent: str, reuse: Reuse) -> float:
    shared = reuse.stage_hours(study, parent)
    own = [hours for key, hours in reuse.stage_hours(study, child).items() if key not in shared]
    return float(np.array(own).sum()) if own else 0.0
