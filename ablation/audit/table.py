"""The published table that the checks read, their findings, and the check of means and totals."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

from ablation.config.printed import Cell, Printed
from ablation.config.published_schema import Claim, PublishedFile, Standing
from ablation.contract.numbers import stated


@dataclass(frozen=True)
class Table:
    """The part of a `PublishedFile` that is a table."""

    rows: Mapping[str, Mapping[str, Cell]]
    items: Mapping[str, int]
    batches: tuple[int, ...]  # sizes of the batches that the source averages, the outer first; none: over items
    target: Fraction | None  # from which the numbers are distances; None: they are rates
    runs: int | None  # of which a number is the mean; None: the source does not say
    mean: str
    claims: Sequence[Claim]
    standings: Sequence[Standing]

    @classmethod
    def of(cls, published: PublishedFile) -> "Table":
        """Return the table of a published file, without the cells that have no number."""
        sizes = published.batch_size
        return cls(
            rows={
                name: {column: cell for column, cell in zip(published.columns, row, strict=True) if cell is not None}
                for name, row in published.rows.items()
            },
            items=published.items,
            batches=(sizes,) if isinstance(sizes, int) else tuple(sizes or ()),
            target=None if published.target is None else published.target.exact,
            runs=published.runs,
            mean=published.mean,
            claims=published.claims,
            standings=published.standings,
        )

    @property
    def least_is_best(self) -> bool:
        """Whether the smallest number is the best, as for distances."""
        return self.target is not None

    def number(self, row: str, column: str) -> Printed | None:
        """Return the number of a cell, without its spread."""
        cell = self.rows[row].get(column)
        return None if cell is None else cell.number

    def column(self, column: str) -> dict[str, Printed]:
        """Return the numbers of a column by row, in the table's order."""
        return {name: cells[column].number for name, cells in self.rows.items() if column in cells}

    def parts(self, row: str) -> dict[str, Printed] | None:
        """Return {column: number}, the parts that a row's mean averages; None if one is missing or only one exists."""
        cells = self.rows[row]
        if len(self.items) < 2 or not all(column in cells for column in self.items):
            return None
        return {column: cells[column].number for column in self.items}

    def mean_of_parts(self, row: str) -> Fraction | None:
        """Return the mean of a row's parts as they are printed; None if there are no parts."""
        parts = self.parts(row)
        return None if parts is None else sum((part.exact for part in parts.values()), Fraction(0)) / len(parts)

    @property
    def ones(self) -> Mapping[str, int]:
        """Weights {column: 1}, which make a weighted mean of columns a plain mean."""
        return dict.fromkeys(self.items, 1)

    @cached_property
    def has_totals(self) -> bool:
        """Whether the mean column contains totals: more of its numbers fit the sums of their rows than the means."""
        sums, means = (sum(self.fits(row, self.ones, total=total) for row in self.rows) for total in (True, False))
        return sums > means

    def fits(self, row: str, weights: Mapping[str, int], *, total: bool = False) -> bool:
        """Return whether rounding can explain a row's mean or total, given the row's parts.

        True if the row has no parts or no mean.
        """
        parts, cell = self.parts(row), self.rows[row].get(self.mean)
        if parts is None or cell is None or self.mean in self.items:
            return True
        divisor = 1 if total else sum(weights[column] for column in parts)
        low = sum(weights[column] * part.low for column, part in parts.items()) / divisor
        high = sum(weights[column] * part.high for column, part in parts.items()) / divisor
        return low <= cell.number.high and cell.number.low <= high

    def rate(self, value: float) -> float:
        """Return a rate for which the table would print this value: the value or, with a target, target plus value."""
        return value if self.target is None else float(self.target) + value

    def formula(self, items: int) -> str:
        """Return the formula of a value that counts `items` items: `k/77` or `|k/77 - 0.5|`."""
        return f"k/{items}" if self.target is None else f"|k/{items} - {stated(float(self.target))}|"


Severity = Literal["error", "warn", "note"]


@dataclass(frozen=True)
class Finding:
    """A finding about one cell, row or group of rows; `column` is "" if the finding concerns several columns.

    `severity` is error (impossible or wrong), warn (unsupported) or note.
    """

    kind: str
    variant: str
    column: str
    severity: Severity
    sentence: str


def mean_findings(table: Table) -> Iterator[Finding]:
    """Yield a finding for each mean, or total, that rounding cannot explain."""
    for row in table.rows:
        if not is_wrong_mean(table, row):
            continue
        parts, printed = table.parts(row) or {}, table.rows[row][table.mean].number
        count, what = (1, "total") if table.has_totals else (len(parts), "mean")
        value = printed.show(float(sum(part.exact for part in parts.values()) / count))
        added = " + ".join(map(str, parts.values()))
        start = f"{row}: the {what} is reported as {printed}, but "
        start += f"{added} = {value}" if table.has_totals else f"({added}) / {count} = {value}"
        if not table.has_totals and table.fits(row, table.items):
            text = f"{start}; the reported mean weights each part by its number of items."
            yield Finding("mean", row, table.mean, "note", text)
        else:
            yield Finding("mean", row, table.mean, "error", f"{start}.")


def is_wrong_mean(table: Table, row: str) -> bool:
    """Return whether a row's mean (or total) differs by more than rounding from the mean (or total) of the parts."""
    return not table.fits(row, table.ones, total=table.has_totals)
