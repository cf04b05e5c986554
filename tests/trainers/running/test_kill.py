"""Stages that are killed and started again end with the same bits: in this process, and with SIGKILL as in a grid."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import pandas as pd
import pytest
import torch

from ablation.contract.code import code_of
from ablation.plan.keys import config_modules
from tests import warm
from tests.make_stage import make_stage, part_names
from tests.repository import ROOT
from tests.time_limit import PATIENCE
from tests.trainers.debias import helpers as debias
from tests.trainers.demonstrations import helpers as demonstrations
from tests.trainers.gad import helpers as gad
from tests.trainers.policy import helpers as policy
from trainers.demonstrations import in_context
from trainers.policy.config import PolicyConfig
from trainers.running.stage import Stage

pytestmark = pytest.mark.slow

ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
ITS_OWN = {
    f"{name}.json" for name in ("attempt", "config", "health", "progress", "provenance", "status", "status.kept")
} | {"metrics.parquet"}


class Case(NamedTuple):
    """A stage and its entry, its configuration, and its inputs as a function of a folder in which they may be made."""

    stage: str
    entry: str
    config: Any
    inputs: Any


# --- the stages -------------------------------------------------------------------------------------------------------


@cache
def inputs_of_policy(root):
    return policy.prepared(root / "policy")


@cache
def inputs_of_debias(root):
    return debias.run_prepare(root / "debias", "llama")


@cache
def root_of_gad(root):
    gad.run_before(root / "gad")
    gad.run_stage(root / "gad", "warmup", gad.config())
    return root / "gad"


def inputs_of_gad(name):
    return lambda root: gad.inputs_of(root_of_gad(root), name)


@cache
def shared_of_demonstrations(root):
    return demonstrations.shared(root / "demonstrations")


def demonstrated(settings, *earlier):
    """The shared stages, and earlier ones of the variant itself."""

    @cache
    def inputs(root):
        folders, own = dict(shared_of_demonstrations(root)), root / f"of {id(inputs)}"
        for name in earlier:
            folders[name], _ = demonstrations.run(name, settings, dict(folders), own / name)
        return folders

    return inputs


PPO = {
    "advantage": {"kind": "gae"},
    "rollout": {"responses": 16, "group_size": 1},
    "evaluate": {"samples": 2, "checkpoints": 3},  # policies of earlier steps are kept, and kept again
}
DAPO = {
    "kl": {"kl_coef": 0.0},
    "surrogate": {"kind": "clip", "clip_high": 0.28},
    "update": {"aggregation": "token_mean"},
    "dynamic_sampling": {"max_rounds": 2},
    "overlong_penalty": {"share": 0.2},
}
MODES = demonstrations.config(per_shot=["legacy", "hybrid", "separated"])  # three selectors, one after the other
BATCHES = demonstrations.config(score_batch=7)


def reinforce(**variant):
    return Case(
        "policy.reinforce", "trainers.policy.reinforce", PolicyConfig(**policy.SMALL | variant), inputs_of_policy
    )


def edit(**changes):
    return Case("debias.train", "trainers.debias.train", debias.config(**debias.FULL | changes), inputs_of_debias)


def adversarial(name, settings):
    return Case(f"gad.{name}", gad.ENTRIES[name], settings, inputs_of_gad(name))


def choosing(name, settings, *earlier):
    return Case(f"demonstrations.{name}", f"trainers.demonstrations.{name}", settings, demonstrated(settings, *earlier))


# Name -> the case, and (checkpoint, metrics that are logged after it before the kill): right after it, or beyond it.
KILLS = {
    "ppo": (reinforce(**PPO), [(1, 1)]),
    "dapo": (reinforce(**DAPO), [(1, 1)]),
    "debias, every four batches": (edit(checkpoint_every=4), [(1, 1)]),
    **{name: (adversarial(name, gad.config()), [(1, 1)]) for name in ("seqkd", "gad")},
    "learner": (choosing("learner", demonstrations.config(learner={"steps": 25})), [(2, 0)]),
    # Between two selectors, and in the second.
    "rce": (choosing("rce", MODES), [(4, 0), (5, 0)]),
    # Passes of the in-context model, which take days with a large one.
    "candidates": (choosing("candidates", BATCHES), [(2, 0)]),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("inputs")


# --- in this process --------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """As abrupt as a kill, but in this process."""


def run_here(out, case, inputs):
    stage = make_stage(out, case.stage, case.config, inputs)
    try:
        import_module(case.entry).run(stage)
    finally:
        stage.metrics.close()


def left(out):
    """Metrics that are not times, and every file that a stage leaves; logs and pages to look at are no results."""
    metrics = pd.read_parquet(out / "metrics.parquet")
    metrics = metrics[~metrics["name"].str.contains("time/|wall_s")].reset_index(drop=True)
    paths = {path.relative_to(out): path for path in out.rglob("*") if path.is_file() and path.name not in ITS_OWN}
    results = {name: path for name, path in paths.items() if name.parts[0] != "checkpoint"}
    return metrics, {n: p.read_bytes() for n, p in results.items() if p.suffix in (".safetensors", ".parquet", ".json")}


def assert_equal(whole, killed):
    (expected, files), (found, again) = left(whole), left(killed)
    pd.testing.assert_frame_equal(found, expected, check_exact=True)
    assert files
    assert [name for name in files.keys() | again.keys() if files.get(name) != again.get(name)] == []


ONE_OF_EACH_LOOP = ("ppo", "debias, every four batches", "gad", "rce", "candidates")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.rest] * (name not in ONE_OF_EACH_LOOP)) for name in KILLS]
)
def test_killed_and_continued_equals_undisturbed(home, tmp_path, monkeypatch, name):
    monkeypatch.setattr(in_context, "SAVE_AFTER", 0.0)
    rows, batches = in_context.Resumable.rows, []

    def counted(self, count, batch, work):
        return rows(self, count, batch, lambda part: (batches.append(len(part)), work(part))[1])

    monkeypatch.setattr(in_context.Resumable, "rows", counted)
    case, kills = KILLS[name]
    inputs = case.inputs(home)
    batches.clear()
    run_here(tmp_path / "whole", case, inputs)
    all_batches = len(batches)
    saves, logs = Stage.save_checkpoint, Stage.log_metrics
    for checkpoint, logged in kills:
        batches.clear()
        out, to_come = tmp_path / f"{checkpoint}", {"saves": checkpoint, "logs": logged}

        def save(*words, to_come=to_come):
            saves(*words)
            to_come["saves"] -= 1
            if to_come["saves"] == to_come["logs"] == 0:
                raise Killed

        def log(*words, to_come=to_come):
            logs(*words)
            to_come["logs"] -= to_come["saves"] <= 0
            if to_come["saves"] <= 0 and to_come["logs"] == 0:
                raise Killed

        torch.manual_seed(99)  # nothing may depend on the global generator
        with monkeypatch.context() as patched:
            patched.setattr(Stage, "save_checkpoint", save)
            patched.setattr(Stage, "log_metrics", log)
            with pytest.raises(Killed):
                run_here(out, case, inputs)
        assert (out / "checkpoint" / "state.json").exists()
        run_here(out, case, inputs)
        assert_equal(tmp_path / "whole", out)
        assert len(batches) == all_batches  # what was saved is not computed again


# --- with SIGKILL -----------------------------------------------------------------------------------------------------


def write_stage(out, case, inputs):
    """Write the plan's config.json of a stage that reads the whole configuration; return the runner's arguments."""
    out.mkdir(parents=True)
    for folder in inputs.values():  # inputs must have ended well
        (folder / "status.json").write_text('{"state": "ok"}')
    model, parts = type(case.config), part_names(case.config, case.stage.partition(".")[2])
    code = code_of(case.entry, ROOT, parts=parts, exclude=config_modules(model))
    plan = {"stage": case.stage, "key": "0" * 16, "seed": 0, "entry": case.entry, "abort_rules": []}
    plan |= {"model": f"{model.__module__}:{model.__name__}", "reads": list(model.model_fields)}
    plan |= {"code": code._asdict(), "config": case.config.model_dump(mode="json")}
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


# Of each loop with checkpoints of its own one stage, with so many steps that the kill comes before the last.
PROCESSES = {
    "policy": reinforce(steps=12, **PPO),
    "demonstrations": choosing("grpo", demonstrations.config(grpo={"epochs": 60}), "rce"),
}


@pytest.mark.parametrize("name", ["policy", pytest.param("demonstrations", marks=pytest.mark.rest)])
def test_kill_9_and_start_again_ends_with_the_same_bits(home, tmp_path, name):
    case, whole, killed = PROCESSES[name], tmp_path / "whole", tmp_path / "killed"
    inputs = case.inputs(home)
    run(whole, write_stage(whole, case, inputs))
    words = write_stage(killed, case, inputs)
    kill_after_a_checkpoint(killed, words)
    run(killed, words)
    assert "resumed after step" in (killed / "log.txt").read_text()
    assert_equal(whole, killed)
