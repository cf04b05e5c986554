"""Chooses the comparisons that get more seeds: those most likely to be decided per device-hour, within a budget.

The chance is predictive power (Spiegelhalter, Freedman and Blackburn, 1986, Controlled Clinical Trials 7, 8-17):
existing seeds stay in the mean, and only new ones are random. It assumes that seeds are normal, that the effects of the
study's comparisons are normal around 0, and that no mean crosses a target.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isinf, nan, sqrt

import numpy as np
import pandas as pd
from scipy import special

from ablation.contract.display import aligned
from ablation.contract.numbers import alone, duration, percent
from ablation.judge.comparisons import Comparison
from ablation.judge.correct import Correction
from ablation.judge.measurements import Measurements
from ablation.judge.power import variance_ratios
from ablation.judge.significance import Noise, critical_square, half_width, interim_weights, max_undetected_share

Chances = dict[tuple[str, str], dict[int, float]]  # by comparison (child, parent) and number of seeds

UNKNOWN = 0.5  # with one seed, which says nothing about the seeds' noise
_QUANTILES = 40  # of what the true variance may be


@dataclass(frozen=True)
class Observed:
    """A comparison's estimate from its seeds so far."""

    centre: float
    noise: Noise  # of the mean over `seeds`
    seeds: int
    unseen_share: float = 1.0  # the share of what may have gone unseen that better and worse allow for


@dataclass(frozen=True)
class Rule:
    """The levels at which an interim analysis decides a comparison."""

    seeds: int
    level: float  # of better and worse; 0 if no p can be that small
    margin: float  # NaN if the seeds are too few for the verdict equivalent
    interval_level: float  # of the interval that must lie inside the margin


def predict(study: Measurements, comparisons: Sequence[Comparison]) -> Chances:
    """Return each undecided comparison's chance of a decision at each of its remaining interim analyses."""
    analysis = study.analysis
    weights = interim_weights(analysis.interim_analyses)
    left = level_left(study, comparisons)
    between_effects = effect_variance(
        [_observed(comparison) for comparison in comparisons if comparison.estimate is not None]
    )
    chances: Chances = {}
    for comparison in comparisons:
        if comparison.verdict == "undecided":
            chances[comparison.pair] = {
                interim: decided_at(
                    _observed(comparison),
                    Rule(
                        interim,
                        left * weight if comparison.estimate and comparison.estimate.least_p <= left * weight else 0.0,
                        (analysis.margin if max_undetected_share(interim, analysis.alpha) <= analysis.rare else None)
                        or nan,
                        2 * analysis.alpha * weight,
                    ),
                    between_effects,
                )
                for interim, weight in weights.items()
                if interim > comparison.seeds
            }
    return chances


def decided_at(observed: Observed, rule: Rule, effect_variance: float) -> float:
    """Return the chance that the mean over `rule.seeds` seeds is significant, or has an interval inside the margin.

    It is averaged over possible true seed variances, the estimate times df / chi2_df; the new seeds are assumed to show
    this variance.
    """
    noise, added = observed.noise, rule.seeds - observed.seeds
    if not noise.seeds_known:
        return UNKNOWN
    df = noise.seed_df
    chances = []
    for ratio in (1 / variance_ratios(df, _QUANTILES)).tolist():
        seen = 1.0 if isinf(df) else (df + added * ratio) / (df + added)
        then = noise.after(rule.seeds, observed.seeds)
        groups = tuple(replace(group, variance=group.variance * seen) for group in then.groups)
        then = replace(then, seed_variance=then.seed_variance * seen, groups=groups)
        mean, sd = predicted_mean(observed, noise.seed_variance * ratio, rule.seeds, effect_variance)
        for_verdict = replace(then, unseen=observed.unseen_share * then.unseen)
        significant = sqrt(critical_square(for_verdict, rule.level)) if rule.level > 0 else inf
        inside = rule.margin - half_width(then, rule.interval_level)  # nan where nothing may be called equivalent
        chances.append(_either(mean, sd, inside, significant))
    return float(np.mean(chances))


