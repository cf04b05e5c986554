"""Low-rank adapters: what can be said without peft; lora_checks.py says the rest, in the environment that has it."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers.environment import ROOT, python_of


@pytest.mark.peers
@pytest.mark.slow
def test_adapters_in_the_environment_that_has_peft():
    checks = Path(__file__).with_name("lora_checks.py")
    options = ["-q", "-p", "no:cacheprovider", "--noconftest", "-p", CONFTEST]
    command = [python_of("peft"), "-m", "pytest", *options, checks]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-5000:]


CONFTEST = "tests.trainers.policy.conftest"  # its fixtures, and not those of all tests


@pytest.mark.skipif(importlib.util.find_spec("peft") is not None, reason="peft is installed")
def test_without_peft_the_error_says_how_to_get_it():
    done = subprocess.run(
        [sys.executable, "-c", "import trainers.policy.lora"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "memory.lora needs peft; run pip install 'ablation-tracker[lora]'" in done.stderr
