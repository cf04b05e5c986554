"""Measurement of the CPU time, wall time and peak memory of a command."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Used(NamedTuple):
    """CPU and wall seconds of a command with its children, and the peak memory of one process in MB."""

    cpu: float
    wall: float
    memory: float


def measure(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> Used:
    """Run Python with the arguments `command` in a folder; return what it used. Raises SystemExit if it fails."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, cwd=folder, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit status {process.returncode}")
    return Used(used.ru_utime + used.ru_stime, time.perf_counter() - start, used.ru_maxrss / 1e3)
