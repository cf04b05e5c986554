"""Rows that are the same, and last digits that are not as counts of items would give them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from math import floor, prod

import numpy as np

from ablation.audit.counts import attainable
from ablation.audit.finding import Finding
from ablation.audit.table import Table
from ablation.config.printed import Printed

DRAWS = 10_000
SEED = 20250301
LEAST_NUMBERS = 20  # for the test of last digits
LEVEL = 0.01
EXPECTED = 0.05  # pairs of equal rows by chance, above which they are not a warning
MOST_VALUES = 10_000  # of printed numbers that a range is taken to hold
WINDOW = 10  # counts on either side of a column's range that its values may as well have had


def duplicate_findings(table: Table) -> Iterator[Finding]:
    """Rows that agree in every printed number, and columns that do."""
    columns = [column for column in table.items if len(table.column(column)) > 1]
    if len(columns) < 2:
        return
    same_by_chance = prod(1 / len(_reachable(table, column)) for column in columns)
    pairs = len(table.rows) * (len(table.rows) - 1) / 2 * same_by_chance
    for first, second in combinations(table.rows, 2):
        ours, theirs = (_numbers(table, row, columns) for row in (first, second))
        if len(ours) < len(columns) or {c: n.exact for c, n in ours.items()} != {c: n.exact for c, n in theirs.items()}:
            continue
        shown = ", ".join(f"{column} {number}" for column, number in ours.items())
        text = f"{first} and {second} are the same in all {len(columns)} columns ({shown}); "
        text += f"{pairs:.2g} such pairs are expected if each value falls anywhere in its column's range."
        yield Finding("duplicate", second, "", "warn" if pairs < EXPECTED else "note", text)
    for left, right in combinations(columns, 2):
        one, other = ({row: n.exact for row, n in table.column(column).items()} for column in (left, right))
        if one == other and len(one) > 2 and len(set(one.values())) > 1:
            yield Finding("duplicate", "", right, "warn", f"The columns {left} and {right} are the same in every row.")


def _numbers(table: Table, row: str, columns: Sequence[str]) -> dict[str, Printed]:
    return {column: number for column in columns if (number := table.number(row, column)) is not None}


def digit_findings(table: Table) -> Iterator[Finding]:
    """Whether the last digits of the numbers are spread as values over so many items spread them."""
    expected, seen = np.zeros(10), np.zeros(10)
    rng, draws = np.random.default_rng(SEED), np.zeros((DRAWS, 10))
    for column in table.items:
        numbers = [number for number in table.column(column).values() if number.digits > 0]
        seen += np.bincount(
            np.array([floor(n.exact / (2 * n.exact_half)) % 10 for n in numbers], dtype=int), minlength=10
        )
        for half, count in Counter(number.exact_half for number in numbers).items():
            shares = _digit_shares(table, column, half)
            expected += count * shares
            draws += rng.multinomial(count, shares, DRAWS)
    total = int(seen.sum())
    if total < LEAST_NUMBERS:
        return

    def distance(counts: np.ndarray) -> np.ndarray:
        return np.asarray(((counts - expected) ** 2 / (expected + 0.5)).sum(axis=-1))

    p = (1 + int((distance(draws) >= distance(seen) - 1e-9).sum())) / (DRAWS + 1)
    if p > LEVEL:
        return
    often = sorted(range(10), key=lambda digit: expected[digit] - seen[digit])[:2]
    shown = " and ".join(f"{digit} ends {seen[digit]:.0f}, {expected[digit]:.1f} expected" for digit in often)
    text = f"Last digits of {total} numbers are not as counts of items give them (p {p:.2g}): {shown}."
    yield Finding("digits", "", "", "warn", text)


def _reachable(table: Table, column: str) -> set[int]:
    """Printed values, in units of the last digit, that the column's range holds: of counts if its values are such."""
    numbers = list(table.column(column).values())
    finest = min(numbers, key=lambda number: number.exact_half)
    unit = 2 * finest.exact_half
    low, high = min(number.low for number in numbers), max(number.high for number in numbers)
    margin = Fraction(WINDOW, table.items[column])
    first, last = max(low - margin, Fraction(0)), high + margin
    if unit * table.items[column] < 1:  # else every printed value is one of counts
        lattice = attainable(table.items[column], table.batches, table.target)
        if 2 * sum(bool(lattice.inside(number.low, number.high)) for number in numbers) >= len(numbers):
            return {floor(value / unit + Fraction(1, 2)) for value in lattice.inside(first, last)}
    start = floor(first / unit)
    return set(range(start, min(floor(last / unit), start + MOST_VALUES) + 1))


def _digit_shares(table: Table, column: str, half: Fraction) -> np.ndarray:
    """Shares of the last digits among the values that a number with this half unit may have."""
    coarser = round(half / min(number.exact_half for number in table.column(column).values()))
    ends = Counter((value // coarser) % 10 for value in _reachable(table, column))
    return np.array([ends[digit] for digit in range(10)], dtype=float) / ends.total()
