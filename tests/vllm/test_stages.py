"""Whole stages that sample with vLLM: their gap, what ends one whose weights are not handed over, ranks, Snakemake."""

import json
import os
import shutil
import subprocess
import sys

import pandas as pd
import pytest
import torch
import yaml

from ablation.contract.health import Monitor, parse_rules
from tests.make_stage import make_stage
from tests.repository import ROOT
from tests.trainers.gad import helpers as gad_helpers
from tests.trainers.policy.helpers import SMALL
from trainers.gad import adversarial
from trainers.policy import reinforce, task_data, vllm_engine, warm_start
from trainers.policy.config import PolicyConfig, Rollout, Scratch, Update
from trainers.running.stage import Diverged

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

HEADS_OF_32 = Scratch(hidden=32, heads=1, feed_forward=48)


def rules(study):
    declared = yaml.safe_load((ROOT / f"configs/studies/{study}/_study.yaml").read_text())["health"]
    return parse_rules(
        {**rule, "stage": "any"}
        for rule in declared
        if rule["metric"] == "rollout/logp_gap" and rule["severity"] == "abort"
    )


@pytest.fixture
def frozen(monkeypatch):
    """Weights are handed over once and never again, as in the GAD notes, section 18."""
    original = vllm_engine.VllmEngine.hand_over

    def once(engine):
        if not getattr(engine, "was_given", False):
            engine.was_given = True
            original(engine)

    monkeypatch.setattr(vllm_engine.VllmEngine, "hand_over", once)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    root, config = tmp_path_factory.mktemp("policy"), PolicyConfig(**{**SMALL, "scratch": HEADS_OF_32})
    task_data.run(make_stage(root / "task_data", "gspo.task_data", config, {}))
    warm_start.run(make_stage(root / "warm_start", "gspo.warm_start", config, {"task_data": root / "task_data"}))
    return {"task_data": root / "task_data", "warm_start": root / "warm_start"}


def reinforced(folder, inputs, engine, **changes):
    rollout = Rollout(responses=16, group_size=4, engine=engine)
    config = PolicyConfig(**{**SMALL, "scratch": HEADS_OF_32, "rollout": rollout, **changes})
    stage = make_stage(folder, "gspo.reinforce", config, inputs)
    stage.monitor = Monitor(rules("gspo"))
    reinforce.run(stage)
    stage.metrics.close()
    table = pd.read_parquet(folder / "metrics.parquet")
    return {name: part.set_index("step")["value"] for name, part in table.groupby("name")}


def test_reinforce_learns_from_vllm_as_from_its_own_sampler(prepared, tmp_path):
    found, own = (reinforced(tmp_path / engine, prepared, engine) for engine in ("vllm", "own"))
    assert set(found) == set(own)
    assert len(found["rollout/logp_gap"]) == 4
    assert found["rollout/logp_gap"].max() < 1e-5
    assert found["dev/greedy_accuracy"].loc[0] == own["dev/greedy_accuracy"].loc[0]  # measured by the own sampler
    assert found["reward/mean"].mean() == pytest.approx(own["reward/mean"].mean(), abs=0.35)


def test_reinforce_ends_where_vllm_keeps_old_weights(prepared, tmp_path, frozen):
    with pytest.raises(Diverged, match="sampled with weights that are not the policy's"):
        reinforced(tmp_path / "stale", prepared, "vllm", update=Update(lr=3e-2, warmup_steps=0))


@pytest.fixture(scope="module")
def distilled(tmp_path_factory):
    root = tmp_path_factory.mktemp("gad")
    settings = gad_helpers.config(scratch={"heads": 1})
    for name in ("data", "base", "seqkd"):
        gad_helpers.run_stage(root, name, settings)
    return root


def trained(root, out, **changes):
    settings = gad_helpers.config(scratch={"heads": 1}, rollout={"engine": "vllm"}, **changes)
    stage = gad_helpers.gad_stage(out / "warmup", settings, gad_helpers.inputs_of(root, "warmup"))
    stage.monitor = Monitor(rules("gad"))
    adversarial.run(stage)
    stage.metrics.close()
    return pd.read_parquet(stage.out / "metrics.parquet")


