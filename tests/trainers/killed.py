"""A stage in a process as the workflow starts it, killed with SIGKILL and started again: it ends as undisturbed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd

from ablation.contract.fingerprint import code_of, of_entry
from ablation.plan.keys import config_modules
from tests import warm
from tests.make_stage import part_names

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
PATIENCE = 600  # seconds; a loaded machine is slow


def write_stage(out, *, id, entry, config, inputs, seed):
    """Write the plan's config.json of a stage that reads the whole configuration; return the runner's arguments."""
    out.mkdir(parents=True)
    for folder in inputs.values():  # inputs must have ended well
        (folder / "status.json").write_text('{"state": "ok"}')
    plan = {"stage": id, "key": "0" * 16, "seed": seed, "entry": entry, "abort_rules": []}
    model, parts = type(config), part_names(config, id.rpartition(".")[2])
    plan |= {"model": f"{model.__module__}:{model.__name__}", "reads": list(model.model_fields)}
    plan["code"] = code_of(of_entry(entry), ROOT, parts=parts, exclude=config_modules(model))._asdict()
    plan["config"] = config.model_dump(mode="json")
    (out / "config.json").write_text(json.dumps(plan))
    named = [word for name, path in inputs.items() for word in ("--input", f"{name}={path}")]
    return ["--config", str(out / "config.json"), "--out", str(out), *named, "--threads", "1"]


def run(out, words):
    """To the end, as the fork server has it; what is killed is a process of its own: both give the same bits."""
    done = warm.run("ablation.runner.run", words, cwd=ROOT, env=ENVIRONMENT, timeout=PATIENCE)
    assert json.loads((out / "status.json").read_text())["state"] == "ok", done.stdout


def kill_after_a_checkpoint(out, words):
    process = subprocess.Popen([sys.executable, "-m", "ablation.runner.run", *words], cwd=ROOT, env=ENVIRONMENT)
    deadline = time.monotonic() + PATIENCE
    while not (out / "checkpoint" / "state.json").exists():  # written last
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait(PATIENCE) == -signal.SIGKILL
    assert not (out / "status.json").exists()


def left(out, file):
    metrics = pd.read_parquet(out / "metrics.parquet")
    return metrics[~metrics["name"].str.startswith("time/")].reset_index(drop=True), (out / file).read_bytes()


def assert_a_kill_changes_no_bit(root, file, **stage):
    """Of the metrics, and of a file that the stage leaves."""
    whole, killed = root / "whole", root / "killed"
    run(whole, write_stage(whole, **stage))
    words = write_stage(killed, **stage)
    kill_after_a_checkpoint(killed, words)
    run(killed, words)
    assert "resumed after step" in (killed / "log.txt").read_text()
    (expected, weights), (found, resumed) = left(whole, file), left(killed, file)
    pd.testing.assert_frame_equal(found, expected, check_exact=True)
    assert resumed == weights
