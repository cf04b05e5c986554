"""The command `tables`: each study's table as files."""

import argparse

from ablation.cli.common import add_reports, add_results, claimed_reports, print_paths, results_folder
from ablation.contract.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Write each study's table as Markdown, CSV, LaTeX and HTML, its tables by subset as CSV and "
        "LaTeX, and runs.csv."
    )
    add_results(parser)
    add_reports(parser)
    said = "write only a table with a row for each value of this configuration key (by-KEY.md, .csv, .tex, .html)"
    parser.add_argument("--by", metavar="KEY", help=said)
    said = "also write numbers.tex, with a LaTeX macro for each number"
    parser.add_argument("--macros", action="store_true", help=said)


def run(arguments: argparse.Namespace) -> int:
    """Write the tables, or those by the value of one key."""
    from ablation.show.table_files import render_groups, render_tables
    from ablation.store.current import load_or_collect

    database = load_or_collect(results_folder(arguments))
    reports = claimed_reports(arguments)
    if arguments.by:
        if arguments.macros:
            raise ConfigError("tables", "--macros", None, "cannot be combined with --by", "leave one out")
        paths = render_groups(database, reports, arguments.by)
    else:
        paths = render_tables(database, reports, macros=arguments.macros)
    return print_paths(paths)
