"""kill -9 in each of the three stages, as the workflow starts them, then again: the same metrics and weights."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from tests import warm
from tests.stage_code import stage_code
from tests.trainers.gad.helpers import ENTRIES, INPUTS, TINY
from trainers.gad.config import GadConfig

ROOT = Path(__file__).resolve().parents[3]
SEEDED = ("warmup", "gad", "evaluate")
READS = sorted(
    {"task", "data", "scratch", "base", "seqkd", "warmup", "gad", "sampling", "rollout", "pooling", "reward"}
) + sorted(
    {"advantage", "ratio", "clip", "update", "critic", "discriminator", "hinge", "balanced", "precision", "memory"}
)
SETTINGS = {
    **TINY,
    "base": {**TINY["base"], "steps": 10},
    "warmup": {**TINY["warmup"], "max_steps": 6},
    "gad": {**TINY["gad"], "max_steps": 6},
    "seqkd": {**TINY["seqkd"], "max_steps": 30, "epochs": 20},
}

pytestmark = pytest.mark.slow  # about ten processes that import torch and transformers


def command(root, name):
    out = root / name
    out.mkdir(parents=True, exist_ok=True)
    reads = [*READS, "checkpoint_every", "keep_checkpoints", "evaluate"]
    config = GadConfig(**SETTINGS)
    job = {
        "stage": f"gad.{name}",
        "key": f"{name:0<16}"[:16],
        "seed": 0 if name in SEEDED else None,
        "entry": ENTRIES[name],
        "model": "trainers.gad.config:GadConfig",
        "reads": reads,
        "config": config.model_dump(mode="json", include=set(reads)),
        "abort_rules": [],
        "code": stage_code(ENTRIES[name], config, name),
    }
    (out / "config.json").write_text(json.dumps(job))
    words = [sys.executable, "-m", "ablation.runner.run", "--config", str(out / "config.json"), "--out", str(out)]
    for label in INPUTS[name]:
        words += ["--input", f"{label}={root / ('evaluate_start' if label == 'start' else label)}"]
    return words


def run(root, name):
    """To the end, as the fork server has it; what is killed is a process of its own: both give the same bits."""
    _, _, module, *arguments = command(root, name)
    done = warm.run(module, arguments, cwd=ROOT, env=dict(os.environ))
    status = json.loads((root / name / "status.json").read_text())
    assert status["state"] == "ok", f"{status['reason']}\n{done.stdout}"


def kill_after_a_checkpoint(root, name):
    process = subprocess.Popen(command(root, name), cwd=ROOT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (root / name / "checkpoint" / "state.json").exists():
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (root / name / "status.json").exists()


def metrics(root, name):
    return pd.read_parquet(root / name / "metrics.parquet")


def test_killed_in_every_stage_the_run_ends_with_the_same_numbers(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for name in ("data", "base", "seqkd", "evaluate_start", "warmup", "gad", "evaluate"):
        run(whole, name)
    for name in ("data", "base", "evaluate_start"):
        shutil.copytree(whole / name, killed / name)
    for name in ("seqkd", "warmup", "gad"):
        kill_after_a_checkpoint(killed, name)
        run(killed, name)
        pd.testing.assert_frame_equal(metrics(killed, name), metrics(whole, name), check_exact=True)
        assert "resumed after step" in (killed / name / "log.txt").read_text()
        student = Path("student") / "model.safetensors"
        assert (killed / name / student).read_bytes() == (whole / name / student).read_bytes()
    run(killed, "evaluate")
    pd.testing.assert_frame_equal(metrics(killed, "evaluate"), metrics(whole, "evaluate"), check_exact=True)
