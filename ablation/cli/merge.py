"""The command `merge`: adds the stages of another results folder."""

import argparse
from dataclasses import asdict
from pathlib import Path

from ablation.cli.common import add_json, add_results, print_json, results_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Add the stages of another results folder, such as another site's half of the grid.\n"
        "Stages made from the same inputs have the same key. If a key ended well in both folders with different items, "
        "weights or metrics, that is an error, and nothing is added."
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
    left = f", {merged.left_out} left out: they did not end well, or are damaged" if merged.left_out else ""
    print(f"{merged.added} stages added, {merged.in_both} in both{left}")
    return 0
