"""Run a command, and end it together with all processes that it started.

    python -P ablation/runner/command_guard.py PARENT GRACE WORD...

Its exit status is the command's. All processes below this one get SIGTERM and, GRACE seconds later, SIGKILL when the
process PARENT, the stage's runner, ends in any way; when this process gets SIGTERM, SIGINT or SIGHUP; or when the
command ends and leaves them running. On Linux this includes processes with their own groups and sessions (Ray,
torchrun), because orphans below this process become its children.

This process, but not the command, has the descriptors of the stage's locks, so folder and devices stay locked until the
last process of the command has ended.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LINUX = sys.platform.startswith("linux")
_STUBBORN = 60.0  # seconds after which processes that survive SIGKILL, as in a broken driver, are abandoned
NOT_FOUND, NOT_RUN = 127, 126  # exit statuses of a shell


def main(arguments: list[str]) -> int:
    """Run the command; return its exit status, or minus the number of the signal that ended it."""
    parent, grace, words = int(arguments[0]), float(arguments[1]), arguments[2:]
    adopt_orphans()
    awaited = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signal.signal(signal.SIGCHLD, lambda *_: None)  # by default the signal is discarded
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    _ask_at_end_of(parent, signal.SIGTERM)
    guard = os.getpid()

    def in_child() -> None:
        _ask_at_end_of(guard, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:  # the Popen is kept, because one that is deleted reaps an ended command, whose status is then lost
        command = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=in_child)  # noqa: PLW1509
    except OSError as error:
        print(f"error: {words[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN
    code = None
    while code is None and signal.sigwait(awaited) == signal.SIGCHLD:
        code = _reap().get(command.pid)
    left = end_below(grace)
    if code is not None and left:
        processes = "1 process" if left == 1 else f"{left} processes"
        print(f"the command left {processes} running, which the tracker ended", file=sys.stderr, flush=True)
    return -signal.SIGTERM if code is None else code


def adopt_orphans() -> None:
    """Make this process the parent of orphaned processes below it, so that they can be found and ended."""
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _ask_at_end_of(parent: int, number: int) -> None:
    """Arrange for this process to get a signal when its parent ends, or at once if the parent has already ended."""
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os.kill(os.getpid(), number)


def end_below(grace: float) -> int:
    """End all processes below this one, by force after `grace` seconds; return how many there were at first."""
    first = left = _below()
    if not left:
        return 0
    import psutil

    signalled: set[psutil.Process] = set()
    deadline = time.monotonic() + grace
    while left and time.monotonic() < deadline + _STUBBORN:
        late = time.monotonic() >= deadline
        for process in left if late else left - signalled:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL if late else signal.SIGTERM)
        signalled |= left
        psutil.wait_procs(left, timeout=0.2)
        left = _below()
    return len(first)


def _below() -> "set[psutil.Process]":
    """Return the live descendants of this process."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:  # no children, so psutil, which loads slowly, is not needed
        return set()
    import psutil

    def is_alive(process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return process.status() != psutil.STATUS_ZOMBIE
        return False

    return set(filter(is_alive, psutil.Process().children(recursive=True)))


def _reap() -> dict[int, int]:
    """Return {process id: exit status} of the processes below this one that have ended since the last call."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended[child[0]] = os.waitstatus_to_exitcode(child[1])
    return ended


if __name__ == "__main__":
    status = main(sys.argv[1:])
    if status < 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-status})
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        with contextlib.suppress(OSError):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command crashed, so this process dumps no core
        os.kill(os.getpid(), -status)
    os._exit(status)
