"""What runs only when asked for (`make test-cluster`, which CI calls): it installs Slurm on this machine, as root."""

import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent

if not os.environ.get("CLUSTER_TESTS"):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    """A running Slurm: a node with two fake GPUs. Where it does not start, the tests fail; they are never skipped."""
    folder = tmp_path_factory.mktemp("slurm")
    started = subprocess.run(
        [HERE / "start_slurm.sh", folder], capture_output=True, text=True, timeout=900, check=False
    )
    try:
        assert started.returncode == 0, f"Slurm does not start here:\n{started.stderr}"
        yield folder
    finally:
        subprocess.run([HERE / "stop_slurm.sh", folder], check=True, timeout=900)
