"""The command `export-tables`: the database as Parquet files."""

import argparse
from pathlib import Path

from ablation.cli.common import add_results, print_paths, results_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Write each table and view of the database as a Parquet file."
    add_results(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="a new or empty folder")


def run(arguments: argparse.Namespace) -> int:
    """Write the files; print their paths."""
    from ablation.store.current import load_or_collect
    from ablation.store.export import export_tables

    return print_paths(export_tables(load_or_collect(results_folder(arguments)), arguments.output))
