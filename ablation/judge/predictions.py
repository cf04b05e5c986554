"""The chance that an edge is decided once it has more seeds: predictive power.

    predict(study, edges) -> {(child, parent): {look: chance}}       for the undecided edges, at each later look
    decided_at(found, later, ...) -> chance

Spiegelhalter, Freedman and Blackburn (1986, Controlled Clinical Trials 7, 8-17). Existing seeds stay in the mean, only
new ones are random. What is assumed (docs/statistics.md, "More seeds until decided"): normal seeds, effects of the
study's edges spread normally around 0, and for edges at a target no change of side.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isinf, nan, sqrt

import numpy as np
from scipy import special

from ablation.judge.edges import Edge, correct
from ablation.judge.measurements import Measurements
from ablation.judge.power import variance_ratios
from ablation.judge.scope import share_otherwise
from ablation.judge.sequential import look_weights
from ablation.judge.significance import Noise, critical_square, half_width

Chances = dict[tuple[str, str], dict[int, float]]  # by edge (child, parent) and number of seeds

UNKNOWN = 0.5  # with one seed, which says nothing about the seeds' noise
_QUANTILES = 40  # of what the true variance may be


@dataclass(frozen=True)
class Found:
    """The estimate from an edge's seeds so far."""

    centre: float
    noise: Noise  # of the mean over `seeds`
    seeds: int


@dataclass(frozen=True)
class Rule:
    """The rule of a look."""

    seeds: int
    level: float  # of better and worse
    margin: float  # nan where the look is of too few seeds to call anything equivalent
    interval_level: float  # of the interval that must lie inside the margin


def predict(study: Measurements, edges: Sequence[Edge]) -> Chances:
    """Chances of the undecided edges at the looks that they have not taken; an edge past the last look has none."""
    analysis = study.analysis
    weights = look_weights(analysis.looks)
    left = level_left(study, edges)
    spread = effect_variance([_found(edge) for edge in edges if edge.estimate is not None])
    chances: Chances = {}
    for edge in edges:
        if edge.verdict == "undecided":
            chances[edge.pair] = {
                look: decided_at(
                    _found(edge),
                    Rule(
                        look,
                        left * weight,
                        analysis.margin if share_otherwise(look, analysis.alpha) <= analysis.rare else nan,
                        2 * analysis.alpha * weight,
                    ),
                    spread,
                )
                for look, weight in weights.items()
                if look > edge.seeds
            }
    return chances


def decided_at(found: Found, rule: Rule, effect_variance: float) -> float:
    """Probability that the mean over `rule.seeds` seeds is significant, or its interval inside the margin.

    Integrated over what the true seed variance may be, its estimate times df / chi2_df. The new seeds are taken to show
    the spread that they have.
    """
    noise, added = found.noise, rule.seeds - found.seeds
    if not noise.seeds_known:
        return UNKNOWN
    df = noise.seed_df
    chances = []
    for ratio in (1 / variance_ratios(df, _QUANTILES)).tolist():
        seen = 1.0 if isinf(df) else (df + added * ratio) / (df + added)
        then = replace(noise, seed_variance=noise.seed_variance * seen * found.seeds / rule.seeds, seed_df=df + added)
        mean, sd = predicted_mean(found, noise.seed_variance * ratio, rule.seeds, effect_variance)
        significant = sqrt(critical_square(then, rule.level))
        inside = rule.margin - half_width(then, rule.interval_level)  # nan where nothing may be called equivalent
        chances.append(_either(mean, sd, inside, significant))
    return float(np.mean(chances))


def predicted_mean(found: Found, seed_variance: float, seeds: int, effect_variance: float) -> tuple[float, float]:
    """Mean and standard deviation of the mean over `seeds` seeds, given that over the first ones.

    Old and new seeds meet the same items, so the effect on these items is what repeats: it is spread as the effects
    are, and by the items. It is shrunk towards 0 by its share of seed noise.
    """
    kept = found.seeds / seeds
    repeats = effect_variance + found.noise.item_variance
    shrink = repeats / (repeats + seed_variance) if repeats + seed_variance > 0 else 1.0
    new = shrink * seed_variance + seed_variance * found.seeds / (seeds - found.seeds)
    return found.centre * (kept + (1 - kept) * shrink), (1 - kept) * sqrt(new)


def effect_variance(found: Sequence[Found]) -> float:
    """Variance of the study's true effects around 0: mean of effect^2 less its noise, at least 0."""
    known = [edge.centre**2 - edge.noise.total for edge in found if edge.noise.seeds_known]
    return max(float(np.mean(known)), 0.0) if known else 0.0


def level_left(study: Measurements, edges: Sequence[Edge]) -> float:
    """The level that the family leaves to an edge that is not significant yet: those that are have stepped down.

    Edges before their first look join the family at it. Per word, each word found leaves as much as the next one asks.
    """
    analysis = study.analysis
    left = [edge for edge in edges if not edge.p_adjusted <= analysis.alpha]
    tested = sum(not np.isnan(edge.p) for edge in left)
    joining = sum(edge.detail == "undecided" and bool(np.isnan(edge.p)) for edge in left)
    if analysis.error == "per_word":
        found = sum(edge.p_adjusted <= analysis.alpha for edge in edges)
        family = found + tested + joining
        return analysis.alpha * min(found + 1, family) / max(family, 1)
    if tested == 0:
        return analysis.alpha / max(joining, 1)
    return correct(study, left).level * tested / (tested + joining)


def _found(edge: Edge) -> Found:
    """The estimate from all its seeds, with the noise that a look at just these would use."""
    assert edge.estimate is not None
    return Found(edge.estimate.centre, edge.noise, edge.seeds)


def _either(mean: float, sd: float, inside: float, significant: float) -> float:
    """Probability that a normal number is at most `inside` from 0, or at least `significant`."""
    if sd == 0:
        return float(abs(mean) <= inside or (abs(mean) >= significant and mean != 0))
    if inside >= significant:
        return 1.0
    beyond = special.ndtr((mean - significant) / sd) + special.ndtr((-mean - significant) / sd)
    within = special.ndtr((inside - mean) / sd) - special.ndtr((-inside - mean) / sd) if inside >= 0 else 0.0
    return float(beyond + within)
