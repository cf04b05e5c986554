"""The command line: one parser, whose commands live beside the part that they show."""

import argparse
import sys
from collections.abc import Sequence

from contract.errors import TrackerError
from contract.lifetime import end_with_parent
from tracker.cli import analysis as cli_analysis
from tracker.cli import configs as cli_configs
from tracker.cli import report as cli_report
from tracker.cli import results as cli_results


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of `python -m tracker`; each command sets `run`, a function of the parsed arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m tracker",
        description="What exactly changed between two variants, whether it helped, and whether to believe it.",
    )
    parser.add_argument("--parent", type=int, help="process id of the caller, with which this process ends")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    cli_configs.register(commands)
    cli_results.register(commands)
    cli_analysis.register(commands)
    cli_report.register(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status. Known errors become one line on stderr and status 2."""
    arguments = build_parser().parse_args(argv)
    if arguments.parent is not None:
        end_with_parent(arguments.parent)
    try:
        return arguments.run(arguments) or 0
    except TrackerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `python -m tracker sql ... | head`
        sys.stderr.close()
        return 0
    except OSError as error:  # a full disk, a folder that cannot be read
        print(f"error: {error}", file=sys.stderr)
        return 2
