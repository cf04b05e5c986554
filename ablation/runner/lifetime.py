"""The process of a stage: its threads and memory, the lock of its folder, and the log of all its output.

The key of every stage of a trainer holds the code of `prepare_process`.
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
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_KEPT, _LARGE = 1 << 30, 32 << 20  # bytes; more than 32 MiB glibc does not accept as the second


class FolderInUse(RuntimeError):
    """Another process holds the stage's folder."""


def prepare_process(threads: int) -> None:
    """Set the environment variables that torch reads only when it is imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # cuBLAS is deterministic only with a fixed workspace
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Responses of many lengths leave gaps that no later tensor fits into; segments that grow have none.
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")


def keep_freed_memory() -> None:
    """Give less than 1 GiB at the end of the heap back to the system; tensors above 32 MiB still come and go.

    By default glibc returns it at every drop, and its pages are zeroed again at the next rise: a tenth of the CPU time
    of training small models. Does nothing if the C library is another one.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return
    mallopt(_MMAP_THRESHOLD, _LARGE)
    mallopt(_TRIM_THRESHOLD, _KEPT)


def end_on_signals() -> None:
    """Let SIGTERM and SIGINT end the process at once: every file is written atomically, so there is nothing to tidy."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def lock_folder(folder: Path, wait: float = _PATIENCE, on_wait: Callable[[str], None] = lambda holder: None) -> int:
    """Hold `folder` until this process ends; return the descriptor.

    Waits `wait` seconds for another process, but at least one: `ablation status` and `collect` take the lock for an
    instant, to see whether a stage runs. After that second `on_wait` is called once with who holds it. Raises
    FolderInUse if it is still held then. Across machines it works where the file system's flock does (NFS: yes).
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
    """Take the lock as soon as it is free; return whether it was free within this many seconds."""
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
    """Append stdout and stderr, including output of C code and crashes, to `log`; return the former stderr.

    Each attempt's log stays as `log.attempt-N.txt` too, since Snakemake deletes `log.txt` before it runs a job again.
    """
    terminal = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace")
    sys.stdout.flush()
    sys.stderr.flush()
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    with contextlib.suppress(OSError):  # no hard links here: then only the last attempt's log is kept
        os.link(log, _attempt_log(log, _attempts(log) + 1))
    faulthandler.enable()
    return terminal


def restore_log(log: Path) -> None:
    """Restore the last attempt's log if Snakemake has deleted it."""
    if not log.exists() and (last := _attempts(log)):
        os.link(_attempt_log(log, last), log)


def _attempts(log: Path) -> int:
    number = 0
    while _attempt_log(log, number + 1).exists():
        number += 1
    return number


def _attempt_log(log: Path, number: int) -> Path:
    return log.with_name(f"log.attempt-{number}.txt")
