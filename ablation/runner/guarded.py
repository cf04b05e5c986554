"""Runs a program below a guard that can end it with all that it started, and says how the program ended.

Light, because `ablation try` imports it without a stage or a log.
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
_SHELL = 128  # a shell, and whoever speaks as one, adds the number of the signal
_ERROR = re.compile(  # a line of Python's tracebacks, with what the error says or without
    r"(?:\[\w+\]: *)?([\w.]*(Error|Exception|Interrupt|Exit|Warning): .*|[\w.]+(Error|Exception|Interrupt|Exit))"
)
_WRAPPERS = ("CalledProcessError", "ChildFailedError")  # of launchers, which say only that the program failed


class NoResult(OSError):
    """The command was ended from outside, or the machine is misconfigured: not the stage's fault."""

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
    """Run a command below a guard; return its exit status, or minus the number of the signal that ended it.

    When it returns or raises, nothing of the command is left. Its output goes to `log`, by default to this process's;
    it runs in `folder` with `environment`, by default this process's. Raises RuntimeError after the time limit.
    """
    grace = _grace()
    adopt_orphans()
    guard = subprocess.Popen(
        # -P: it finds psutil where this process does, in a user's packages too, and nothing beside its own file.
        [sys.executable, "-P", str(_GUARD), str(os.getpid()), grace, *words],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for this process, which ends the command by ending
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
        if code == -Signals.SIGKILL:  # the guard itself, perhaps: what it watched over is ours now
            end_below(0)
    if not in_time and code < 0:
        raise RuntimeError(f"the command was ended after its time_limit of {stated(minutes)} min")
    return code


def _ends_within(guard: subprocess.Popen[bytes], minutes: float | None, follow: Callable[[], None]) -> bool:
    """Wait for the end or the time limit, calling `follow` meanwhile; return whether the end came first."""
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
    """Return the seconds between SIGTERM and SIGKILL as text. Raises NoResult if ABLATION_GRACE is not valid."""
    written = os.environ.get("ABLATION_GRACE") or GRACE
    try:
        if 0 <= float(written) < math.inf:
            return written
    except ValueError:
        pass
    raise NoResult(f"ABLATION_GRACE = {written!r}: is not a number of seconds of at least 0; correct it, or unset it")


def failure(code: int, words: str) -> Exception:
    """Return the error for an exit status that is not 0; `words` are the last words of the command's log."""
    said = f": {words}" if words else ""
    number = -code if code < 0 else code - _SHELL
    if number in _FROM_OUTSIDE:
        return NoResult(f"the command was ended by {Signals(number).name}{said}")
    if code < 0:
        name = Signals(number).name if number in {*Signals} else f"signal {number}"
        return RuntimeError(f"the command was ended by {name}{said}")
    return RuntimeError(f"exit status {code}{said}")


def last_words(log: Path, begin: int) -> str:
    """Return the log line that best says why the command failed: the last error, or else the last line."""
    text = tail(log, begin).replace("\r\n", "\n")
    lines = [line.rpartition("\r")[2].strip() for line in text.split("\n")]
    spoken = [line for line in lines if line]
    errors = [line for line in spoken if _ERROR.fullmatch(line) and not any(word in line for word in _WRAPPERS)]
    return one_line((errors or spoken or [""])[-1], 300)


def tail(log: Path, begin: int) -> str:
    """Return the end of a log, from byte `begin` on, or from its start if a program emptied it (`> /dev/stderr`)."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(begin if begin <= size else 0, size - _TAIL))
            return file.read(_TAIL).decode(errors="replace")
    except OSError:  # the command removed it
        return ""
