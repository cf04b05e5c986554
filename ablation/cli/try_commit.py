"""The command `try`: one call in a loop that edits, commits, trains and keeps or drops."""

import argparse
import sys
from pathlib import Path

from ablation.cli.common import print_json
from ablation.cli.options import add_json
from ablation.contract.atomic import WriteError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Run the code of HEAD, or of the working tree if it has changes, and say whether the loop "
        "keeps it.\nExit code: 0 keep the commit; 10 reset it; 11 run again; 12 it crashed; 13 "
        "refused; 2 bad input.\nStart with: ablation campaign init"
    )
    add = parser.add_argument
    add("--why", required=True, metavar="TEXT", help="what the change is, for the ledger")
    said = "better, or not-worse for a simplification (default: better)"
    add("--claim", choices=("better", "not-worse"), default="better", help=said)
    add(
        "--margin",
        type=float,
        metavar="M",
        help="amount by which a simplification may be worse (default: the campaign's)",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Try the commit."""
    from ablation.campaign.repository import Repository
    from ablation.campaign.trial import AGAIN, try_commit

    simplified = arguments.claim == "not-worse"
    try:
        answer = try_commit(Repository(Path()), arguments.why, simplified=simplified, margin=arguments.margin)
    except WriteError as error:
        print(f"error: {error}", file=sys.stderr)
        return AGAIN
    if arguments.json:
        print_json("try", [], exit=answer.exit, said=answer.lines, **answer.fields)
    else:
        print("\n".join(answer.lines))
    return answer.exit