def predicted_mean(observed: Observed, seed_variance: float, seeds: int, effect_variance: float) -> tuple[float, float]:
    """Return the mean and standard deviation of the mean over `seeds` seeds, given the mean over the seeds so far.

    Old and new seeds are evaluated on the same items, so the effect on these items repeats: its variance is that of the
    study's effects plus that of the items. The observed effect is shrunk towards 0 by its share of seed noise.
    """
    kept = observed.seeds / seeds
    repeats = effect_variance + observed.noise.item_variance
    shrink = repeats / (repeats + seed_variance) if repeats + seed_variance > 0 else 1.0
    new = shrink * seed_variance + seed_variance * observed.seeds / (seeds - observed.seeds)
    return observed.centre * (kept + (1 - kept) * shrink), (1 - kept) * sqrt(new)


def effect_variance(observed: Sequence[Observed]) -> float:
    """Return the variance of the study's true effects around 0: the mean of `effect**2 - noise`, but at least 0."""
    squares = [comparison.centre**2 - comparison.noise.total for comparison in observed if comparison.noise.seeds_known]
    return max(float(np.mean(squares)), 0.0) if squares else 0.0


def level_left(study: Measurements, comparisons: Sequence[Comparison]) -> float:
    """Return the level that the correction leaves to a comparison that is not significant yet.

    Comparisons that have not reached their first interim analysis count as members of the family. With `error: fdr`,
    each significant comparison raises the level of the next one.
    """
    analysis = study.analysis
    left = [comparison for comparison in comparisons if not comparison.p_adjusted <= analysis.alpha]
    tested = sum(not np.isnan(comparison.p) for comparison in left)
    joining = sum(comparison.detail == "undecided" and bool(np.isnan(comparison.p)) for comparison in left)
    if analysis.error == "fdr":
        shown = sum(comparison.p_adjusted <= analysis.alpha for comparison in comparisons)
        family = shown + tested + joining
        return analysis.alpha * min(shown + 1, family) / max(family, 1)
    if tested == 0:
        return analysis.alpha / max(joining, 1)
    return Correction.of(study, left).level * tested / (tested + joining)


def _observed(comparison: Comparison) -> Observed:
    """Return the estimate from all seeds of a comparison, with the noise of an interim analysis at these seeds."""
    assert comparison.estimate is not None
    return Observed(comparison.estimate.centre, comparison.noise, comparison.seeds, comparison.estimate.unseen_share)


def _either(mean: float, sd: float, inside: float, significant: float) -> float:
    """Return the chance that the absolute value of a normal variable is at most `inside`, or at least `significant`."""
    if sd == 0:
        return float(abs(mean) <= inside or (abs(mean) >= significant and mean != 0))
    if inside >= significant:
        return 1.0
    beyond = special.ndtr((mean - significant) / sd) + special.ndtr((-mean - significant) / sd)
    within = special.ndtr((inside - mean) / sd) - special.ndtr((-inside - mean) / sd) if inside >= 0 else 0.0
    return float(beyond + within)


LEAST_CHANCE = 0.01  # more seeds are not offered if the chance is smaller at every interim analysis

Unit = str  # a stage that each seed runs, for one variant or for several


@dataclass(frozen=True)
class Prices:
    """The device-hours per seed of each unit, and the units of each variant; a unit is a stage that each seed runs."""

    hours: Mapping[Unit, float]
    units: Mapping[str, frozenset[Unit]]

    @staticmethod
    def from_stages(stages: pd.DataFrame) -> "Prices":
        """Return the prices from rows (variant, stage, key, hours) of the seeded stages, in the order of the plan.

        Variants that share a stage in the first seed share it in every seed. A stage's price is its mean over the seeds
        in which it ran.
        """
        first = stages.drop_duplicates(["variant", "stage"])[["variant", "stage", "key"]]
        named = stages.merge(first.rename(columns={"key": "unit"}), on=["variant", "stage"])
        ran = named[named["hours"] > 0].drop_duplicates("key")
        hours = ran.groupby("unit", sort=False)["hours"].mean().to_dict()
        return Prices(hours, first.groupby("variant", sort=False)["key"].agg(frozenset).to_dict())

    def paid(self, counts: Mapping[str, int]) -> dict[Unit, int]:
        """Return {unit: number of seeds already paid for} if the variants have `counts` seeds."""
        paid: dict[Unit, int] = {}
        for variant, units in self.units.items():
            for unit in units:
                paid[unit] = max(paid.get(unit, 0), counts.get(variant, 0))
        return paid

    def missing(self, variants: Iterable[str], seeds: int, paid: Mapping[Unit, int]) -> float:
        """Return the device-hours needed to bring these variants to `seeds` seeds."""
        return sum(max(seeds - paid[unit], 0) * self.hours.get(unit, 0.0) for unit in self.units_of(variants))

    def units_of(self, variants: Iterable[str]) -> list[Unit]:
        """Return the units of some variants, each once."""
        return sorted({unit for variant in variants for unit in self.units.get(variant, ())})


