"""The table of a plan: seeds x items with the smallest detectable effect, device-hours and money.

in_words(question, pilots, sizes) -> str
as_rows(question, pilots, sizes) -> the rows of the table
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ablation.contract.errors import ConfigError
from ablation.judge.planning import MOST_SEEDS, Cost, Level, Pilot, detectable, fewest_seeds


@dataclass(frozen=True)
class Question:
    """An effect that is to be found with a probability, at the levels that the analysis plan leaves to an edge."""

    effect: float
    power: float
    level: Level
    hours: float | None = None  # that may be spent


@dataclass(frozen=True)
class Sizes:
    """The sizes of the table, what they cost, and the price of a device-hour."""

    seeds: Sequence[int]
    items: Sequence[int]
    cost: Cost | None
    price: float | None

    def spent(self, seeds: int, items: int) -> float | None:
        """Device-hours of all of it."""
        return None if self.cost is None else self.cost.hours(seeds, items, all_of_it=True)

    def left(self, seeds: int, items: int) -> float | None:
        """Device-hours that are still to run."""
        return None if self.cost is None else self.cost.hours(seeds, items, all_of_it=False)


def in_words(question: Question, pilots: Sequence[Pilot], sizes: Sizes) -> str:
    """The table, and the smallest plans that find the effect.

    `pilots` are ordered by their noise: the table is of the one in the middle, and of the noisiest.

    Raises:
        ConfigError: no plan is to be had for the hours.
    """
    heads = {
        "seeds": "seeds",
        "items": "items",
        "effect": f"found with {question.power:.0%}",
        "range": "likely range",
        "noisiest": pilots[-1].name,
        "hours": "device-hours",
        "hours_to_run": "to run",
        "cost": "cost",
    }
    found = [
        {
            **{name: f"{value:.3g}" for name, value in row.items() if value is not None},
            "seeds": str(row["seeds"]),
            "items": f"{row['items']:,}",
            "range": f"{row['low']:.3g} to {row['high']:.3g}",
            **({"cost": f"{row['cost']:.2f}"} if row["cost"] is not None else {}),
        }
        for row in as_rows(question, pilots, sizes)
    ]
    columns = [[heads[name], *(row[name] for row in found)] for name in heads if name in found[0]]
    widths = [max(map(len, column)) for column in columns]
    rows = zip(*columns, strict=True)
    table = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([*table, "", *smallest(question, pilots, sizes)])


def as_rows(question: Question, pilots: Sequence[Pilot], sizes: Sizes) -> list[dict[str, Any]]:
    """A map for each size: what is found, on the edge in the middle and on the noisiest, and what it costs."""
    rows = []
    for items in sizes.items:
        for seeds in sizes.seeds:
            level = question.level(seeds)
            effect, low, high = detectable(_middle(pilots), seeds, items, level, question.power)
            several = len(pilots) > 1
            noisiest = detectable(pilots[-1], seeds, items, level, question.power)[0] if several else None
            left = sizes.left(seeds, items)
            row = {"seeds": seeds, "items": items, "effect": effect, "low": low, "high": high, "noisiest": noisiest}
            row |= {"hours": sizes.spent(seeds, items), "hours_to_run": left}
            rows.append(row | {"cost": None if left is None or not sizes.price else left * sizes.price})
    return rows


def _middle(pilots: Sequence[Pilot]) -> Pilot:
    return pilots[(len(pilots) - 1) // 2]


def smallest(question: Question, pilots: Sequence[Pilot], sizes: Sizes) -> Iterator[str]:
    """What finds the effect, and below what it cannot be decided. Raises as `in_words`."""
    middle, noisiest = _middle(pilots), pilots[-1]
    wanted = f"an effect of {question.effect:g} with {question.power:.0%}"
    for pilot in dict.fromkeys((middle, noisiest)):
        found = [
            (sizes.left(seeds, items) or 0.0, items * seeds, items, seeds)
            for items in sizes.items
            if (seeds := fewest_seeds(pilot, question.effect, items, question.level, question.power)) is not None
        ]
        if not found:
            most = f"{MOST_SEEDS} seeds of {max(sizes.items):,} items"
            if question.hours is not None and pilot is middle:
                raise ConfigError("plan", "--hours", question.hours, f"{most} do not find {wanted}", "plan more items")
            yield f"{pilot.name}: not even {most} find {wanted}"
            continue
        hours, _, items, seeds = min(found)
        if question.hours is not None and pilot is middle and hours > question.hours:
            problem = f"no plan finds {wanted} below {hours:.3g} device-hours ({seeds} seeds of {items:,} items)"
            raise ConfigError("plan", "--hours", question.hours, problem, "allow more, or ask for a larger effect")
        yield f"{pilot.name}: {seeds} seeds of {items:,} items find {wanted}" + _below(sizes, hours)


def _below(sizes: Sizes, hours: float) -> str:
    if sizes.cost is None:
        return ""
    money = f" ({hours * sizes.price:.2f})" if sizes.price else ""
    return f"; it cannot be decided below {hours:.3g} more device-hours{money}"
