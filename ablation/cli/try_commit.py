"""The command `try`: one trial in a loop that edits, commits, trains, and keeps or drops the commit."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ablation.cli.common import add_json, print_json
from ablation.contract.errors import explained

if TYPE_CHECKING:
    from ablation.campaign.trial import Answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Run the code of HEAD, or of the working tree if it has changes, and say whether the loop should keep it.\n"
        "Exit code: 0 keep the commit; 10 reset it; 11 run again; 12 it crashed; 13 refused; 2 bad input.\n"
        "Start with: ablation campaign init"
    )
    add = parser.add_argument
    add("--why", required=True, metavar="TEXT", help="description of the change, for the ledger")
    said = "better, or not-worse for a simplification, which must be equivalent within the margin (default: better)"
    add("--claim", choices=("better", "not-worse"), default="better", help=said)
    add("--margin", type=float, metavar="M", help="margin of --claim not-worse (default: the campaign's)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Try the commit."""
    from ablation.campaign.repository import Repository
    from ablation.campaign.trial import try_commit

    simplified = arguments.claim == "not-worse"

    def asked() -> "Answer":
        return try_commit(Repository(Path()), arguments.why, simplified=simplified, margin=arguments.margin)

    return answered("try", asked, as_json=arguments.json)


def answered(command: str, ask: "Callable[[], Answer]", *, as_json: bool) -> int:
    """Print an answer and return its exit code; if a file cannot be written, the exit code is that of `run again`."""
    from ablation.campaign.trial import AGAIN

    try:
        answer = ask()
    except OSError as error:
        print(f"error: {explained(error)}", file=sys.stderr)
        return AGAIN
    if as_json:
        print_json(command, [], exit=answer.exit, said=answer.lines, **answer.fields)
    else:
        print("\n".join(answer.lines))
    return answer.exit
