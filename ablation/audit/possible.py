"""Check whether counts of items can give the printed means (GRIM) and standard deviations (GRIMMER).

GRIM is by Brown and Heathers (2017, Social Psychological and Personality Science 8, 363-369). GRIMMER (Anaya 2016,
PeerJ Preprints 4:e2400) is in the analytic form of Allard (2018): the sum and the sum of squares of integers have the
same parity, and the sum of squares gives the standard deviation. Counts also lie between 0 and the number of items.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, sqrt

from ablation.audit.counts import MOST_RUNS, Evaluation, Lattice, TooLongError
from ablation.audit.table import Finding, Severity, Table
from ablation.config.printed import Printed
from ablation.contract.numbers import counted, fixed, percent


def attainability_findings(table: Table) -> Iterator[Finding]:
    """Yield a finding for each cell that no count can give, and a note for each column on the power of this test."""
    worth = []
    for column, items in table.items.items():
        numbers = table.column(column)
        if not numbers:
            continue
        evaluation = Evaluation(items, table.batches, table.target)
        missed = 0
        for row, number in numbers.items():
            try:
                finding = _cell(table, evaluation, row, column, number)
            except TooLongError:  # with so many values, some sum always fits
                continue
            if finding is not None:
                yield finding
                missed += not evaluation.batched.can_be_mean(number.low, number.high, table.runs or 1)
        worth.append(_worth(evaluation, column, list(numbers.values()), missed))
    yield from worth


def _cell(table: Table, evaluation: Evaluation, row: str, column: str, number: Printed) -> Finding | None:
    if evaluation.gives_all(number):
        return None
    runs = table.runs or 1

    def can_be(lattice: Lattice) -> bool:
        return lattice.can_be_mean(number.low, number.high, runs)

    batches = "the mean over batches of " + ", each averaged over batches of ".join(map(str, table.batches))
    if can_be(evaluation.plain) or (runs > 1 and evaluation.can_be_of_mean(number, runs)):
        if runs > 1 or can_be(evaluation.batched):
            return None
        said = f"{row}, {column}: {number} can be {table.formula(evaluation.items)} for an integer k, but not {batches}"
        return Finding("attainability", row, column, "note", f"{said}, although the source averages over batches.")
    near = " and ".join(number.show(value) for value in dict.fromkeys(evaluation.plain.neighbours(number.exact)))
    what = f"{table.formula(evaluation.items)} for any integer k (nearest: {near})"
    start = f"{row}, {column}: {number} is not {what}"
    if runs > 1:
        mean = f"the mean over {runs} runs of {table.formula(evaluation.items)}"
        both = f"neither {mean} nor the distance between the mean rate of these runs and the target"
        start = f"{row}, {column}: {number} is {f'not {mean}' if table.target is None else both}"
    if evaluation.has_uneven_batches:
        if can_be(evaluation.batched):
            values = evaluation.batched.inside(number.low, number.high) if runs == 1 else ()
            nearest = min(values, key=lambda value: abs(value - number.exact), default=None)
            shown = "" if nearest is None else f" ({number.show(float(nearest), more=2)})"
            return Finding("attainability", row, column, "note", f"{start}, but it can be {batches}{shown}.")
        if runs == 1:
            near = " and ".join(number.show(value, more=1) for value in evaluation.batched.neighbours(number.exact))
            start += f", nor a {batches.removeprefix('the ')} (nearest: {near})"
        else:
            start += f", nor the mean over {runs} runs of {batches}"
    said, possible = _how_many_runs(evaluation, number)
    severity: Severity = "warn" if possible and table.runs is None else "error"
    cannot = "no single run can give it" if runs == 1 else f"{runs} runs cannot give it"
    return Finding("attainability", row, column, severity, f"{start}, so {cannot}; {said}.")


def _how_many_runs(evaluation: Evaluation, number: Printed) -> tuple[str, bool]:
    """Return, in words, the fewest runs that could give the number, and whether up to MOST_RUNS runs could."""
    what = "rates" if evaluation.target is None else "per-run distances"
    said, possible = [], False
    lattices = {"": evaluation.plain} | ({" over batches": evaluation.batched} if evaluation.has_uneven_batches else {})
    for ending, lattice in lattices.items():
        runs = lattice.fewest_runs(number)
        if runs is not None:
            said.append(f"a mean of {what}{ending} needs at least {counted(runs, 'run')}")
        elif number.high < lattice.least:
            least = number.show(float(lattice.least), more=1)
            said.append(f"no mean of {what}{ending} can give this number, because all {what} are at least {least}")
        elif number.low > lattice.largest:
            most = number.show(float(lattice.largest))
            said.append(f"no mean of {what}{ending} can give this number, because all {what} are at most {most}")
        else:
            said.append(f"no mean of {what}{ending} from up to {MOST_RUNS} runs can give this number")
        possible |= runs is not None
    if evaluation.target is not None:
        runs = evaluation.fewest_runs_of_mean(number)
        said.append(
            f"a mean rate with this distance from the target needs at least {counted(runs, 'run')}"
            if runs
            else f"no mean rate of up to {MOST_RUNS} runs has this distance from the target"
        )
        possible |= runs is not None
    return "; ".join(said), possible


def _worth(evaluation: Evaluation, column: str, numbers: list[Printed], missed: int) -> Finding:
    """Return a note on the share of printable values that one run can give; with a large share, the test is weak."""
    finest = max(numbers, key=lambda number: -number.exact_half)
    reached, total = evaluation.share(finest)
    share = Fraction(reached, total)
    hits = len(numbers) - missed
    text = (
        f"{column}: one run over {evaluation.items} items{' in batches' if evaluation.has_uneven_batches else ''} "
        f"can give {reached:,} ({percent(float(share), 1)}) of {total:,} values with as many decimals as {finest}; "
        f"{hits} of {len(numbers)} printed values are attainable"
    )
    if share > Fraction(1, 2):
        text += ", but so are most values with that many decimals"
    elif missed and hits <= 2 * share * len(numbers):
        text += f", which chance alone could explain (expected: {fixed(float(share * len(numbers)), 1)})"
    return Finding("share", "", column, "note", f"{text}.")


MOST_SUMS = 5000  # sums of counts that one printed mean may have; with more, some count always fits


@dataclass(frozen=True)
class Step:
    """A grid of possible values: `offset + unit * integer`, with integers from 0 to `most` (None: any integer)."""

    offset: Fraction = Fraction(0)
    unit: Fraction = Fraction(1)
    most: int | None = None


def is_possible(mean: Printed, spread: Printed, runs: int, step: Step, *, population: bool = False) -> bool:
    """Return whether `runs` values can have this mean and this standard deviation, each as printed.

    `population`: the deviation divides by the number of runs, not by one less.
    """
    first = ceil((mean.low - step.offset) * runs / step.unit)
    last = floor((mean.high - step.offset) * runs / step.unit)
    if step.most is not None:
        first, last = max(first, 0), min(last, runs * step.most)
    if last - first >= MOST_SUMS:
        return True
    divisor = runs if population else runs - 1
    low, high = (max(bound, Fraction(0)) ** 2 * divisor / step.unit**2 for bound in (spread.low, spread.high))
    return any(_has_squares(total, runs, low, high, step.most) for total in range(first, last + 1))


def _has_squares(total: int, runs: int, low: Fraction, high: Fraction, most: int | None) -> bool:
    """Return whether integers with this sum can have a sum of squared deviations in [low, high]."""
    centre = Fraction(total * total, runs)
    base, extra = divmod(total, runs)
    least = runs * base * base + extra * (2 * base + 1)  # as equal as integers can be
    first, last = max(ceil(centre + low), least), floor(centre + high)
    if most is not None:
        full, rest = divmod(total, most) if most else (0, 0)
        last = min(last, full * most * most + rest * rest)  # as unequal as the bounds allow
    first += (first - total) % 2
    return first <= last


def grimmer_findings(table: Table) -> Iterator[Finding]:
    """Yield a finding for each cell whose mean and spread are impossible together; none if the runs are unknown."""
    for row, cells in table.rows.items():
        for column, cell in cells.items():
            step = None if cell.spread is None or column not in table.items else _step(table, table.items[column])
            if step is None or cell.spread is None or table.runs is None or table.runs < 2:
                continue
            start = f"{row}, {column}: {cell}"
            if is_possible(cell.number, cell.spread, table.runs, step):
                continue
            if is_possible(cell.number, cell.spread, table.runs, step, population=True):
                why = f"only if the divisor of the standard deviation is {table.runs}, not {table.runs - 1}"
                yield Finding("grimmer", row, column, "note", f"{start} is possible {why}.")
                continue
            largest = sqrt(table.runs / (table.runs - 1)) * float(step.unit * (step.most or 0)) / 2
            over = cell.spread.low > Fraction(largest) * Fraction(1001, 1000)
            why = f"; the standard deviation is at most {cell.number.show(largest)}" if over else ""
            text = (
                f"{start} cannot be the mean and standard deviation of {table.runs} values of "
                f"{table.formula(table.items[column])}, whether the divisor is {table.runs - 1} or {table.runs}{why}."
            )
            yield Finding("grimmer", row, column, "warn" if table.batches else "error", text)


def _step(table: Table, items: int) -> Step | None:
    """Return the grid of the possible values; None for a target other than 1/2, whose distances have two grids.

    Rates are k/n. Distances from 1/2 are k/n, or (k + 1/2)/n for odd n.
    """
    if table.target is None:
        return Step(unit=Fraction(1, items), most=items)
    if table.target == Fraction(1, 2):
        return Step(Fraction(items % 2, 2 * items), Fraction(1, items), items // 2)
    return None
