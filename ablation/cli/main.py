"""The command line: finds the command, runs it, and reports known errors in one line."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module

from ablation.cli.common import Shown
from ablation.cli.parser import build_parser
from ablation.contract.errors import TrackerError, explained
from ablation.contract.process import end_with_parent


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status. Known errors become one line on stderr and status 2."""
    arguments = build_parser().parse_args(argv)
    with redirect_stdout(Shown(sys.stdout)), redirect_stderr(Shown(sys.stderr)):  # type: ignore[type-var]
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.parent is not None:
        end_with_parent(arguments.parent)
    try:
        return run_command(arguments)
    except TrackerError as error:
        print(f"error: {explained(error)}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `python -m ablation sql ... | head`
        sys.stderr.close()
        return 0
    except OSError as error:  # a full disk, a folder that cannot be read
        print(f"error: {explained(error)}", file=sys.stderr)
        return 2


def run_command(arguments: argparse.Namespace) -> int:
    """Import the module of the command, run it, and return its exit status. Raises TrackerError and OSError."""
    module, _, function = arguments.run.partition(":")
    return getattr(import_module(module), function)(arguments) or 0
