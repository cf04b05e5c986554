"""Runs a command, and ends it with all that it started.

    python -I -S ablation/runner/command_guard.py WATCHED GRACE WORD...

Ends as the command does. When the pipe WATCHED (a descriptor) is closed, which happens when the stage's runner ends in
whatever way, a kill included, or when this process gets SIGTERM, SIGINT or SIGHUP, everything that runs below this
process gets SIGTERM and, GRACE seconds later, SIGKILL. So do processes that the command leaves running when it ends. On
Linux that covers processes in groups and sessions of their own (Ray, torchrun), since orphans below this process become
its children; elsewhere it covers the command's process group.

The descriptors of the stage's locks are open here, and not in the command: so folder and devices become free only when
no process of the command is left. If runner and guard are killed together, orphans live on without any lock: they carry
a mark of their folder in their environment, and the next attempt ends them first.

The command's output passes through here on its way to the log, so that the log is limited and the command can write for
as long as it runs, even if its runner is dead.

Only a few modules of the standard library are imported: this starts in 0.03 s.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LINUX = sys.platform.startswith("linux")
_STUBBORN = 60.0  # seconds after which a process that SIGKILL does not end, in a broken driver say, is left
NOT_FOUND, NOT_RUN = 127, 126  # exit statuses of a shell
HEAD, TAIL, MOST = 32 << 20, 16 << 20, 64 << 20  # bytes that the log keeps of the beginning, of the end, and in all
_LINE = 1 << 16  # so far the end of a line is looked for; a longer one is cut
MARK = "ABLATION_STAGE_FOLDER"  # in the environment of a command: the folder of its stage


def main(arguments: list[str]) -> int:
    """Run the command; return its exit status, or minus the number of the signal that ended it."""
    watched, grace, words = int(arguments[0]), float(arguments[1]), arguments[2:]
    adopt_orphans()
    waker, woken = os.pipe()
    for end in (waker, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    asked: list[int] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: asked.append(number))
    try:
        command, output = _start(words)
    except OSError as error:
        print(f"error: {words[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN
    writer = Thread(target=_pump, args=(output, 1), daemon=True)
    writer.start()
    poll = select.poll()
    poll.register(watched, select.POLLIN | select.POLLHUP)
    poll.register(waker, select.POLLIN)
    code = None
    while code is None and not asked:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if watched in ready:
            break
        with contextlib.suppress(BlockingIOError):
            os.read(waker, 4096)
        code = _reap().get(command.pid)
    left = end_all(grace, lambda: running(command.pid))
    writer.join(timeout=10)  # a process that no signal ends keeps the pipe open
    if code is not None and left:
        print(f"the command left {left} processes running: ended", file=sys.stderr, flush=True)
    return -signal.SIGTERM if code is None else code


def _start(words: list[str]) -> tuple["subprocess.Popen[bytes]", int]:
    """Start the command in a session of its own; return it and what it says, a pipe. Raises OSError.

    Keep what is returned: a Popen that is dropped reaps a command that has ended already, and its status is lost.
    """
    prctl = ctypes.CDLL(None).prctl if _LINUX else None

    guard = os.getpid()

    def in_child() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # if this process is killed
            if os.getppid() != guard:  # it was already
                os._exit(NOT_RUN)

    heard, said = os.pipe()
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said, "start_new_session": True}
    process = subprocess.Popen(words, preexec_fn=in_child, **options)  # noqa: PLW1509 - there is one thread
    os.close(said)
    return process, heard


def _pump(source: int, log: int) -> None:
    """Append what comes from the pipe `source` to the log; of very long output, keep the beginning and the end.

    Whoever writes to the pipe is never refused: what a full disk does not take is dropped.
    """
    head = left_out = 0
    while chunk := os.read(source, 1 << 16):
        with contextlib.suppress(OSError):
            _write(log, chunk)
            if (size := os.fstat(log).st_size) > MOST:
                if not head:
                    head = HEAD - len(os.pread(log, _LINE, HEAD - _LINE).rpartition(b"\n")[2])
                tail = os.pread(log, TAIL, size - TAIL)
                tail = tail[tail[:_LINE].find(b"\n") + 1 :]
                left_out += size - head - len(tail)
                os.ftruncate(log, head)
                _write(log, b"[about %d MB of the command's output are left out here]\n" % round(left_out / 1e6) + tail)


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def adopt_orphans() -> None:
    """Make orphans among what runs below this process its children, so that they can be found."""
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_all(grace: float, find: Callable[[], set[int]]) -> int:
    """End the processes that `find` returns, until it returns none; return how many it returned first."""
    first = below = find()
    signalled: set[int] = set()
    deadline = time.monotonic() + grace
    pause = 0.02
    while below and time.monotonic() < deadline + _STUBBORN:
        late = time.monotonic() >= deadline
        for process in below if late else below - signalled:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL if late else signal.SIGTERM)
        signalled |= below
        time.sleep(pause)
        pause = min(1.2 * pause, 0.2)  # looking through /proc costs milliseconds on a large machine
        _reap()
        below = find()
    return len(first)


def running(group: int) -> set[int]:
    """Return the live processes below this one; outside Linux the process group, if it has any."""
    if not _LINUX:
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return set()
        return {-group}
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    state, parent = file.read().rpartition(")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            children.setdefault(int(parent), []).append(int(name) if state != "Z" else -int(name))
    found, waiting = set(), [os.getpid()]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child > 0:
                found.add(child)
            waiting.append(abs(child))
    return found


def marked(folder: str) -> set[int]:
    """Return the processes on this machine that a command of this folder has started; outside Linux none.

    One that has written over its environment, as some do to show a title, is not found.
    """
    mark, found = f"{MARK}={folder}".encode(), set()
    for name in os.listdir("/proc") if _LINUX else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        found.add(int(name))
            except OSError:  # it has ended, or is someone else's
                continue
    return found


def _reap() -> dict[int, int]:
    """Return the processes below this one that ended since the last call: process id -> exit status."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = os.waitstatus_to_exitcode(found[1])
    return ended


if __name__ == "__main__":
    status = main(sys.argv[1:])
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        with contextlib.suppress(OSError):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is the command's, and not one of this process
        os.kill(os.getpid(), -status)
    os._exit(status)
