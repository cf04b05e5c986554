"""The command `figures`: forest plots, learning curves, primary metrics and variant trees."""

import argparse
from pathlib import Path

from ablation.cli.common import add_reports, add_results, claimed_reports, print_paths, results_folder
from ablation.contract.extras import need


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Draw each study's forest plot, learning curves, primary metric and variant tree."
    add_results(parser)
    add_reports(parser)
    kinds = ("svg", "pdf", "png")
    parser.add_argument(
        "--format", nargs="+", choices=kinds, default=["svg", "pdf"], help="file formats (default: svg pdf)"
    )
    parser.add_argument(
        "--style", type=Path, metavar="FILE", help="a matplotlib style sheet to apply on top of the tracker's own"
    )
    said = "compare each variant in the forest plot with its parent (default) or with the root"
    parser.add_argument("--against", choices=("parent", "root"), default="parent", help=said)
    said = "order of the forest plot's rows: as in the variant tree (default), or the largest effect first"
    parser.add_argument("--sort", choices=("tree", "effect"), default="tree", help=said)


def run(arguments: argparse.Namespace) -> int:
    """Draw the figures."""
    need("matplotlib", "`ablation figures`")
    from ablation.show.figures import render_figures
    from ablation.store.current import load_or_collect

    database = load_or_collect(results_folder(arguments))
    reports = claimed_reports(arguments)
    rows = {"against": arguments.against, "order": arguments.sort}
    return print_paths(render_figures(database, reports, arguments.format, arguments.style, **rows))
