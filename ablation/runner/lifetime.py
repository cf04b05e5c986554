"""The process of a stage: its environment and memory, the lock of its folder, and the log of its output.

The code of `prepare_process` is part of the key of every trainer's stage.
"""

import contextlib
import ctypes
import faulthandler
import fcntl
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

_PATIENCE = 1.0
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # constants of glibc's malloc.h
_KEPT, _LARGE = 1 << 30, 32 << 20  # bytes; 32 MiB is the largest mmap threshold that glibc accepts


class FolderInUse(RuntimeError):
    """Raised if another process has locked the stage's folder."""


def prepare_process(threads: int) -> None:
    """Set the environment variables that torch reads only when it is imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # cuBLAS is deterministic only with a fixed workspace
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Tensors of many lengths would fragment fixed segments of device memory.
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")


def keep_freed_memory() -> None:
    """Keep up to 1 GiB of freed memory at the end of the heap, except for allocations above 32 MiB.

    By default glibc returns freed memory to the system, which zeroes the pages at the next allocation; this takes
    a tenth of the CPU time of training small models. The call has no effect with another C library.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return
    mallopt(_MMAP_THRESHOLD, _LARGE)
    mallopt(_TRIM_THRESHOLD, _KEPT)


def end_on_signals() -> None:
    """Let SIGTERM and SIGINT end the process at once, which is safe because every file is written atomically."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def lock_folder(folder: Path, wait: float = _PATIENCE, on_wait: Callable[[str], None] = lambda holder: None) -> int:
    """Lock `folder` until this process ends; return the descriptor.

    wait: seconds to wait for another process; at least one, because `ablation status` and `collect` take the lock for
    an instant. on_wait: called after the first second with a description of the lock's holder. Raises FolderInUse if
    the folder is still locked after the wait. Works across machines if the file system supports flock, as NFS does.
    """
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    if not _lock_within(descriptor, _PATIENCE):
        holder = _holder(descriptor)
        on_wait(holder)
        if not _lock_within(descriptor, wait - _PATIENCE, poll=0.5):
            holder = _holder(descriptor)
            os.close(descriptor)
            raise FolderInUse(f"{folder}: {holder} is running this stage; wait until it ends, or end it")
    os.truncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()} {_place()}\n".encode(), 0)
    return descriptor


def _holder(descriptor: int) -> str:
    number, _, place = os.pread(descriptor, 200, 0).decode(errors="replace").strip().partition(" ")
    return f"process {number or 'unknown'}" + (f" on {place}" if place else "")


def _place() -> str:
    job = os.environ.get("SLURM_JOB_ID")
    return socket.gethostname() + (f", Slurm job {job}," if job else "")


def _lock_within(descriptor: int, seconds: float, poll: float = 0.02) -> bool:
    """Wait for the lock at most this many seconds and take it as soon as it is free; return whether it was taken."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(poll)


def keep_terminal(log: Path) -> TextIO:
    """Append stdout and stderr, including output of C code and crashes, to `log`; return the original stderr.

    The log is kept as `log.attempt-N.txt` too, because Snakemake deletes `log.txt` before it runs a job again.
    """
    terminal = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace")
    sys.stdout.flush()
    sys.stderr.flush()
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    with contextlib.suppress(OSError):  # without hard links only the last attempt's log is kept
        os.link(log, _attempt_log(log, _attempts(log) + 1))
    faulthandler.enable()
    return terminal


def restore_log(log: Path) -> None:
    """Restore the log of the last attempt if Snakemake has deleted that log."""
    if not log.exists() and (last := _attempts(log)):
        os.link(_attempt_log(log, last), log)


def _attempts(log: Path) -> int:
    number = 0
    while _attempt_log(log, number + 1).exists():
        number += 1
    return number


def _attempt_log(log: Path, number: int) -> Path:
    return log.with_name(f"log.attempt-{number}.txt")
