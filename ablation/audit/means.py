"""Reported means against the mean of their parts."""

from collections.abc import Iterator
from fractions import Fraction

from ablation.audit.finding import Finding
from ablation.audit.table import Table


def mean_findings(table: Table) -> Iterator[Finding]:
    """Means that rounding cannot explain."""
    for row in table.rows:
        if not is_wrong_mean(table, row):
            continue
        parts, printed = table.parts(row) or {}, table.rows[row][table.mean].number
        mean = printed.show(float(table.mean_of_parts(row) or 0))
        sums = f"({' + '.join(map(str, parts.values()))}) / {len(parts)} = {mean}"
        start = f"{row}: the mean is reported as {printed}, but {sums}"
        if _fits(table, row, weighted=True):
            text = f"{start}; it is the mean with each part weighted by its items."
            yield Finding("mean", row, table.mean, "note", text)
        else:
            yield Finding("mean", row, table.mean, "error", f"{start}.")


def is_wrong_mean(table: Table, row: str) -> bool:
    """Whether the row's mean is not the plain mean of its parts, whatever rounding did to them."""
    return table.has_mean(row) and not _fits(table, row, weighted=False)


def _fits(table: Table, row: str, *, weighted: bool) -> bool:
    parts, printed = table.parts(row) or {}, table.rows[row][table.mean].number
    shares = {column: Fraction(table.items[column] if weighted else 1) for column in parts}
    total = sum(shares.values())
    low = sum(shares[column] * part.low for column, part in parts.items()) / total
    high = sum(shares[column] * part.high for column, part in parts.items()) / total
    return low <= printed.high and printed.low <= high