@dataclass(frozen=True)
class Offer:
    """More seeds for one comparison, up to an interim analysis, with their cost and the chance of a decision then."""

    child: str
    parent: str
    seeds: int  # so far
    interim: int  # the interim analysis that decides most per device-hour
    next_interim: int  # the first interim analysis on the way to it
    chance: float
    hours: float
    chosen: bool = False
    why_not: str = ""

    @property
    def per_hour(self) -> float:
        """Chance that the comparison is decided, divided by the device-hours that the offer costs."""
        return self.chance / self.hours if self.hours > 0 else (inf if self.chance > 0 else 0.0)


def choose(
    chances: Chances, taken: Mapping[tuple[str, str], int], counts: Mapping[str, int], prices: Prices, hours: float
) -> list[Offer]:
    """Return the offers of all comparisons, the chosen ones first; the chosen ones cost at most `hours` together.

    The choice is greedy: each step chooses the comparison and interim analysis that decide most per device-hour. Stages
    that chosen comparisons already pay for are free.

    Args:
        chances: of the interim analyses still to come.
        taken: seeds of each comparison.
        counts: seeds of each variant.
        prices: of more seeds.
        hours: the budget in device-hours.
    """
    paid, left = prices.paid(counts), hours
    chosen: list[Offer] = []
    waiting = dict(chances)

    def offers(comparison: tuple[str, str]) -> list[Offer]:
        """Return a comparison's offers, one for each remaining interim analysis, with the cost that is still to pay."""
        first = min(waiting[comparison], default=0)
        return [
            Offer(*comparison, taken[comparison], interim, first, chance, prices.missing(comparison, interim, paid))
            for interim, chance in waiting[comparison].items()
        ]

    while True:
        every = [offer for comparison in waiting for offer in offers(comparison)]
        possible = [offer for offer in every if offer.chance >= LEAST_CHANCE and offer.hours <= left]
        if not possible:
            break
        best = max(possible, key=_worth)
        chosen.append(replace(best, chosen=True))
        left -= best.hours
        del waiting[best.child, best.parent]
        for unit in prices.units_of((best.child, best.parent)):
            paid[unit] = max(paid[unit], best.interim)
    left_out = []
    for comparison in waiting:
        open_offers, seeds = offers(comparison), taken[comparison]
        if likely := [offer for offer in open_offers if offer.chance >= LEAST_CHANCE]:
            left_out.append(replace(max(likely, key=_worth), why_not="beyond the budget"))
        elif open_offers:
            most = max(open_offers, key=lambda offer: (offer.chance, -offer.interim))
            left_out.append(replace(most, why_not="more seeds cannot decide it"))
        else:
            left_out.append(Offer(*comparison, seeds, seeds, seeds, 0.0, 0.0, why_not="no interim analysis left"))
    return chosen + sorted(left_out, key=_worth, reverse=True)


def seeds_wanted(offers: Iterable[Offer], counts: Mapping[str, int]) -> dict[str, int]:
    """Return the seeds per variant for the next interim analyses of the chosen comparisons."""
    wanted: dict[str, int] = {}
    for offer in offers:
        if offer.chosen:
            for variant in (offer.child, offer.parent):
                if offer.next_interim > max(counts[variant], wanted.get(variant, 0)):
                    wanted[variant] = offer.next_interim
    return wanted


def table(offers: Iterable[Offer]) -> str:
    """Return a table as text: each comparison's chance, cost, decisions per device-hour, and whether it was chosen."""
    rows = [("comparison", "seeds", "chance", "device time", "comparisons per hour", "")]
    for offer in offers:
        rate = "free" if offer.per_hour == inf else alone(offer.per_hour)
        action = offer.why_not
        if offer.chosen:
            action = (
                "chosen" if offer.interim == offer.next_interim else f"chosen, up to {offer.next_interim} seeds first"
            )
        seeds = f"{offer.seeds} -> {offer.interim}"
        time = duration(3600 * offer.hours)
        rows.append((f"{offer.parent} -> {offer.child}", seeds, percent(offer.chance, 1), time, rate, action))
    return "\n".join(aligned(rows, [False, True, True, True, True, False]))


def _worth(offer: Offer) -> tuple[float, float, int]:
    return offer.per_hour, offer.chance, -offer.interim
