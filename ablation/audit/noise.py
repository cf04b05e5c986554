"""What the sampling of items explains: differences of rows, and a best row.

A claimed difference, and rows in a sequence, are held against the noise of a difference of two rates, each with the
weights of the source's batches. For a best row
the rows' errors are drawn independently, binomial over the items, from equal models: is it just luck? Rows share their
items, so real errors differ less: the best of k is then less lucky than said here.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import ceil, sqrt

import numpy as np

from ablation.audit.counts import attainable, item_weights
from ablation.audit.table import Finding, Table
from ablation.config.printed import Printed
from ablation.contract.reading import counted

ALPHA = 0.05
DRAWS = 20_000
SEED = 20250301
TWO_SIDED = 1.959963984540054  # the number that a standard normal exceeds with probability ALPHA / 2
_EXACT = 1e-9  # slack for binary floating point, far below any printed digit


def best_case_p(net_items: float) -> float:
    """Smallest two-sided sign-test p of a difference of `net_items` items: all that differ, differ the same way."""
    return min(1.0, 2.0 ** (1 - ceil(net_items - _EXACT)))


def noise_of_difference(rates: Sequence[float], items: float) -> float:
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


def weight_findings(table: Table) -> Iterator[Finding]:
    """Columns whose means of batches weigh some items more than others, and how many differences that can turn."""
    for column, items in table.items.items():
        weights = item_weights(items, table.batches)
        heaviest = max(weights)
        numbers = [number.value for number in table.column(column).values()]
        if len(weights) == 1 or not numbers:
            continue
        spread = sqrt(sum(count * (float(weight) - 1 / items) ** 2 for weight, count in weights.items()))
        rate = table.rate(float(np.mean(numbers)))
        pairs = [abs(one - other) for one, other in combinations(numbers, 2)]
        text = (
            f"{column}: in the mean over batches of {' and '.join(map(str, table.batches))}, "
            f"{counted(weights[heaviest], 'item')} of {items} count {float(heaviest * items):.3g} times. This mean "
            f"differs from the one over items by {spread * sqrt(rate * (1 - rate)):.4f} (standard deviation over "
            f"items), and each of these items moves it by {float(heaviest):.4f}: more than "
            f"{sum(pair < heaviest for pair in pairs)} of {len(pairs)} differences between rows"
        )
        yield Finding("noise", "", column, "warn", f"{text}.")


def _limit(table: Table, new: Printed, old: Printed, items: int) -> float:
    squares = sum(count * float(weight) ** 2 for weight, count in item_weights(items, table.batches).items())
    return TWO_SIDED * noise_of_difference([table.rate(new.value), table.rate(old.value)], 1 / squares)


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


def chance_findings(table: Table) -> Iterator[Finding]:
    """One finding per column with items, about its best row."""
    for column in table.items:
        if len(numbers := table.column(column)) >= LEAST_ROWS:
            yield _best(table, column, numbers)


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
