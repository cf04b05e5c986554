"""Run a program below a guard process, which can end all processes that the program started, and report its end.

This module imports little, because `ablation try` uses it without a stage or a log.
"""

import errno
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from signal import Signals
from typing import IO

from ablation.contract.display import one_line
from ablation.contract.numbers import stated
from ablation.runner.command_guard import adopt_orphans, end_below

GRACE = "10"  # seconds between SIGTERM and SIGKILL, unless ABLATION_GRACE names others
_GUARD = Path(__file__).with_name("command_guard.py")
_FROM_OUTSIDE = {Signals.SIGKILL, Signals.SIGTERM, Signals.SIGINT, Signals.SIGHUP}
_TAIL = 1 << 16
_SHELL = 128  # shells and similar programs add it to the number of the signal
_ERROR = re.compile(  # last line of a Python traceback, with or without a message
    r"(?:\[\w+\]: *)?([\w.]*(Error|Exception|Interrupt|Exit|Warning): .*|[\w.]+(Error|Exception|Interrupt|Exit))"
)
_WRAPPERS = ("CalledProcessError", "ChildFailedError")  # errors of launchers, which do not name the cause


class NoResult(OSError):
    """Raised if a command was ended from outside or the machine is misconfigured, so that the stage can run again."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.ECANCELED, text)

    def __str__(self) -> str:
        return str(self.strerror)


def run_guarded(
    words: Sequence[str],
    locks: Sequence[int],
    follow: Callable[[], None],
    *,
    minutes: float | None = None,
    log: IO[bytes] | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run a command below a guard process; return its exit status, or minus the number of the signal that ended it.

    All its processes have ended when this function returns or raises. locks: descriptors that only the guard inherits.
    follow: called every second. minutes: time limit, after which RuntimeError is raised. log, folder, environment:
    output, working folder and environment of the command, by default those of this process. Raises NoResult if
    ABLATION_GRACE is not valid.
    """
    grace = _grace()
    adopt_orphans()
    guard = subprocess.Popen(
        # -P excludes the folder of the script from the module path, but not a user's packages, as -I would.
        [sys.executable, "-P", str(_GUARD), str(os.getpid()), grace, *words],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C ends only this process, and so the command
        pass_fds=locks,
        stdout=log,
        stderr=log,
        cwd=folder,
        env=environment,
    )
    try:
        in_time = _ends_within(guard, minutes, follow)
    finally:
        guard.terminate()
        code = guard.wait()
        if code == -Signals.SIGKILL:  # the guard may have been killed, which makes its processes children of this one
            end_below(0)
    if not in_time and code < 0:
        raise RuntimeError(
            f"the command exceeded its time_limit of {stated(minutes)} min and was ended; raise the limit"
        )
    return code


def _ends_within(guard: subprocess.Popen[bytes], minutes: float | None, follow: Callable[[], None]) -> bool:
    """Wait for the guard's end or the time limit, calling `follow` every second; return whether the guard ended."""
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    while True:
        try:
            guard.wait(timeout=1)
        except subprocess.TimeoutExpired:
            follow()
            if deadline is not None and time.monotonic() > deadline:
                return False
        else:
            return True


def _grace() -> str:
    written = os.environ.get("ABLATION_GRACE") or GRACE
    try:
        if 0 <= float(written) < math.inf:
            return written
    except ValueError:
        pass
    problem = "is not a number of seconds of at least 0, such as 10"
    raise NoResult(f"ABLATION_GRACE = {written!r} {problem}; correct it, or unset it")


def failure(code: int, words: str) -> Exception:
    """Return the error for a command's exit status `code` other than 0; `words` is a line of its log (`last_words`).

    A negative `code` is minus the number of a signal. The error is NoResult if the command was ended from outside, else
    RuntimeError.
    """
    words = f": {words}" if words else ""
    number = -code if code < 0 else code - _SHELL
    if number in _FROM_OUTSIDE:
        return NoResult(f"the command was ended by {Signals(number).name}{words}")
    if code < 0:
        name = Signals(number).name if number in {*Signals} else f"signal {number}"
        return RuntimeError(f"the command was ended by {name}{words}")
    return RuntimeError(f"exit status {code}{words}")


def last_words(log: Path, begin: int) -> str:
    """Return the log line that most likely names the cause of a failure: the last error, or else the last line."""
    text = tail(log, begin).replace("\r\n", "\n")
    lines = list(filter(None, (line.rpartition("\r")[2].strip() for line in text.split("\n"))))
    errors = [line for line in lines if _ERROR.fullmatch(line) and not any(word in line for word in _WRAPPERS)]
    return one_line((errors or lines or [""])[-1], 300)


def tail(log: Path, begin: int) -> str:
    """Return the log from byte `begin` on, or from its start if a program has truncated it; at most the last 64 KiB."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(begin if begin <= size else 0, size - _TAIL))
            return file.read(_TAIL).decode(errors="replace")
    except OSError:  # the command removed it
        return ""
