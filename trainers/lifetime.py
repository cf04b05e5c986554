"""A stage's process: it ends with its parent, and it alone writes to its folder."""

import ctypes
import fcntl
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


class FolderInUse(RuntimeError):
    """Another process holds the stage's folder."""


def end_with_parent(parent: int | None = None) -> None:
    """Ask the kernel to kill this process when its parent ends, so that a killed Snakemake leaves no orphan.

    parent: its process id as the caller knew it; if it is gone already, this process ends at once. Linux only;
    elsewhere nothing happens and the folder lock still keeps a second process out.
    """
    if not sys.platform.startswith("linux"):
        return
    expected = parent or os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != expected:
        os.kill(os.getpid(), signal.SIGKILL)


def end_on_signals() -> None:
    """Let SIGTERM and SIGINT end the process at once: every file is written atomically, so there is nothing to tidy."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def lock_folder(folder: Path) -> int:
    """Hold `folder` until this process ends; return the descriptor. Raises FolderInUse if another process holds it."""
    path = folder / ".lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise FolderInUse(f"{folder}: process {holder} is running this stage; wait for it or end it") from None
    os.truncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
