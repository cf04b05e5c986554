"""Every stage that puts a model on a device, on a pretended one: CUDA's rules, the CPU's numbers, the host's waits.

The stages are those of the plan at scale smoke. Where trainers compute in another way on an accelerator, the CPU is
made to compute in that way too; then every number is the same, bit for bit.
"""

from importlib import import_module

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from ablation.config.settings import load_settings
from ablation.contract.parts import load
from ablation.plan.build import build_plan
from ablation.runner.stage import load_config
from tests.accelerator.pretended import Pretended
from tests.make_stage import make_stage
from trainers.harness import fix_randomness
from trainers.policy import plain

# The stages that run on the device, each entry and what makes it another; and how often the host may wait for the
# device in them, at scale smoke. A change that makes it wait more often must say so here. Sampling waits at each token.
WAITS = {
    "debias": {"prepare unedited": 270, "train v10": 717, "evaluate v10": 391},
    "innovations": {"reinforce all-innovations": 1447},
    "gspo": {
        "warm_start gspo": 554,
        "reward_model gspo-learnt-reward": 295,
        "reinforce ppo": 1735,
        "reinforce gspo-token-reward": 1619,
        "evaluate gspo-token-reward": 606,
    },
    "gad": {
        "base seqkd": 4479,
        "seqkd seqkd": 326,
        "evaluate_start seqkd": 532,
        "warmup d-final": 1423,
        "gad d-final": 1122,
        "evaluate d-final": 614,
    },
    "demonstrations": {
        "learner legacy": 176,
        "embed legacy": 24,
        "candidates legacy": 30,
        "rce separated": 288,
        "grpo separated": 298,
        "evaluate separated": 106,
    },
}
VARIANTS = {
    "debias": ["v10"],
    "innovations": ["all-innovations"],
    "gspo": ["ppo", "gspo-token-reward"],
    "gad": ["d-final"],
    "demonstrations": ["separated"],
}


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    root = tmp_path_factory.mktemp("plan")
    folders = {"results": str(root / "results"), "reports": str(root / "reports")}
    names = ",".join(name for names in VARIANTS.values() for name in names)
    made = build_plan(load_settings({"scale": "smoke", "variant": names, **folders}))
    made.write()
    return made


def stages_of(plan, study):
    """The stages of the study's variants and of what they read, once each, in an order in which they can run."""
    runs = next(each.runs for each in plan.content.studies if each.name == study)
    wanted = {
        (f"{study}.{name}", key) for run in runs if run.variant in VARIANTS[study] for name, key in run.stages.items()
    }
    wanted |= {above for address in wanted for above in plan.upstream[address]}
    return [stage for address, stage in plan.stages.items() if address in wanted]


def run(plan, planned, out, device):
    """Run a stage; its inputs are what the CPU left."""
    written = plan.configs[planned.id, planned.key]
    config = load_config(written["model"], written["config"], written["reads"])
    stage = make_stage(out, planned.id, None, planned.inputs, seed=planned.seed, devices=[device])
    stage.config, stage.parts = config, load(written["code"]["parts"])
    fix_randomness(planned.seed or 0, 1)
    import_module(planned.entry).run(stage)
    stage.metrics.close()
    return stage


def contents(folder):
    """Tables without times, and tensors, by file."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".parquet":
            table = pd.read_parquet(path)
            if "name" in table:
                table = table[~table["name"].str.contains("wall_s|time/")].reset_index(drop=True)
            found[name] = table
        elif path.suffix == ".safetensors" and "checkpoint" not in path.parts:
            found[name] = load_file(path)
    return found


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, pd.DataFrame):
            pd.testing.assert_frame_equal(value, other[name], check_exact=True, obj=name)
        else:
            assert value.keys() == other[name].keys()
            assert all(torch.equal(each, other[name][key]) for key, each in value.items()), name


@pytest.mark.parametrize("study", VARIANTS)
def test_a_stage_on_a_device_computes_what_the_cpu_does(plan, study, tmp_path, monkeypatch):
    monkeypatch.setattr(plain, "is_plain", lambda model: False)  # rows are padded, as on an accelerator
    waits, alerts = {}, set()
    for planned in stages_of(plan, study):
        run(plan, planned, planned.dir, "cpu")
        name = f"{planned.stage} {planned.variants[0]}"
        if name not in WAITS[study]:
            continue
        with Pretended() as device:
            run(plan, planned, tmp_path / name, "cuda:0")
        try:
            assert_equal(contents(planned.dir), contents(tmp_path / name))
        except AssertionError:  # a sum differed in its last digit in one of some hundred runs of CI, and in no other
            run(plan, planned, tmp_path / name / "cpu", "cpu")
            with Pretended():
                run(plan, planned, tmp_path / name / "cuda", "cuda:0")
            assert_equal(contents(tmp_path / name / "cpu"), contents(tmp_path / name / "cuda"))
        waits[name] = sum(device.waits.values())
        alerts |= device.alerts
        print(name, *device.waits.most_common(), sep="\n  ")  # where, for whom a number rose
    assert not alerts
    assert waits.keys() == WAITS[study].keys()
    assert {name: count for name, count in waits.items() if count > WAITS[study][name]} == {}


def test_every_entry_that_uses_a_device_is_run_on_one(plan):
    run = {
        planned.entry
        for study, waits in WAITS.items()
        for planned in stages_of(plan, study)
        if f"{planned.stage} {planned.variants[0]}" in waits
    }
    assert run == {planned.entry for planned in plan.stages.values() if planned.resources.gpu}
