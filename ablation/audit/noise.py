"""Differences that the sampling of items explains: between two rows of a claim, and among rows in a sequence."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import ceil, sqrt

from ablation.audit.finding import Finding
from ablation.audit.table import Table
from ablation.config.printed import Printed

ALPHA = 0.05
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
            p = _best_case(new, old, items)
            hopeless &= p > ALPHA
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


def p_findings(table: Table) -> Iterator[Finding]:
    """p-values of claims that no pairing of the items can give."""
    for claim in table.claims:
        new, old = table.number(claim.variant, claim.column), table.number(claim.against, claim.column)
        if claim.p is None or new is None or old is None or claim.column not in table.items:
            continue
        least = _best_case(new, old, table.items[claim.column])
        if float(claim.p.high) >= least:
            continue
        items = abs(new.value - old.value) * table.items[claim.column]
        text = (
            f"{claim.variant} against {claim.against}, {claim.column}: p = {claim.p} is too small: the difference is "
            f"{items:.1f} of {table.items[claim.column]} items, and however they pair, p is at least {least:.2g}."
        )
        yield Finding("test", claim.variant, claim.column, "error", text)


def _limit(table: Table, new: Printed, old: Printed, items: int) -> float:
    return TWO_SIDED * noise_of_difference([table.rate(new.value), table.rate(old.value)], items)


def _best_case(new: Printed, old: Printed, items: int) -> float:
    """The printed digits hide up to half a unit of each number: give the claim that benefit."""
    return best_case_p((abs(new.value - old.value) + new.half + old.half) * items if new.exact != old.exact else 0)


def _said(new: Printed, old: Printed, items: int, limit: float) -> str:
    difference = abs(new.value - old.value)
    return (
        f"{_finer(new, old).show(difference)} = {difference * items:.1f} of {items} items "
        f"(1.96 SE {limit:.4f}, best-case p {_best_case(new, old, items):.2g})"
    )


def _finer(first: Printed, second: Printed) -> Printed:
    return min(first, second, key=lambda number: number.exact_half)


def _indistinct(table: Table, names: Sequence[str]) -> bool:
    for column, items in table.items.items():
        for first, second in combinations(names, 2):
            new, old = table.number(first, column), table.number(second, column)
            if new is None or old is None:
                return False
            if abs(new.value - old.value) > _limit(table, new, old, items) or _best_case(new, old, items) <= ALPHA:
                return False
    return bool(table.items)
