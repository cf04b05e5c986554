"""Tests a column against equal models in all rows: is the best row just luck, is the spread too small?

The rows' errors are drawn independently, binomial over the items. Rows share their items, so real errors differ less:
the best of k is then less lucky than said here, and a small spread may be agreement of the rows.
"""

from collections.abc import Iterator

import numpy as np

from ablation.audit.counts import attainable, item_weights
from ablation.audit.finding import Finding
from ablation.audit.table import Table
from ablation.config.printed import Printed

DRAWS = 20_000
SEED = 20250301
LEAST_ROWS = 3
LEVEL = 0.05  # above it the best row is what chance gives
_EXACT = 1e-9  # slack for binary floating point, far below any printed digit
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
    return Finding("chance", row, column, "warn" if p > LEVEL else "note", f"{text}.")


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
