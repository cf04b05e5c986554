"""Whether some counts give all columns, the mean and the claims at once: a small search over whole numbers of items.

Statements may be possible one by one but not together: 5/20 and 9/40 print as they should, but their mean does not. A
statement that already follows from the printed numbers adds no constraint: authors also compute with rounded numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ablation.audit.claims import follows, points
from ablation.audit.counts import Evaluation
from ablation.audit.finding import Finding
from ablation.audit.means import is_wrong_mean
from ablation.audit.table import Table
from ablation.config.published_schema import Claim

MOST_VALUES = 60  # values of one cell; more constrain nothing beyond rounding
MOST_STEPS = 200_000  # of one search

Place = tuple[str, str]  # row, column
Values = Mapping[Place, Fraction]


@dataclass(frozen=True)
class Statement:
    """A statement of the source that the counts must satisfy: the ratio of two sums of cells lies in [low, high]."""

    said: str
    top: tuple[Place, ...]
    bottom: tuple[Place, ...]  # empty: the mean of `top` itself
    low: Fraction
    high: Fraction

    @property
    def places(self) -> tuple[Place, ...]:
        """The cells that it is about."""
        return (*self.top, *self.bottom)

    def holds(self, values: Values) -> bool:
        """Whether it is true of these values."""
        top = sum((values[place] for place in self.top), Fraction(0)) / len(self.top)
        if not self.bottom:
            return self.low <= top <= self.high
        bottom = sum((values[place] for place in self.bottom), Fraction(0)) / len(self.bottom)
        return bottom == 0 or self.low <= top / bottom <= self.high


def together_findings(table: Table) -> Iterator[Finding]:
    """Sets of statements, as small as can be, that no counts satisfy together."""
    values = _values(table)
    statements = [s for s in _statements(table) if all(place in values for place in s.places)]
    for group in _connected(statements):
        if _satisfiable(group, values) is not False:
            continue
        core = list(group)
        for statement in group:  # statements not needed for the contradiction are left out
            rest = [other for other in core if other is not statement]
            if rest and _satisfiable(rest, values) is False:
                core = rest
        places = list(dict.fromkeys(place for statement in core for place in statement.places))
        counts = ", ".join(f"{row} {column} {_options(values[row, column])}" for row, column in places)
        said = " and ".join(statement.said for statement in core)
        text = f"No counts of items give {said} at once with the columns, which leave: {counts}."
        yield Finding("together", places[0][0], "", "error", text)


def _values(table: Table) -> dict[Place, tuple[Fraction, ...]]:
    """The exact values that counts allow a cell; cells that no count gives, or too many, are left out."""
    found: dict[Place, tuple[Fraction, ...]] = {}
    if table.runs is not None and table.runs > 1:
        return found
    for column, items in table.items.items():
        evaluation = Evaluation(items, table.batches, table.target)
        lattices = (evaluation.plain, evaluation.batched) if evaluation.has_uneven_batches else (evaluation.plain,)
        for row, number in table.column(column).items():
            inside = {value for lattice in lattices for value in lattice.inside(number.low, number.high)}
            if 0 < len(inside) <= MOST_VALUES:
                found[row, column] = tuple(sorted(inside))
    return found


def _statements(table: Table) -> Iterator[Statement]:
    for row in table.rows:
        rounded = table.mean_of_parts(row)
        if rounded is None or not table.has_mean(row) or is_wrong_mean(table, row):
            continue
        printed = table.rows[row][table.mean].number
        if not printed.low <= rounded <= printed.high:
            places = tuple((row, column) for column in table.items)
            yield Statement(f"the mean {printed} of {row}", places, (), printed.low, printed.high)
    for claim in table.claims:
        if (statement := _claim(table, claim)) is not None:
            yield statement


def _claim(table: Table, claim: Claim) -> Statement | None:
    new, old = table.number(claim.variant, claim.column), table.number(claim.against, claim.column)
    if new is None or old is None or old.low <= 0 or not follows(table, claim):
        return None
    percent, half = points(claim)
    if abs(100 * (new.exact / old.exact - 1) - percent) <= half:
        return None
    columns = [claim.column] if claim.column in table.items else list(table.items)
    if claim.column not in (*table.items, table.mean) or any(
        is_wrong_mean(table, row) for row in (claim.variant, claim.against) if claim.column == table.mean
    ):
        return None
    return Statement(
        f"{claim.percent.text.removesuffix('%')}% from {claim.against} to {claim.variant} in {claim.column}",
        tuple((claim.variant, column) for column in columns),
        tuple((claim.against, column) for column in columns),
        1 + (percent - half) / 100,
        1 + (percent + half) / 100,
    )


def _connected(statements: Sequence[Statement]) -> list[list[Statement]]:
    """Groups of statements that share cells, directly or through others."""
    groups: list[list[Statement]] = []
    for statement in statements:
        touching = [group for group in groups if any(set(other.places) & set(statement.places) for other in group)]
        merged = [other for group in touching for other in group] + [statement]
        groups = [group for group in groups if group not in touching] + [merged]
    return groups


def _satisfiable(statements: Sequence[Statement], values: Mapping[Place, Sequence[Fraction]]) -> bool | None:
    """Whether some choice of values makes all statements true; None where the search would be too long."""
    places = list(dict.fromkeys(place for statement in statements for place in statement.places))
    position = {place: index for index, place in enumerate(places)}
    due: list[list[Statement]] = [[] for _ in places]
    for statement in statements:
        due[max(position[place] for place in statement.places)].append(statement)
    chosen: dict[Place, Fraction] = {}
    steps = 0

    def search(index: int) -> bool | None:
        nonlocal steps
        if index == len(places):
            return True
        for value in values[places[index]]:
            steps += 1
            if steps > MOST_STEPS:
                return None
            chosen[places[index]] = value
            if all(statement.holds(chosen) for statement in due[index]) and (found := search(index + 1)) is not False:
                return found
        return False

    return search(0)


def _options(values: Sequence[Fraction]) -> str:
    shown = [f"{value} = {float(value):.6f}" for value in values[:3]]
    return " or ".join(shown) + (f" and {len(values) - 3} more" if len(values) > 3 else "")
