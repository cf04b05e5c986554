"""Claimed differences that the sampling of items explains, each rate with the weights of the source's batches.

Rows that share items differ less than said here.
"""

from collections.abc import Iterator, Sequence
from math import ceil, sqrt

from ablation.audit.counts import item_weights
from ablation.audit.table import Finding, Table
from ablation.config.printed import Printed
from ablation.contract.numbers import fixed, p_value

ALPHA = 0.05
TWO_SIDED = 1.959963984540054  # the number that a standard normal exceeds with probability ALPHA / 2
_EXACT = 1e-9  # slack for binary floating point, far below any printed digit


def best_case_p(net_items: float) -> float:
    """Return the smallest two-sided sign-test p if `net_items` items differ, all in one direction."""
    return min(1.0, 2.0 ** (1 - ceil(net_items - _EXACT)))


def noise_of_difference(rates: Sequence[float], items: float) -> float:
    """Return the standard error of the difference of two unpaired rates over `items` items: sqrt(sum p (1 - p) / n)."""
    return sqrt(sum(max(rate * (1 - rate), 0) for rate in rates) / items)


def noise_findings(table: Table) -> Iterator[Finding]:
    """Yield claimed pairs of rows whose difference is within 1.96 standard errors in some column."""
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
            end = "; no sign test can be significant, however the items are paired" if hopeless else ""
            what = f"the difference is within the sampling noise of the items ({'; '.join(inside)})"
            text = f"{variant} against {against}: {what}{end}."
            yield Finding("noise", variant, "", "warn", text)


def _limit(table: Table, new: Printed, old: Printed, items: int) -> float:
    squares = sum(count * float(weight) ** 2 for weight, count in item_weights(items, table.batches).items())
    return TWO_SIDED * noise_of_difference([table.rate(new.value), table.rate(old.value)], 1 / squares)


def _best_case(new: Printed, old: Printed, items: int) -> float:
    """Return the smallest p that the rounding of both numbers allows, in favour of the claim."""
    return best_case_p((abs(new.value - old.value) + new.half + old.half) * items if new.exact != old.exact else 0)


def _said(new: Printed, old: Printed, items: int, limit: float) -> str:
    difference = abs(new.value - old.value)
    finer = min(new, old, key=lambda number: number.exact_half)
    return (
        f"{finer.show(difference)} = {fixed(difference * items, 1)} of {items} items, "
        f"1.96 SE {finer.show(limit)}, best-case p {p_value(_best_case(new, old, items))}"
    )
