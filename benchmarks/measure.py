"""CPU and wall seconds, and peak memory, of a command."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Used(NamedTuple):
    """What a command and its children used: seconds, and MB at most in one process."""

    cpu: float
    wall: float
    memory: float


def measure(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> Used:
    """Run Python with these arguments in a folder; return what it used. Ends the benchmark if it fails."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, cwd=folder, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return Used(used.ru_utime + used.ru_stime, time.perf_counter() - start, used.ru_maxrss / 1e3)
