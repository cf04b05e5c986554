"""The command `sql`: query the database."""

import argparse
import csv
import math
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from ablation.cli.common import add_shared, open_store, print_json, results_folder
from ablation.contract.display import aligned, no_formula, one_line
from ablation.contract.numbers import stated

WIDEST = 60  # characters of one cell on a terminal


def declare_sql(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `sql`."""
    parser.description = "Query the database. It is opened read-only, and a query cannot read any other file."
    parser.epilog = (
        "tables: studies, variants, runs, results, curves, items, stages, metrics, health, published "
        "(docs/reference/database.md)\n\n"
        "example:\n"
        "  ablation sql \"select variant, avg(value) from results where metric = 'edited/mean/ss' group by all\""
    )
    add_shared(parser, "--results")
    parser.add_argument("query", metavar="QUERY", help="one SQL statement, or - to read it from stdin")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--csv", action="store_true", help="print CSV at full precision")
    add_shared(shape, "--json")


def run_sql(arguments: argparse.Namespace) -> int:
    """Print the rows of one query."""
    query = sys.stdin.read() if arguments.query == "-" else arguments.query
    with open_store(results_folder(arguments)) as store:
        names, rows = store.rows(query)
    if arguments.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([[*map(no_formula, names)], *([_csv(value) for value in row] for row in rows)])
    elif arguments.json:
        print_json("sql", [dict(zip(names, row, strict=True)) for row in rows])
    else:
        print(text_table(names, rows))
    return 0


def text_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows in aligned columns for a terminal, with numbers aligned on the right."""
    if not names:
        return "(no columns)"
    kinds = [{type(row[place]) for row in rows if row[place] is not None} for place in range(len(names))]
    numeric = [bool(kind) and kind <= {int, float, Decimal} for kind in kinds]
    cells = [[one_line(name, WIDEST) for name in names], *([_text(value) for value in row] for row in rows)]
    cells.insert(1, ["-" * max(map(len, column)) for column in zip(*cells, strict=True)])
    lines = aligned(cells, numeric)
    return "\n".join([*lines, f"({len(rows)} {'row' if len(rows) == 1 else 'rows'})"])


def _text(value: Any) -> str:
    if value is None:
        return ""
    return stated(value) if isinstance(value, float) else one_line(value, WIDEST)


def _csv(value: Any) -> Any:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else no_formula(value)
