"""What the sampling of items explains: differences of rows, a best row, and last digits.

A claimed difference, and rows in a sequence, are held against the noise of a difference of two rates. For a whole
column the rows' errors are drawn independently, binomial over the items, from equal models: is the best row just luck,
is the spread too small? Rows share their items, so real errors differ less: the best of k is then less lucky than said
here, and a small spread may be agreement of the rows.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from math import ceil, floor, sqrt

import numpy as np

from ablation.audit.counts import attainable, item_weights
from ablation.audit.table import Finding, Table
from ablation.config.printed import Printed

ALPHA = 0.05
DRAWS = 20_000
SEED = 20250301
TWO_SIDED = 1.959963984540054  # the number that a standard normal exceeds with probability ALPHA / 2
_EXACT = 1e-9  # slack for binary floating point, far below any printed digit


def best_case_p(net_items: float) -> float:
    """Smallest two-sided sign-test p of a difference of `net_items` items: all that differ, differ the same way."""
    return min(1.0, 2.0 ** (1 - ceil(net_items - _EXACT)))


def noise_of_difference(rates: Sequence[float], items: int) -> float:
    """Standard error of the difference of two rates over `items` items each, unpaired: sqrt(sum p (1 - p) / n)."""
    return sqrt(sum(max(rate * (1 - rate), 0) for rate in rates) / items)


def noise_findings(table: Table) -> Iterator[Finding]:
    """Claimed pairs of rows whose difference is within 1.96 standard errors in some column."""
    for variant, against in dict.fromkeys((claim.variant, claim.against) for claim in table.claims):
        inside, hopeless = [], True
        for column, items in table.items.items():
            new, old = table.number(variant, column), table.number(against, column)
            if new is None or old is None:
                continue
            limit = _limit(table, new, old, items)
            difference = abs(new.value - old.value)
            if difference > limit:
                continue
            hopeless &= _best_case(new, old, items) > ALPHA
            inside.append(f"{column} {_said(new, old, items, limit)}")
        if inside:
            end = "; however the items pair, no sign test can be significant" if hopeless else ""
            text = f"{variant} against {against}: within the sampling noise of the items: {'; '.join(inside)}{end}."
            yield Finding("noise", variant, "", "warn", text)


def group_findings(table: Table) -> Iterator[Finding]:
    """Rows that follow each other in the table and that no pairing of the items can tell apart, in any column."""
    names, taken = list(table.rows), -1
    for start in range(len(names)):
        stop = start + 1
        while stop < len(names) and _indistinct(table, names[start : stop + 1]):
            stop += 1
        if stop - start < 3 or stop <= taken:
            continue
        taken = stop
        group, said = names[start:stop], []
        for column, items in table.items.items():
            numbers = sorted((table.rows[name][column].number for name in group), key=lambda number: number.exact)
            limit = _limit(table, numbers[0], numbers[-1], items)
            said.append(f"{column} differs by at most {_said(numbers[-1], numbers[0], items, limit)}")
        names_said = f"{group[0]} to {group[-1]} ({', '.join(group)})"
        text = f"No difference among {names_said} exceeds the item noise: {'; '.join(said)}."
        yield Finding("group", group[0], "", "warn", text)


def _limit(table: Table, new: Printed, old: Printed, items: int) -> float:
    return TWO_SIDED * noise_of_difference([table.rate(new.value), table.rate(old.value)], items)


def _best_case(new: Printed, old: Printed, items: int) -> float:
    """The printed digits hide up to half a unit of each number: give the claim that benefit."""
    return best_case_p((abs(new.value - old.value) + new.half + old.half) * items if new.exact != old.exact else 0)


def _said(new: Printed, old: Printed, items: int, limit: float) -> str:
    difference = abs(new.value - old.value)
    finer = min(new, old, key=lambda number: number.exact_half)
    return (
        f"{finer.show(difference)} = {difference * items:.1f} of {items} items "
        f"(1.96 SE {limit:.4f}, best-case p {_best_case(new, old, items):.2g})"
    )


def _indistinct(table: Table, names: Sequence[str]) -> bool:
    for column, items in table.items.items():
        for first, second in combinations(names, 2):
            new, old = table.number(first, column), table.number(second, column)
            if new is None or old is None:
                return False
            if abs(new.value - old.value) > _limit(table, new, old, items) or _best_case(new, old, items) <= ALPHA:
                return False
    return bool(table.items)


LEAST_ROWS = 3
TOO_EVEN = 0.001  # below it the rows differ less than independent samples do


def chance_findings(table: Table) -> Iterator[Finding]:
    """One finding per column with items about its best row, and one where the rows differ too little."""
    columns = {column: numbers for column in table.items if len(numbers := table.column(column)) >= LEAST_ROWS}
    for column, numbers in columns.items():
        yield _best(table, column, numbers)
    for column, numbers in columns.items():
        yield from _spread(table, column, numbers)


def _drawn(table: Table, column: str, rate: float, rows: int) -> np.ndarray:
    """[DRAWS, rows] values of independent evaluations with one true rate."""
    rng, items, p = np.random.default_rng(SEED), table.items[column], min(max(rate, 0.0), 1.0)
    weights = item_weights(items, table.batches).items()
    rates = np.sum([float(weight) * rng.binomial(count, p, (DRAWS, rows)) for weight, count in weights], axis=0)
    return rates if table.target is None else np.abs(rates - float(table.target))


def _best(table: Table, column: str, numbers: dict[str, Printed]) -> Finding:
    pick = min if table.least_is_best else max
    row, best = pick(numbers.items(), key=lambda item: item[1].exact)
    middle = float(np.mean([number.value for number in numbers.values()]))
    draws = _drawn(table, column, table.rate(middle), len(numbers))
    luckiest = draws.min(axis=1) if table.least_is_best else draws.max(axis=1)
    # An impossible value is read as the next possible one: a printed number beyond them all is not luck.
    lattice = attainable(table.items[column], table.batches, table.target)
    ends = (best.high, lattice.least) if table.least_is_best else (best.low, lattice.largest)
    reach = float(max(ends) if table.least_is_best else min(ends))
    as_good = luckiest <= reach + _EXACT if table.least_is_best else luckiest >= reach - _EXACT
    p = (1 + int(as_good.sum())) / (DRAWS + 1)
    text = (
        f"{column}: the best of {len(numbers)} rows is {row} with {best}; if no row had an effect, each a sample of "
        f"{table.items[column]} items at {best.show(middle)}, the best would come out at "
        f"{best.show(float(np.median(luckiest)))} in half of all tables, and as good as printed in {p:.2g} of them"
    )
    return Finding("chance", row, column, "warn" if p > ALPHA else "note", f"{text}.")


def _spread(table: Table, column: str, numbers: dict[str, Printed]) -> Iterator[Finding]:
    values, items = np.array([number.value for number in numbers.values()]), table.items[column]
    # A distance varies least where its rate is at the target: the most lenient reading.
    rate = float(values.mean()) if table.target is None else float(table.target)
    spreads = _drawn(table, column, rate, len(values)).std(axis=1, ddof=1)
    spread = float(values.std(ddof=1))
    p = (1 + int((spreads <= spread).sum())) / (DRAWS + 1)
    if p > TOO_EVEN:
        return
    like = next(iter(numbers.values()))
    shown, typical = like.show(spread, 1), like.show(float(np.median(spreads)), 1)
    flipped = 2 * spread**2 * items**2  # variance of a difference of two rows = share of items that differ / items
    text = (
        f"{column}: its {len(values)} rows differ less than independent samples of {items} items do: standard "
        f"deviation {shown} where samples have {typical} (p {p:.1g}); two rows would have to answer all but about "
        f"{flipped:.1f} of the {items} items alike"
    )
    yield Finding("spread", "", column, "warn", f"{text}.")


LEAST_NUMBERS = 20  # for the test of last digits
LEVEL_OF_DIGITS = 0.01
DRAWS_OF_DIGITS = 10_000
MOST_VALUES = 10_000  # of printed numbers that a range is taken to hold
WINDOW = 10  # counts on either side of a column's range that its values may as well have had


def digit_findings(table: Table) -> Iterator[Finding]:
    """Whether the last digits of the numbers are spread as values over so many items spread them."""
    expected, seen = np.zeros(10), np.zeros(10)
    rng, draws = np.random.default_rng(SEED), np.zeros((DRAWS_OF_DIGITS, 10))
    for column in table.items:
        numbers = [number for number in table.column(column).values() if number.digits > 0]
        seen += np.bincount(
            np.array([floor(n.exact / (2 * n.exact_half)) % 10 for n in numbers], dtype=int), minlength=10
        )
        for half, count in Counter(number.exact_half for number in numbers).items():
            shares = _digit_shares(table, column, half)
            expected += count * shares
            draws += rng.multinomial(count, shares, DRAWS_OF_DIGITS)
    total = int(seen.sum())
    if total < LEAST_NUMBERS:
        return

    def distance(counts: np.ndarray) -> np.ndarray:
        return np.asarray(((counts - expected) ** 2 / (expected + 0.5)).sum(axis=-1))

    p = (1 + int((distance(draws) >= distance(seen) - 1e-9).sum())) / (DRAWS_OF_DIGITS + 1)
    if p > LEVEL_OF_DIGITS:
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
