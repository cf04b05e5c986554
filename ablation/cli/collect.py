"""The command `collect`: brings the database up to date."""

import argparse
import sys

from ablation.cli.common import add_json, add_results, print_json, results_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Update the database from the stage folders. The old database stays in place until the new one is complete."
    )
    add_results(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Rebuild the database; print what is in it."""
    from ablation.store.collect import collect

    collected = collect(results_folder(arguments))
    if arguments.json:
        counts = [{"state": state, "stages": count} for state, count in collected.states.items()]
        print_json("collect", counts, tables=collected.rows, problems=list(map(str, collected.problems)))
        return 0
    rows = ", ".join(f"{count} {table}" for table, count in collected.rows.items())
    states = ", ".join(f"{count} {state}" for state, count in collected.states.items())
    for problem in collected.problems:
        print(f"note: {problem}", file=sys.stderr)
    print(f"{collected.database}: {rows}; stages: {states}")
    return 0
