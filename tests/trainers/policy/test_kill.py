"""The real process of a reinforce stage, killed with SIGKILL and started again: the same bits as undisturbed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from tests import warm
from tests.stage_code import stage_code
from tests.trainers.policy.helpers import SMALL
from trainers.policy.config import PolicyConfig

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
PATIENCE = 600  # seconds; a loaded machine is slow
pytestmark = pytest.mark.slow  # each run imports torch and transformers in a process of its own

PPO = {"advantage": "gae", "rollout": {"responses": 16, "group_size": 1}}


def write_stage(folder, variant):
    config = PolicyConfig(**{**SMALL, "steps": 12, **variant})
    folder.mkdir()
    plan = {
        "stage": "innovations.reinforce",
        "key": "0" * 16,
        "seed": 0,
        "entry": "trainers.policy.reinforce",
        "model": "trainers.policy.config:PolicyConfig",
        "reads": list(PolicyConfig.model_fields),
        "config": config.model_dump(mode="json"),
        "abort_rules": [],
        "code": stage_code("trainers.policy.reinforce", config, "reinforce"),
    }
    (folder / "config.json").write_text(json.dumps(plan))
    return folder


def words(folder, inputs):
    named = [word for name, path in inputs.items() for word in ("--input", f"{name}={path}")]
    return ["--config", str(folder / "config.json"), "--out", str(folder), *named, "--threads", "1"]


def run(folder, inputs):
    """To the end, as the fork server has it; what is killed is a process of its own: both give the same bits."""
    done = warm.run("ablation.runner.run", words(folder, inputs), cwd=ROOT, env=ENVIRONMENT, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout


def result(folder):
    assert json.loads((folder / "status.json").read_text())["state"] == "ok"
    table = pd.read_parquet(folder / "metrics.parquet")
    table = table[~table["name"].str.startswith("time/")].reset_index(drop=True)
    return table, (folder / "policy" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("variant", [{}, PPO], ids=["grpo", "ppo"])
def test_kill_9_and_start_again_ends_with_the_same_bits(prepared, tmp_path, variant):
    for folder in prepared.values():  # inputs must have ended well
        (folder / "status.json").write_text(json.dumps({"state": "ok"}))
    whole, killed = write_stage(tmp_path / "whole", variant), write_stage(tmp_path / "killed", variant)
    run(whole, prepared)
    command = [sys.executable, "-m", "ablation.runner.run", *words(killed, prepared)]
    process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT)
    deadline = time.monotonic() + PATIENCE
    while not (killed / "checkpoint" / "state.json").exists():
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait(PATIENCE) == -signal.SIGKILL
    assert not (killed / "status.json").exists()
    run(killed, prepared)
    assert "resumed after step" in (killed / "log.txt").read_text()
    (expected, weights), (found, resumed) = result(whole), result(killed)
    pd.testing.assert_frame_equal(found, expected, check_exact=True)
    assert resumed == weights
