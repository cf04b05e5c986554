"""The command `merge`: adds the stages of another results folder."""

import argparse
from dataclasses import asdict
from pathlib import Path

from ablation.cli.common import add_json, add_results, print_json, results_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Add the stages of another results folder, such as the half of the grid that another site ran.\n"
        "Stages made from the same inputs have the same key. If a stage succeeded in both folders with different "
        "items, weights or metrics, the command reports an error and adds nothing."
    )
    add_results(parser)
    add_json(parser)
    parser.add_argument("other", metavar="OTHER_RESULTS", type=Path)
    parser.add_argument("--site", help="the folder's name in the provenance of the stages (default: its path)")


def run(arguments: argparse.Namespace) -> int:
    """Add the stages of another results folder."""
    from ablation.store.merge import merge

    merged = merge(results_folder(arguments), arguments.other, arguments.site or str(arguments.other))
    if arguments.json:
        print_json("merge", [], **asdict(merged))
        return 0
    left = f", {merged.left_out} left out because they did not succeed or are damaged" if merged.left_out else ""
    print(f"{merged.added} stages added, {merged.in_both} in both folders{left}")
    return 0
