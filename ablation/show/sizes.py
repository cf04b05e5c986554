"""The table of a plan: seeds x items with the smallest detectable effect, device-hours and money.

in_words(question, pilots, sizes) -> str
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
    middle, noisiest = pilots[(len(pilots) - 1) // 2], pilots[-1]
    named = [
        ("seeds", "items", f"found with {question.power:.0%}", "likely range"),
        (noisiest.name,),
        ("device-hours",),
    ]
    several, paid = len(pilots) > 1, sizes.cost is not None
    heads = [*named[0], *(named[1] if several else ()), *((*named[2], "to run") if paid else ())]
    heads += ["cost"] if paid and sizes.price else []
    rows = [heads]
    for items in sizes.items:
        for seeds in sizes.seeds:
            level = question.level(seeds)
            effect, low, high = detectable(middle, seeds, items, level, question.power)
            row = [str(seeds), f"{items:,}", f"{effect:.3g}", f"{low:.3g} to {high:.3g}"]
            if several:
                row.append(f"{detectable(noisiest, seeds, items, level, question.power)[0]:.3g}")
            rows.append([*row, *_costs(sizes, seeds, items)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([*table, "", *_smallest(question, middle, noisiest, sizes)])


def _costs(sizes: Sizes, seeds: int, items: int) -> Iterator[str]:
    spent, left = sizes.spent(seeds, items), sizes.left(seeds, items)
    if spent is not None and left is not None:
        yield from (f"{spent:.3g}", f"{left:.3g}")
        if sizes.price:
            yield f"{left * sizes.price:.2f}"


def _smallest(question: Question, middle: Pilot, noisiest: Pilot, sizes: Sizes) -> Iterator[str]:
    """What finds the effect, and below what it cannot be decided."""
    wanted = f"an effect of {question.effect:g} with {question.power:.0%}"
    for pilot in dict.fromkeys((middle, noisiest)):
        found = [
            (sizes.left(seeds, items) or 0.0, items, seeds)
            for items in sizes.items
            if (seeds := fewest_seeds(pilot, question.effect, items, question.level, question.power)) is not None
        ]
        if not found:
            most = f"{MOST_SEEDS} seeds of {max(sizes.items):,} items"
            if question.hours is not None and pilot is middle:
                raise ConfigError("plan", "--hours", question.hours, f"{most} do not find {wanted}", "plan more items")
            yield f"{pilot.name}: not even {most} find {wanted}"
            continue
        hours, items, seeds = min(found)
        if question.hours is not None and pilot is middle and hours > question.hours:
            problem = f"no plan finds {wanted} below {hours:.3g} device-hours ({seeds} seeds of {items:,} items)"
            raise ConfigError("plan", "--hours", question.hours, problem, "allow more, or ask for a larger effect")
        yield f"{pilot.name}: {seeds} seeds of {items:,} items find {wanted}" + _below(sizes, hours)


def _below(sizes: Sizes, hours: float) -> str:
    if sizes.cost is None:
        return ""
    money = f" ({hours * sizes.price:.2f})" if sizes.price else ""
    return f"; it cannot be decided below {hours:.3g} more device-hours{money}"
