"""Lock folders for one process at a time, and end a process with the process that started it."""

import ctypes
import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ablation.contract.errors import TrackerError

_PR_SET_PDEATHSIG = 1


def is_locked(folder: Path) -> bool:
    """Return whether a runner holds the lock of a stage's folder; the check takes a shared lock for an instant."""
    try:  # a pipe of this name is not waited for
        handle = os.open(folder / ".lock", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Wait for a lock file, and hold it during the `with` block. The holder may remove the file.

    Raises TrackerError if the file cannot be created.
    """
    while (handle := _taken(lock)) is None:
        pass
    try:
        yield
    finally:
        os.close(handle)


def _taken(lock: Path) -> int | None:
    """Return the handle of the locked file; None if the previous holder removed the file."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise TrackerError(f"{lock.parent}: cannot be written ({error.strerror}); make the folder writable") from error
    is_current = False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            is_current = os.path.samestat(os.fstat(handle), lock.stat())
    finally:
        if not is_current:
            os.close(handle)
    return handle if is_current else None


def end_with_parent(parent: int | None = None) -> None:
    """Ask the kernel to kill this process when its parent ends, so that a killed Snakemake leaves no orphan.

    parent: the process id of the parent; if the parent has already ended, this process ends at once. A program that
    replaces this one (exec) is killed too. Only Linux can do this; elsewhere nothing happens, and the lock of the
    stage's folder still keeps a second process out.
    """
    if not sys.platform.startswith("linux"):
        return
    expected = parent or os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != expected:
        os.kill(os.getpid(), signal.SIGKILL)
