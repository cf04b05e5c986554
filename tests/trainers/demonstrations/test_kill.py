"""Stages of study `demonstrations` that are killed and go on end with the same bits."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from safetensors.torch import load_file

from tests import warm
from tests.stage_code import stage_code
from tests.trainers.demonstrations.helpers import (
    MODEL,
    READS,
    assert_equal_weights,
    config,
    demonstrations_stage,
    run,
    values,
    variant,
    weights,
)
from trainers.demonstrations import candidates, embed, evaluate, grpo, rce, resumable
from trainers.stage import Stage

ROOT = Path(__file__).parents[3]


class Killed(BaseException):
    """As abrupt as a kill, but in this process."""


class DyingStage(Stage):
    """Dies right after its n-th checkpoint."""

    left = 0

    def save_checkpoint(self, *args):
        super().save_checkpoint(*args)
        DyingStage.left -= 1
        if DyingStage.left == 0:
            raise Killed


@pytest.mark.parametrize("checkpoint", [1, 3, 4, 5, 8])
@pytest.mark.parametrize("module", [rce, grpo])
def test_a_killed_stage_ends_with_the_same_bits(folders, tmp_path, module, checkpoint):
    """With three selectors one after the other: in the first, between two of them, in the second and the last."""
    name, settings = module.__name__.rpartition(".")[2], config(per_shot=["legacy", "hybrid", "separated"])
    inputs = dict(folders)
    if name == "grpo":
        inputs["rce"], _ = run("rce", settings, inputs, tmp_path / "rce")
    whole, _ = run(name, settings, inputs, tmp_path / "whole")
    DyingStage.left = checkpoint
    with pytest.raises(Killed):
        module.run(demonstrations_stage(name, settings, inputs, tmp_path / "killed", stage_class=DyingStage))
    again = demonstrations_stage(name, settings, inputs, tmp_path / "killed")
    module.run(again)
    undisturbed = demonstrations_stage(name, settings, inputs, tmp_path / "undisturbed")
    module.run(undisturbed)
    assert again.metrics.rows == undisturbed.metrics.rows
    for mode in settings.per_shot:
        assert_equal_weights(weights(whole, mode), weights(tmp_path / "killed", mode))


@pytest.mark.parametrize("checkpoint", [1, 2, 5])
@pytest.mark.parametrize("module", [embed, candidates, evaluate])
def test_a_killed_pass_of_the_in_context_model_ends_with_the_same_bits(
    folders, tmp_path, monkeypatch, module, checkpoint
):
    """The stages that take days with a large model: every batch that was saved is not done again."""
    monkeypatch.setattr(resumable, "SAVE_AFTER", 0.0)
    name, settings = module.__name__.rpartition(".")[2], config(score_batch=7)
    inputs = dict(folders)
    if name == "evaluate":
        inputs, _ = variant(tmp_path / "trained", folders, settings)
    undisturbed = demonstrations_stage(name, settings, inputs, tmp_path / "undisturbed")
    module.run(undisturbed)
    calls = []
    real = resumable.Resumable.rows
    monkeypatch.setattr(resumable.Resumable, "rows", lambda self, *a: real(self, a[0], a[1], counted(a[2], calls)))
    DyingStage.left = checkpoint
    with pytest.raises(Killed):
        module.run(demonstrations_stage(name, settings, inputs, tmp_path / "killed", stage_class=DyingStage))
    assert len(calls) == checkpoint
    again = demonstrations_stage(name, settings, inputs, tmp_path / "killed")
    module.run(again)
    total = len(calls)
    calls.clear()
    module.run(demonstrations_stage(name, settings, inputs, tmp_path / "whole"))
    assert total == len(calls)  # no batch twice
    assert again.metrics.rows == undisturbed.metrics.rows
    for file in ("embeddings.safetensors", "queries.json", "candidates.parquet", "items.parquet", "samples.parquet"):
        paths = [tmp_path / folder / file for folder in ("undisturbed", "killed")]
        assert paths[0].exists() == paths[1].exists()
        assert not paths[0].exists() or paths[0].read_bytes() == paths[1].read_bytes(), file


def counted(work, calls):
    """The same work, which leaves a mark for every call."""

    def marked(part):
        calls.append(len(part))
        return work(part)

    return marked


def run_process(name, settings, inputs, out, wait=True):
    """Start `python -m ablation.runner.run` on a stage as Snakemake does."""
    out.mkdir(parents=True, exist_ok=True)
    for folder in inputs.values():
        (folder / "status.json").write_text('{"state": "ok"}')
    plan = {"stage": f"demonstrations.{name}", "key": "0" * 16, "entry": f"trainers.demonstrations.{name}"}
    plan |= {"seed": None if name == "learner" else 0, "model": MODEL, "reads": READS[name], "abort_rules": []}
    plan["code"] = stage_code(plan["entry"], settings, name)
    (out / "config.json").write_text(json.dumps(plan | {"config": values(name, settings)}))
    words = ["--config", str(out / "config.json"), "--out", str(out)]
    words += [part for key, folder in inputs.items() for part in ("--input", f"{key}={folder}")]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    if wait:  # as the fork server has it; what is killed is a process of its own: both give the same bits
        assert warm.run("ablation.runner.run", words, cwd=ROOT, env=environment).returncode == 0
        assert json.loads((out / "status.json").read_text())["state"] == "ok"
        return None
    command = [sys.executable, "-m", "ablation.runner.run", *words]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["learner", "rce", "grpo"])
def test_kill_9_then_going_on_gives_the_same_result(folders, tmp_path, name):
    """Every training stage, in a process of its own, killed with SIGKILL once it has a checkpoint."""
    settings = config(rce={"epochs": 60}, grpo={"epochs": 60}, learner={"steps": 200})
    inputs = {} if name == "learner" else {key: folders[key] for key in ("embed", "candidates")}
    if name == "grpo":
        inputs["rce"], _ = run("rce", settings, dict(folders), tmp_path / "rce")
    run_process(name, settings, inputs, tmp_path / "whole")
    process = run_process(name, settings, inputs, tmp_path / "killed", wait=False)
    deadline = time.monotonic() + 240
    while not (tmp_path / "killed" / "checkpoint" / "state.json").exists():  # written last
        assert time.monotonic() < deadline
        assert process.poll() is None, "it ended before it was killed"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "status.json").exists()
    run_process(name, settings, inputs, tmp_path / "killed")
    assert "resumed after step" in (tmp_path / "killed" / "log.txt").read_text()
    left = "learner/model.safetensors" if name == "learner" else "selector-legacy.safetensors"
    assert_equal_weights(load_file(tmp_path / "whole" / left), load_file(tmp_path / "killed" / left))
    frames = [pd.read_parquet(tmp_path / folder / "metrics.parquet") for folder in ("whole", "killed")]
    pd.testing.assert_frame_equal(*frames, check_exact=True)
