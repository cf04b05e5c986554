"""The command line: find the command, run it, and report known errors in one line."""

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

BROKEN_PIPE = 141  # the status that a shell gives a program that SIGPIPE ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status. Known errors become one line on stderr and status 2."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller; without this, the next opened file would get its number
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    try:
        try:
            words = sys.argv[1:] if argv is None else argv
            if completes := "_ARGCOMPLETE" in os.environ:  # a shell asks for completions of a line
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
            sys.stdout.flush()  # fail if the output cannot be written
    except BrokenPipeError:  # `ablation sql ... | head -1`
        _discard(sys.stdout, sys.stderr)
        return BROKEN_PIPE
    except OSError as error:  # standard output is a file, and its disk is full
        _discard(sys.stdout)
        print(f"error: standard output cannot be written ({error.strerror}); redirect it elsewhere", file=sys.stderr)
        return 2


def _discard(*streams: TextIO) -> None:
    """Discard what the streams have not written, so that Python can close them."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        with suppress(OSError):  # a stream that is not a file
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.parent is not None:
        end_with_parent(arguments.parent)
    try:
        return int(arguments.run(arguments))
    except BrokenPipeError:
        raise
    except (TrackerError, OSError) as error:  # OSError: a full disk, a folder that cannot be read
        print(f"error: {explained(error)}", file=sys.stderr)
        return 2