def test_a_student_learns_from_vllm(distilled, tmp_path):
    table = trained(distilled, tmp_path)
    assert gad_helpers.series(table, "rollout/policy_lag").tolist() == [0.0] * 4
    gaps = gad_helpers.series(table, "rollout/logp_gap")
    assert len(gaps) == 2  # the critic alone before
    assert gaps.max() < 1e-5
    assert gad_helpers.series(table, "actor/pg_loss").abs().max() > 0


def test_without_sampling_responses_of_a_group_are_equal(distilled, tmp_path):
    table = trained(distilled, tmp_path, sampling={"temperature": None})
    assert set(gad_helpers.series(table, "rollout/distinct")) == {0.25}
    assert gad_helpers.series(table, "rollout/logp_gap").max() < 1e-5


def test_a_students_stage_ends_where_vllm_keeps_old_weights(distilled, tmp_path, frozen):
    with pytest.raises(Diverged, match="sampled with weights that are not the student's"):
        trained(distilled, tmp_path, warmup={"critic_warmup": 0, "actor_lr": 2e-2, "max_steps": 6})


def finish(command, cwd, environment):
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900, check=False)


@pytest.mark.parametrize("model", ["tied", "untied"])
def test_two_processes_answer_as_one(folders, tmp_path, model):
    """Weights sharded over both, before and after an update of every weight; three prompts and one."""
    from safetensors.torch import load_file

    for count in (1, 2):
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"] if count > 1 else []
        command = [sys.executable, *launcher, "tests/vllm/ranks.py", str(folders / model), str(tmp_path / str(count))]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = finish(command, ROOT, environment)
        assert done.returncode == 0, done.stderr[-3000:]
    alone, together = (load_file(tmp_path / str(count)) for count in (1, 2))
    assert alone.keys() == together.keys()
    for name, value in alone.items():
        torch.testing.assert_close(together[name], value, rtol=0, atol=1e-4, msg=name)


VARIANTS = {
    "gspo": ("gspo", "extends: gspo\nwhy: the same from another sampler\nrollout: {engine: vllm}\n"),
    "gad": ("d-final", "extends: d-final\nwhy: the same from another sampler\nrollout: {engine: vllm}\n"),
}


@pytest.mark.parametrize(("study", "devices"), [("gspo", 1), ("gspo", 2), ("gad", 1)])
def test_a_variant_runs_through_snakemake(study, devices, tmp_path):
    """At scale smoke, beside its parent, whose responses the policy draws itself."""
    parent, text = VARIANTS[study]
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    for name in ("Snakefile", "environment.yml"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("ablation", "trainers", "workflow", "profiles"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "configs" / "studies" / study / "sampled.yaml").write_text(text)
    scale = tmp_path / "configs" / "scales" / "smoke.yaml"
    written = yaml.safe_load(scale.read_text())
    written["studies"][study]["set"]["scratch"]["heads"] = 1  # of 32
    for name in ("reinforce", "warmup", "gad"):
        if name in written["studies"][study]["resources"]:
            written["studies"][study]["resources"][name] |= {"gpu": devices, "mem_mb": 4000}
    scale.write_text(yaml.safe_dump(written))
    command = [sys.executable, "-m", "snakemake", "collect", "--cores", "2", "--resources", f"gpu={devices}"]
    command += ["--config", "scale=smoke", f"study={study}", "variant=sampled"]
    environment = {**os.environ, "ABLATION_FAKE_GPUS": str(devices), "ABLATION_LEASES": str(tmp_path / "leases")}
    done = finish(command, tmp_path, environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    plan = json.loads((tmp_path / "results" / "plan.json").read_text())
    engines = {}
    for stage in plan["stages"]:
        if stage["study"] != study or not {"sampled", parent} & set(stage["variants"]):
            continue  # in the plan, but not selected
        status = json.loads((tmp_path / stage["dir"] / "status.json").read_text())
        assert status["state"] == "ok", status
        if stage["stage"] in ("reinforce", "warmup", "gad"):
            table = pd.read_parquet(tmp_path / stage["dir"] / "metrics.parquet").set_index(["name", "step"])["value"]
            engines["sampled" in stage["variants"]] = table
            assert table["rollout/logp_gap"].max() < 1e-5
            assert status["devices"] == devices
    assert set(engines) == {True, False}
