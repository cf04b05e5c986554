"""The command `check-paper`: whether the numbers of a paper still match the results."""

import argparse
from pathlib import Path

from ablation.cli.common import add_json, add_results, open_store, print_json, results_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Check that a paper's numbers, which `tables --macros` wrote, still match the results."
    add_results(parser)
    add_json(parser)
    parser.add_argument("paper", metavar="PAPER.tex", type=Path)


def run(arguments: argparse.Namespace) -> int:
    """Print each number that does not match, and how many do."""
    from ablation.show.table_files import all_numbers, check_paper

    with open_store(results_folder(arguments), strict=True) as store:
        checked = check_paper(arguments.paper, all_numbers(store))
    if arguments.json:
        print_json("check-paper", [{"problem": problem} for problem in checked.problems], matching=checked.matching)
    else:
        for problem in checked.problems:
            print(problem)
        total = checked.matching + len(checked.problems)
        print(f"{arguments.paper}: {checked.matching} of {total} numbers match the results")
    return 1 if checked.problems else 0
