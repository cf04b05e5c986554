"""The command `status`: what is done, what is running, what failed, and the time left."""

import argparse
import sys
from pathlib import Path

from ablation.cli.common import add_json, add_results, obeyed, print_json, results_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Show each study's progress, what is running, what failed, and the time left."
    add_results(parser)
    form = parser.add_mutually_exclusive_group()
    said = "list only the stages that failed or diverged, or are blocked or corrupt"
    form.add_argument("--failed", action="store_true", help=said)
    add_json(form)
    form.add_argument("--watch", action="store_true", help="repeat until everything is done; stop with Ctrl-C")


def run(arguments: argparse.Namespace) -> int:
    """Print the state of the grid, once or until it is done."""
    from ablation.store.progress import as_rows, describe, watch

    results = results_folder(arguments)
    if arguments.failed:
        return _failed(results)
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


def _failed(results: Path) -> int:
    from ablation.store.current import load_or_collect
    from ablation.store.progress import failures

    text, passed = failures(load_or_collect(results, strict=True))
    print(text, end="", file=sys.stdout if passed else sys.stderr)
    return 0 if passed else 1
