"""Read a printed table from a CSV file whose first column names the rows and whose other columns hold numbers.

    row,gender,race,religion,mean
    baseline,0.0170,0.0410,0.0200,0.0277

Cells may be percentages (`51.7%`, or a heading with `%`), numbers with a spread (`0.512 ± 0.021`), or empty.
"""

import csv
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from ablation.config.names import suggest
from ablation.config.printed import Cell, Printed
from ablation.config.published_schema import PublishedFile, is_target, largest
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted, stated
from ablation.contract.reading import read_bytes

MEANS = ("mean", "average", "avg", "avg.", "overall", "all", "total")
MISSING = ("", "-", "–", "—", "n/a", "na", "nan", "none", "null", "/")
MOST_ITEMS = 1_000_000
_MOST_BYTES = 5_000_000


def read_table(
    file: Path,
    *,
    items: Sequence[str] = (),
    target: str | None = None,
    runs: int | None = None,
    percent: bool = False,
    columns: Sequence[str] = (),
) -> PublishedFile:
    """Read a table with the options of the command `audit`; if `columns` is empty, read all columns.

    `items` has numbers of items (one, one per column, or NAME=N); `percent` marks all numbers as percentages. Raises
    ConfigError, with line, column and value, if the table or an option is not valid.
    """
    lines = _lines(file)
    (_, heading), *body = lines
    names = _columns(file, heading, columns)
    percents = {column for column in names.values() if percent or "%" in column}
    if {column for column in names.values() if column.lower() not in MEANS} <= percents:
        percents = set(names.values())  # a mean of percentages is a percentage, even without a sign
    rows: dict[str, dict[str, Cell]] = {}
    for number, cells in body:
        where = f"{file}:{number}"
        if len(cells) != len(heading):
            problem = f"has {counted(len(cells), 'cell')}, but the heading has {len(heading)}"
            raise ConfigError(
                where, "", None, problem, "separate cells as in the heading, and put text with a separator in quotes"
            )
        name = cells[0].strip()
        if not name:
            raise ConfigError(where, heading[0], "", "the row has no name", "name the row in the first column")
        if name in rows:
            raise ConfigError(where, heading[0], name, "occurs twice", "give each row its own name")
        rows[name] = {}
        for place, column in names.items():
            text = cells[place].strip()
            if text.lower() not in MISSING:
                rows[name][column] = _cell(where, column, text, percent=column in percents)
    kept = [column for column in names.values() if any(column in row for row in rows.values())]
    mean = min(
        (column for column in kept if column.lower() in MEANS),
        key=lambda name: MEANS.index(name.lower()),
        default="mean",
    )
    counts, rate = _items(file, items, kept, mean), _target(target)
    _check_range(file, body, rows, counts, rate)
    return PublishedFile.model_validate(
        {
            "source": str(file),
            "metric": "rate" if rate is None else "distance",
            "target": rate,
            "items": counts,
            "runs": runs,
            "columns": kept,
            "mean": mean,
            "rows": {name: [row.get(column) for column in kept] for name, row in rows.items()},
        }
    )


def _lines(file: Path) -> list[tuple[int, list[str]]]:
    """Return the line number and the cells of each line; the delimiter is the most frequent one in the heading."""
    try:
        text = read_bytes(file).decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(file, "", None, "the file does not exist", "correct the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            file, "", None, f"cannot be read as UTF-8 text ({error})", "replace it with a readable UTF-8 file"
        ) from None
    if len(text) > _MOST_BYTES:
        remedy = f"shorten it to at most {_MOST_BYTES:,} characters"
        raise ConfigError(file, "", None, f"has {len(text):,} characters", remedy)
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(",\t;", key=first.count)
    reader = csv.reader(text.splitlines(), delimiter=delimiter)
    try:
        lines = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        remedy = "correct this line"
        raise ConfigError(f"{file}:{reader.line_num}", "", None, f"is not valid CSV ({error})", remedy) from None
    if len(lines) < 2:
        raise ConfigError(file, "", None, "does not contain a table", "write a heading line and at least one row")
    return lines


