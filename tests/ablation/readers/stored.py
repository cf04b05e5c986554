"""Files that the real packages wrote: as they are kept in `written/`, or written again where the package is."""

import math
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.peers.environment import python_of

HERE = Path(__file__).parent
SOURCES = ["written", pytest.param("peer", marks=pytest.mark.peers)]


def make(package, script, source, folder):
    """Return a folder of files: those that are kept (`written`), or new ones by the package's environment (`peer`)."""
    if source == "written":
        with tarfile.open(HERE / "written" / f"{package}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    else:
        command = [python_of(package), HERE / "produce" / script, folder]
        done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr[-2000:]
    return folder


def read_all(read, path):
    """Return (runs by id, lines of problems)."""
    problems = []
    runs = list(read(path, problems.append))
    assert len({run.id for run in runs}) == len(runs)
    assert all("\n" not in line for line in problems)
    return {run.id: run for run in runs}, problems


def points(run):
    """Return {(step, name): value} of a run, NaN as text so that it equals itself."""
    rows = run.metrics.to_pylist()
    found = {(row["step"], row["name"]): comparable(row["value"]) for row in rows}
    assert len(found) == len(rows)
    return found


def comparable(value):
    return "NaN" if math.isnan(value) else float(value)
