"""The command `figures`: learning curves, primary metrics and variant trees."""

import argparse

from ablation.cli.common import claimed_reports, print_paths, results_folder
from ablation.cli.options import add_reports, add_results
from ablation.contract.extras import need


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Draw each study's learning curves, primary metric and variant tree."
    add_results(parser)
    add_reports(parser)
    kinds = ("svg", "pdf", "png")
    parser.add_argument("--format", nargs="+", choices=kinds, default=["svg"], help="file formats (default: svg)")


def run(arguments: argparse.Namespace) -> int:
    """Draw the figures."""
    need("matplotlib", "`ablation figures`")
    from ablation.show.figures import render_figures
    from ablation.store.current import load_or_collect

    database = load_or_collect(results_folder(arguments))
    return print_paths(render_figures(database, claimed_reports(arguments), arguments.format))
