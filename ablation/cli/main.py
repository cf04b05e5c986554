"""The command line: finds the command, runs it, and reports known errors in one line."""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import TextIO

from ablation.cli.common import Shown
from ablation.cli.parser import SUMMARIES, build_parser
from ablation.contract.errors import TrackerError, explained
from ablation.contract.process import end_with_parent

BROKEN_PIPE = 141  # as a shell says of a program that SIGPIPE has ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status. Known errors become one line on stderr and status 2."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller: the next file that is opened must not take its place
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    try:
        try:
            words = sys.argv[1:] if argv is None else argv
            if completes := "_ARGCOMPLETE" in os.environ:  # a shell asks how the line may go on that is being typed
                words = os.environ.get("COMP_LINE", "").split()[1:]
            parser = build_parser(next((word for word in words if word in SUMMARIES), ""))
            if completes:
                import argcomplete

                argcomplete.autocomplete(parser)
            arguments = parser.parse_args(words)
            if "run" not in arguments:
                parser.print_help()
                return 0
            with redirect_stdout(Shown(sys.stdout)), redirect_stderr(Shown(sys.stderr)):  # type: ignore[type-var]
                return _run(arguments)
        finally:
            sys.stdout.flush()  # an answer that nobody could read must not end as one that was read
    except BrokenPipeError:  # `ablation sql ... | head -1`
        _discard(sys.stdout, sys.stderr)
        return BROKEN_PIPE
    except OSError as error:  # standard output is a file, and its disk is full
        _discard(sys.stdout)
        print(f"error: standard output cannot be written ({error.strerror})", file=sys.stderr)
        return 2


def _discard(*streams: TextIO) -> None:
    """Discard what is left in streams, so that Python can close them."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        with suppress(OSError):  # one that is not a file needs nothing
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.parent is not None:
        end_with_parent(arguments.parent)
    try:
        return run_command(arguments)
    except TrackerError as error:
        print(f"error: {explained(error)}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk, a folder that cannot be read
        print(f"error: {explained(error)}", file=sys.stderr)
        return 2


def run_command(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status. Raises TrackerError and OSError."""
    return arguments.run(arguments) or 0
