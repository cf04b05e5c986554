"""A process that Snakemake starts ends with Snakemake, however that ends."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int | None = None, by: int = signal.SIGKILL) -> None:
    """Ask the kernel to kill this process when its parent ends, so that a killed Snakemake leaves no orphan.

    parent: its process id as the caller knew it; if it is gone already, this process ends at once. by: the signal; a
    program that replaces this one (exec) gets it too. Linux only; elsewhere nothing happens and the folder lock still
    keeps a second process out.
    """
    if not sys.platform.startswith("linux"):
        return
    expected = parent or os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != expected:
        os.kill(os.getpid(), by)