def _columns(file: Path, heading: Sequence[str], chosen: Sequence[str]) -> dict[int, str]:
    """Return {index: name} of the columns to read, without the first column, which names the rows."""
    names = [name.strip() for name in heading]
    for place, name in enumerate(names[1:], 1):
        if not name:
            raise ConfigError(file, f"column {place + 1}", "", "has no heading", "name every column in the first line")
        if name in names[1:place]:
            raise ConfigError(file, "heading", name, "occurs twice", "give each column its own name")
    for name in chosen:
        if name not in names[1:]:
            raise ConfigError(file, "--columns", name, "is not a column", suggest(name, names[1:]))
    if len(names) < 2:
        remedy = "add columns of numbers, because the first column names the rows"
        raise ConfigError(file, "heading", names[0], "is the only column", remedy)
    return {place: name for place, name in enumerate(names) if place and name in (chosen or names)}


def _cell(where: str, column: str, text: str, *, percent: bool) -> Cell:
    try:
        return Cell.of(text, percent=percent)
    except ValueError as error:
        problem, _, remedy = str(error).partition("; ")
        remedy = f"{remedy}; if the column holds no numbers, pass --columns with the columns that do"
        raise ConfigError(where, column, text, problem.partition("' ")[2] or problem, remedy) from None


def _items(file: Path, counts: Sequence[str], columns: Sequence[str], mean: str) -> dict[str, int]:
    """Return {column: number of items}; `counts` has one number for all, one per column, or NAME=N for some columns."""
    if not counts:
        return {}
    wanted = [column for column in columns if column != mean and column.lower() not in MEANS]
    if any("=" in count for count in counts):
        pairs = [count.rpartition("=")[::2] for count in counts]
    elif len(counts) == 1:
        pairs = [(name, counts[0]) for name in wanted or columns]
    elif len(counts) in (len(wanted), len(columns)):
        pairs = list(zip(columns if len(counts) == len(columns) else wanted, counts, strict=True))
    else:
        problem = f"has {counted(len(counts), 'number')}, but the table has {counted(len(wanted), 'column')}"
        problem += f" ({', '.join(wanted)})"
        remedy = "give one number per column, one for all columns, or NAME=N for some columns"
        raise ConfigError(file, "--items", " ".join(counts), problem, remedy)
    items: dict[str, int] = {}
    for name, number in pairs:
        if name.strip() not in columns:
            raise ConfigError(file, "--items", name or number, "is not a column", suggest(name.strip(), columns))
        if not number.strip().isdecimal() or not 0 < int(number) <= MOST_ITEMS:
            remedy = f"write a whole number from 1 to {MOST_ITEMS:,}, such as 253"
            raise ConfigError(file, "--items", number, "is not a valid number of items", remedy)
        items[name.strip()] = int(number)
    return items


def _target(text: str | None) -> Printed | None:
    if text is None:
        return None
    try:
        target = Printed.of(text)
    except ValueError:
        target = None
    if target is None or not is_target(target):
        remedy = "write a rate from 0 to 1 with at most six decimals, such as 0.5"
        raise ConfigError("audit", "--target", text, "is not a valid rate", remedy)
    return target


def _check_range(
    file: Path,
    body: Sequence[tuple[int, list[str]]],
    rows: Mapping[str, Mapping[str, Cell]],
    items: Mapping[str, int],
    target: Printed | None,
) -> None:
    """Raise ConfigError for a rate or distance out of range, which is most often a percentage without a sign."""
    most = largest(None if target is None else target.exact)

    def fits(number: Printed) -> bool:
        return 0 <= number.exact <= most

    counted = {name: [row[name].number for row in rows.values() if name in row] for name in items}
    others = list(dict.fromkeys(name for row in rows.values() for name in row if name not in items))
    for (number, _), cells in zip(body, rows.values(), strict=True):
        for column, cell in cells.items():
            if column not in items or fits(cell.number):
                continue
            what, remedy = "rate", "pass --percent if the numbers are percentages"
            kept = [name for name in counted if all(map(fits, counted[name]))]
            if (cell.number.percent or abs(cell.number.exact) > 100) and kept:
                remedy = f"pass --columns {shlex.join((*kept, *others))} to leave out columns that hold no rates"
            if target is not None:
                what = f"distance of a rate from {target}"
                remedy += "; leave out --target if the numbers are the rates themselves"
            problem = f"is not a {what}, which must be from 0 to {stated(float(most))}"
            raise ConfigError(f"{file}:{number}", column, str(cell.number), problem, remedy)
