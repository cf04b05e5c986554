"""The command `status`: what is done, runs, failed, and the time left."""

import argparse
import sys

from ablation.cli.common import obeyed, print_json, results_folder
from ablation.cli.options import add_json, add_results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Show each study's progress, what is running, what failed, and the time left."
    add_results(parser)
    add_json(parser)
    parser.add_argument("--watch", action="store_true", help="repeat until everything is done; stop with Ctrl-C")


def run(arguments: argparse.Namespace) -> int:
    """Print the state of the grid, once or until it is done."""
    from ablation.store.progress import as_rows, describe, watch

    results = results_folder(arguments)
    if arguments.json:
        print_json("status", as_rows(results))
        return 0
    if not arguments.watch:
        print(describe(results), end="")
        return 0
    clear = "\x1b[2J\x1b[H" if sys.stdout.isatty() else ""
    try:
        for text in watch(results):
            obeyed(clear)
            print(text, end="", flush=True)
    except KeyboardInterrupt:
        print()
    return 0
