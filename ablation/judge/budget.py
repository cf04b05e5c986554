"""Chooses the edges that get more seeds: those most likely to be decided per device-hour, within a budget.

Prices.of_stages(stages)                        what one more seed of a variant costs, shared stages known
choose(chances, taken, counts, prices, hours) -> offers     the chosen ones first
table(offers) -> text
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

import pandas as pd

from ablation.judge.predictions import Chances

LEAST_CHANCE = 0.01  # below it at every look, more seeds do not decide an edge

Unit = str  # a stage of a seed, of one variant or shared by several


@dataclass(frozen=True)
class Prices:
    """Device-hours of one more seed of each unit, and the units of each variant."""

    hours: Mapping[Unit, float]
    units: Mapping[str, frozenset[Unit]]

    @staticmethod
    def of_stages(stages: pd.DataFrame) -> "Prices":
        """From the seeds so far: rows (variant, stage, key, hours) of seeded stages, in the order of the plan.

        Variants that share a stage in the first seed share it in every seed. A stage's price is its mean over the seeds
        where it ran.
        """
        first = stages.drop_duplicates(["variant", "stage"])
        unit = {(row.variant, row.stage): str(row.key) for row in first.itertuples()}
        units: dict[str, set[Unit]] = {}
        for (variant, _), name in unit.items():
            units.setdefault(variant, set()).add(name)
        ran = stages[stages["hours"] > 0].drop_duplicates("key")
        names = pd.Series([unit[row.variant, row.stage] for row in ran.itertuples()], index=ran.index, dtype=object)
        hours = {str(name): float(mean) for name, mean in ran["hours"].groupby(names, sort=False).mean().items()}
        return Prices(hours, {variant: frozenset(names) for variant, names in units.items()})

    def paid(self, counts: Mapping[str, int]) -> dict[Unit, int]:
        """Seeds that each unit has where the variants have `counts`."""
        paid: dict[Unit, int] = {}
        for variant, units in self.units.items():
            for unit in units:
                paid[unit] = max(paid.get(unit, 0), counts.get(variant, 0))
        return paid

    def missing(self, variants: Iterable[str], seeds: int, paid: Mapping[Unit, int]) -> float:
        """Device-hours that bring these variants to `seeds` seeds."""
        units = frozenset().union(*(self.units.get(variant, frozenset()) for variant in variants))
        return sum(max(seeds - paid[unit], 0) * self.hours.get(unit, 0.0) for unit in sorted(units))


@dataclass(frozen=True)
class Offer:
    """More seeds for one edge: up to a look, the chance that it is decided there, and the hours still to pay."""

    child: str
    parent: str
    seeds: int  # taken
    look: int  # the one that decides most per device-hour
    next_look: int  # the first on the way to it
    chance: float
    hours: float
    chosen: bool = False
    why_not: str = ""

    @property
    def per_hour(self) -> float:
        """Edges decided per device-hour."""
        return self.chance / self.hours if self.hours > 0 else (inf if self.chance > 0 else 0.0)


def choose(
    chances: Chances, taken: Mapping[tuple[str, str], int], counts: Mapping[str, int], prices: Prices, hours: float
) -> list[Offer]:
    """Offers of all edges, the chosen ones first and in the order of the choice; together they cost at most `hours`.

    Greedy: each time the edge and look that decide most per device-hour; stages that chosen edges already pay for are
    free. `chances` holds the looks that an edge has not taken, `taken` its seeds, `counts` the variants' seeds.
    """
    paid, left = prices.paid(counts), hours
    chosen: list[Offer] = []
    waiting = dict(chances)
    while True:
        offers = [_best(edge, waiting[edge], taken[edge], prices, paid, hours=left) for edge in waiting]
        possible = [offer for offer in offers if offer is not None]
        if not possible:
            break
        best = max(possible, key=_worth)
        chosen.append(best)
        left -= best.hours
        del waiting[best.child, best.parent]
        for variant in (best.child, best.parent):
            for unit in prices.units.get(variant, ()):
                paid[unit] = max(paid[unit], best.look)
    return chosen + sorted(_left_out(waiting, taken, prices, paid), key=_worth, reverse=True)


def seeds_wanted(offers: Iterable[Offer], counts: Mapping[str, int]) -> dict[str, int]:
    """Seeds per variant for the next looks of the chosen edges; later looks wait for their outcome."""
    wanted: dict[str, int] = {}
    for offer in offers:
        if offer.chosen:
            for variant in (offer.child, offer.parent):
                if offer.next_look > max(counts[variant], wanted.get(variant, 0)):
                    wanted[variant] = offer.next_look
    return wanted


def table(offers: Iterable[Offer]) -> str:
    """One line per edge: chance, device-hours still to pay, edges per device-hour, and what happens."""
    rows = [("edge", "seeds", "chance", "hours", "edges per hour", "")]
    for offer in offers:
        rate = "free" if offer.per_hour == inf else f"{offer.per_hour:.3g}"
        action = offer.why_not
        if offer.chosen:
            action = "chosen" if offer.look == offer.next_look else f"chosen, by way of {offer.next_look} seeds"
        seeds = f"{offer.seeds} -> {offer.look}"
        rows.append(
            (f"{offer.parent} -> {offer.child}", seeds, f"{offer.chance:.1%}", f"{offer.hours:.4g}", rate, action)
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:5], widths[1:5], strict=True))])
        + f"  {row[5]}"
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def _worth(offer: Offer) -> tuple[float, float, int]:
    return offer.per_hour, offer.chance, -offer.look


def _best(
    edge: tuple[str, str],
    chances: Mapping[int, float],
    taken: int,
    prices: Prices,
    paid: Mapping[Unit, int],
    *,
    hours: float,
) -> Offer | None:
    """The look that decides most per device-hour among those that `hours` pay for."""
    offers = [
        Offer(*edge, taken, look, min(chances), chance, prices.missing(edge, look, paid), chosen=True)
        for look, chance in chances.items()
        if chance >= LEAST_CHANCE
    ]
    return max((offer for offer in offers if offer.hours <= hours), key=_worth, default=None)


def _left_out(
    waiting: Chances, taken: Mapping[tuple[str, str], int], prices: Prices, paid: Mapping[Unit, int]
) -> list[Offer]:
    offers = []
    for edge, chances in waiting.items():
        if not chances:
            offers.append(Offer(*edge, taken[edge], taken[edge], taken[edge], 0.0, 0.0, why_not="no look left"))
            continue
        if best := _best(edge, chances, taken[edge], prices, paid, hours=inf):
            offers.append(replace(best, chosen=False, why_not="beyond the budget"))
            continue
        look = max(chances, key=lambda look: (chances[look], -look))
        left = prices.missing(edge, look, paid)
        why_not = "more seeds do not decide it"
        offers.append(Offer(*edge, taken[edge], look, min(chances), chances[look], left, why_not=why_not))
    return offers
