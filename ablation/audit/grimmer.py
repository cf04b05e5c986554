"""Whether a few runs can have the printed mean and standard deviation, as counts of items (GRIMMER).

Analytic form after Allard (2018): sum and sum of squares of integers are of one parity, and the sum of squares gives
the standard deviation. Anaya 2016, PeerJ Preprints 4:e2400. Known bounds of the counts (0 and the items) limit the
sum of squares further.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, sqrt

from ablation.audit.finding import Finding
from ablation.audit.table import Table
from ablation.config.printed import Printed

MOST_SUMS = 5000  # sums of counts that one mean may stand for; with more, some count always fits


@dataclass(frozen=True)
class Step:
    """Values are offset + unit * integer, with integers from 0 to `most` (None: any integers, as Allard has it)."""

    offset: Fraction = Fraction(0)
    unit: Fraction = Fraction(1)
    most: int | None = None


def is_possible(
    mean: Printed, spread: Printed, runs: int, step: Step, *, population: bool = False, of_mean: bool = False
) -> bool:
    """Whether `runs` values can have this mean and this standard deviation, each as printed.

    `population`: the deviation divides by the number of runs, not by one less. `of_mean`: the spread is the standard
    error, the deviation over the root of the number of runs.
    """
    first = ceil((mean.low - step.offset) * runs / step.unit)
    last = floor((mean.high - step.offset) * runs / step.unit)
    if step.most is not None:
        first, last = max(first, 0), min(last, runs * step.most)
    if last - first >= MOST_SUMS:
        return True
    divisor = (runs if population else runs - 1) * (runs if of_mean else 1)
    low, high = (max(bound, Fraction(0)) ** 2 * divisor / step.unit**2 for bound in (spread.low, spread.high))
    return any(_has_squares(total, runs, low, high, step.most) for total in range(first, last + 1))


def _has_squares(total: int, runs: int, low: Fraction, high: Fraction, most: int | None) -> bool:
    """Whether integers of this sum can have a sum of squared deviations in [low, high]."""
    centre = Fraction(total * total, runs)
    base, extra = divmod(total, runs)
    least = runs * base * base + extra * (2 * base + 1)  # as equal as integers can be
    first, last = max(ceil(centre + low), least), floor(centre + high)
    if most is not None:
        whole, rest = divmod(total, most) if most else (0, 0)
        last = min(last, whole * most * most + rest * rest)  # as unequal as the bounds allow
    first += (first - total) % 2
    return first <= last


def grimmer_findings(table: Table) -> Iterator[Finding]:
    """Cells with a spread that no counts give together with their mean; the number of runs must be known."""
    for row, cells in table.rows.items():
        for column, cell in cells.items():
            step = None if cell.spread is None or column not in table.items else _step(table, table.items[column])
            if step is None or cell.spread is None or table.runs is None or table.runs < 2:
                continue
            of_mean, name = table.spread == "se", "standard error" if table.spread == "se" else "standard deviation"
            start = f"{row}, {column}: {cell}"
            if is_possible(cell.number, cell.spread, table.runs, step, of_mean=of_mean):
                continue
            if is_possible(cell.number, cell.spread, table.runs, step, population=True, of_mean=of_mean):
                text = f"{start} is possible only if the {name} divides by {table.runs}, not by {table.runs - 1}."
                yield Finding("grimmer", row, column, "note", text)
                continue
            largest = sqrt(table.runs / (table.runs - 1)) * float(step.unit * (step.most or 0)) / 2
            over = cell.spread.low > Fraction(largest) * Fraction(1001, 1000) and not of_mean
            why = f"; it is at most {cell.number.show(largest)}" if over else ""
            text = (
                f"{start} is the mean and {name} of no {table.runs} values of {table.formula(table.items[column])}"
                f", dividing by {table.runs - 1} or by {table.runs}{why}."
            )
            yield Finding("grimmer", row, column, "warn" if table.batches else "error", text)


def _step(table: Table, items: int) -> Step | None:
    """Rates are k/n. Distances from 1/2 are k/n, or (k + 1/2)/n for odd n; other targets give two lattices."""
    if table.target is None:
        return Step(unit=Fraction(1, items), most=items)
    if table.target == Fraction(1, 2):
        return Step(Fraction(items % 2, 2 * items), Fraction(1, items), items // 2)
    return None
