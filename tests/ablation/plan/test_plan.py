import json
import time

import pytest

from ablation.contract.errors import ConfigError
from ablation.plan.start import selection_note
from tests.ablation.plan.commands import build


def test_shared_work_is_planned_once_and_folders_follow_keys(toy):
    plan = build(toy)
    count = {id: sum(stage.id == id for stage in plan.stages.values()) for id in {s.id for s in plan.stages.values()}}
    assert count == {"assets": 1, "toy.prepare": 1, "toy.train": 8, "toy.evaluate": 8}
    assert len(plan.content.studies[0].runs) == 8
    prepare = next(stage for stage in plan.stages.values() if stage.id == "toy.prepare")
    assert prepare.label == "all variants"
    assert prepare.variants == ("base", "v2", "v3", "v10")
    assert prepare.seed is None
    seen = set()
    for stage in plan.stages.values():
        for above, path in zip(plan.upstream[stage.id, stage.key], stage.inputs.values(), strict=True):
            assert above in seen
            assert plan.stage(*above).dir == path
        seen.add((stage.id, stage.key))
    run = plan.content.studies[0].runs[0]
    train = plan.stage("toy.train", run.stages["train"])
    assert train.dir == toy.root / "results/stages/toy/train" / run.stages["train"]
    assert train.status == train.dir / "status.json"
    asset = next(stage for stage in plan.stages.values() if stage.id == "assets")
    assert asset.dir == toy.root / "results/stages/assets" / asset.key
    assert set(train.inputs) == {"prepare"}
    with pytest.raises(ConfigError, match="start snakemake again"):
        plan.stage("toy.train", "0" * 16)


def test_a_missing_entry_is_named(toy):
    (toy.root / "trainers/toy/train.py").unlink()
    with pytest.raises(ConfigError, match=r"_study\.yaml: stages\.train\.entry = 'trainers\.toy\.train'"):
        build(toy)


# Selection


def test_selection_brings_its_upstream(toy):
    plan = build(toy, variant="v10", seed=1)
    assert [(stage.id, stage.label) for stage in plan.selected()] == [
        ("assets", "stereoset missing.jsonl"),
        ("toy.prepare", "all variants"),
        ("toy.train", "v2 seed 1"),
        ("toy.train", "v10 seed 1"),
        ("toy.evaluate", "v2 seed 1"),
        ("toy.evaluate", "v10 seed 1"),
    ]
    assert plan.statuses() == [stage.dir / "status.json" for stage in plan.selected()]
    assert len(plan.stages) == len(build(toy).stages)
    assert plan.selected("other") == []
    assert build(toy).selected() == list(build(toy).stages.values())


def test_several_variants_are_selected_with_their_parents_which_is_said(toy):
    labels = {stage.label for stage in build(toy, variant="v10, base", seed=0).selected() if stage.id == "toy.train"}
    assert labels == {"base seed 0", "v10 seed 0", "v2 seed 0"}  # v2 is the parent of v10
    assert build(toy, variant=["v10", "v2"]).selected() == build(toy, variant="v2,v10").selected()
    assert selection_note(build(toy, variant="v10")) == [
        "toy: v2 runs as well, because a variant is judged against its parent"
    ]
    assert build(toy, variant="v3,v10").parents_added == {"toy": ["v2"]}
    for nothing_to_add in ("base", "base,v2", ""):
        assert selection_note(build(toy, variant=nothing_to_add)) == []
    with pytest.raises(ConfigError, match="did you mean 'v10'"):
        build(toy, variant="v2,v11")


# Files


def test_the_plan_file_says_what_changed_and_which_stages_a_run_has(toy):
    plan = build(toy)
    plan.write()
    written = json.loads(plan.file.read_text())
    (study,) = written["studies"]
    (changes,) = (variant["changes"] for variant in study["variants"] if variant["name"] == "v10")
    assert {"key": "lr", "from": 0.001, "to": 0.01, "factor": "lr", "no_effect": "", "idle_part": ""} in changes
    known = {(stage["id"], stage["key"]) for stage in written["stages"]}
    for run in study["runs"]:
        assert list(run["stages"]) == ["prepare", "train", "evaluate"]
        assert {(f"toy.{name}", key) for name, key in run["stages"].items()} <= known


def test_config_file_follows_the_contract(toy):
    plan = build(toy, variant="v10", seed=1)
    plan.write()
    train = plan.selected()[3]
    code = plan.configs[train.id, train.key]["code"]
    assert json.loads((train.dir / "config.json").read_text()) == {
        "stage": "toy.train",
        "key": train.key,
        "seed": 1,
        "entry": "trainers.toy.train",
        "model": "tests.ablation.toy_study:ToyConfig",
        "reads": ["lr", "reward", "bold", "patience"],
        "config": {
            "lr": 0.01,
            "reward": {"kind": "b", "weight": 0.5, "levels": [0.1, 0.2]},
            "bold": False,
            "patience": None,
        },
        "abort_rules": [plan.studies["toy"].written.health[0].model_dump(mode="json")],
        "code": json.loads(json.dumps(code)),
    }
    assert {f"trainers/{name}.py" for name in ("toy/train", "toy/helper", "objectives/b")} <= code["files"].keys()
    folders = sorted(path.parent.name for path in toy.root.glob("results/stages/**/config.json"))
    assert folders == sorted(stage.key for stage in plan.selected())
    assert not list(toy.root.glob("results/**/.*"))  # no temporary file is left


# Size


@pytest.mark.slow
def test_ten_thousand_stages_in_ten_seconds(toy):
    for number in range(200):
        toy.variant(f"w{number}", {"extends": "v2", "why": "x", "lr": round(0.1 + number / 1000, 4)})
    started, cpu = time.perf_counter(), time.process_time()
    plan = build(toy, seeds=25)
    plan.write()
    took = time.process_time() - cpu  # what other processes of a busy machine cannot change
    print(f"{len(plan.stages)} stages: {took:.1f} s of CPU, {time.perf_counter() - started:.1f} s in all")
    assert len(plan.stages) == 204 * 25 * 2 + 2
    assert took < 10
