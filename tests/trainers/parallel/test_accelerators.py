"""benchmarks/several_devices.py, which wants NVIDIA devices: all of it that a CPU can do, and its error without any."""

import json
import os
import subprocess
import sys

import pytest
import torch

from tests.repository import ROOT

pytestmark = pytest.mark.slow  # processes that import torch and transformers
SCRIPT = ROOT / "benchmarks" / "several_devices.py"


def run(*words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)


@pytest.mark.parallel
def test_two_processes_are_one_and_the_report_says_it(tmp_path):
    small = ("--rows", "6", "--tokens", "24", "--micro-batch", "2", "--steps", "3")
    done = run("--device", "cpu", "--tiny", "--counts", "1", "2", "--skip-tests", *small, "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    one, two = report["devices"]
    assert (one["devices"], two["devices"], one["equal"], two["equal"]) == (1, 2, True, True)
    assert 0 < two["gradient_gap"] < 1e-5  # other sums: they were computed apart
    assert two["losses"] == pytest.approx(one["losses"], rel=1e-5)
    assert one["losses"][2] < one["losses"][0]
    assert 0 < two["estimated_bytes"] <= one["estimated_bytes"]  # two layers are gathered whole
    assert report["environment"]["backend"] == "gloo"
    assert report["environment"]["torch"] == torch.__version__
    rows = [line for line in (tmp_path / "report.md").read_text().splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[1] for row in rows[2:]] == ["yes", "yes"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are devices here")
def test_without_devices_it_says_so():
    done = run()
    assert done.returncode == 2
    assert "error: --device cuda: torch" in done.stderr
    assert "--device cpu --tiny" in done.stderr
