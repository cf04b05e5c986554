import json
import os
import shutil
import time
from pathlib import Path
from typing import Annotated

import pytest
import yaml
from pydantic import BaseModel, ConfigDict

from contract.absent import Absent
from contract.errors import ConfigError
from tests.tracker import toy_study
from tests.tracker.toy_study import VARIANTS, Toy
from tracker.config.settings import load_settings
from tracker.plan import keys
from tracker.plan.build import build_plan
from tracker.plan.retry import pending, repair, retry_failed
from tracker.plan.start import selection_note
from tracker.store.health_events import as_rule

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Toy(tmp_path)


def build(toy, gpu_pool=None, **overrides):
    return build_plan(load_settings(overrides, configs=toy.configs), gpu_pool, root=toy.root)


def keys_of(plan):
    """(variant, seed, stage) -> key."""
    return {(run.variant, run.seed, stage): key for run in plan.runs for stage, key in run.stages.items()}


def changed(before, after):
    """The names in both plans whose key differs."""
    one, two = keys_of(before), keys_of(after)
    return {name for name in one.keys() & two.keys() if one[name] != two[name]}


def names(stages, variants, seeds=(0, 1)):
    return {(variant, seed, stage) for variant in variants for seed in seeds for stage in stages}


ALL = tuple(VARIANTS)
BELOW = ("train", "evaluate")


def test_shared_work_is_planned_once(toy):
    plan = build(toy)
    count = {id: sum(stage.id == id for stage in plan.stages.values()) for id in {s.id for s in plan.stages.values()}}
    assert count == {"assets": 1, "toy.prepare": 1, "toy.train": 8, "toy.evaluate": 8}
    assert len(plan.runs) == 8
    prepare = next(stage for stage in plan.stages.values() if stage.id == "toy.prepare")
    assert prepare.label == "all variants"
    assert prepare.variants == ("base", "v2", "v3", "v10")
    assert prepare.seed is None


def test_folders_inputs_and_order(toy):
    plan = build(toy)
    seen = set()
    for stage in plan.stages.values():
        for above, path in zip(plan.upstream[stage.id, stage.key], stage.inputs.values(), strict=True):
            assert above in seen
            assert plan.stage(*above).dir == path
        seen.add((stage.id, stage.key))
    run = plan.runs[0]
    train = plan.stage("toy.train", run.stages["train"])
    assert train.dir == toy.root / "results/stages/toy/train" / run.stages["train"]
    assert train.status == train.dir / "status.json"
    asset = next(stage for stage in plan.stages.values() if stage.id == "assets")
    assert asset.dir == toy.root / "results/stages/assets" / asset.key
    assert set(train.inputs) == {"prepare"}
    with pytest.raises(ConfigError, match="plan again"):
        plan.stage("toy.train", "0" * 16)


def test_labels(toy):
    for number in range(4, 8):
        toy.variant(f"v{number}", {"extends": "base", "why": "x", "size": number})
    labels = {stage.label for stage in build(toy).stages.values()}
    assert "base seed 0" in labels
    assert "base, v2 and 2 more" in labels
    assert "v4" in labels
    # Their inputs differ, so no two of them share a training.
    assert "v4 seed 1" in labels


def test_labels_of_shared_seeded_stages(toy):
    stages = yaml.safe_load((toy.folder / "_study.yaml").read_text())["stages"]
    stages["train"]["reads"] = []  # so that v2 and v3, which load the same objective, share their training
    toy.study(stages=stages)
    labels = {stage.label for stage in build(toy).stages.values() if stage.id == "toy.train"}
    assert labels == {"base, v2 and v3, seed 0", "base, v2 and v3, seed 1", "v10 seed 0", "v10 seed 1"}


# What a key depends on, and what it does not


def test_same_input_same_keys(toy):
    assert keys_of(build(toy)) == keys_of(build(toy))


def test_a_key_is_the_digest_of_canonical_json():
    assert keys.canonical({"b": 1.0, "a": [None, True, "é"]}) == '{"a":[null,true,"\\u00e9"],"b":1.0}'
    # printf '{"a":1}' | sha256sum
    assert keys.key_of({"a": 1}) == "015abd7f5cc57a2d"
    with pytest.raises(ValueError, match="JSON"):
        keys.canonical(float("nan"))


def test_seeds_change_seeded_stages_only(toy):
    run0, run1 = build(toy).runs[:2]
    assert run0.stages["prepare"] == run1.stages["prepare"]
    assert run0.stages["train"] != run1.stages["train"]
    assert keys_of(build(toy)).items() <= keys_of(build(toy, seeds=5)).items()


def test_a_study_has_as_many_runs_as_the_scale_gives_it_seeds(toy):
    toy.yaml("scales/full.yaml", {"seeds": 2, "studies": {"toy": {"seeds": 3}}})
    assert {run.seed for run in build(toy).runs} == {0, 1, 2}
    assert {run.seed for run in build(toy, seeds=1).runs} == {0}


def test_a_value_rekeys_its_stage_those_below_and_the_children(toy):
    before = build(toy)
    toy.variant("v2", {**VARIANTS["v2"], "reward": {"weight": 0.75}})
    assert changed(before, build(toy)) == names(BELOW, ("v2", "v3", "v10"))


def test_a_key_that_a_stage_does_not_read_changes_nothing(toy):
    before = build(toy)
    toy.study(base={"size": 7})
    after = build(toy)
    assert changed(before, after) == names(("prepare", *BELOW), ALL)
    one = keys_of(before)["base", 0, "train"]
    assert before.configs["toy.train", one]["config"].keys() == {"lr", "reward", "bold", "patience"}


def test_texts_order_and_layout_change_nothing(toy):
    before = build(toy)
    text = (toy.folder / "v10.yaml").read_text()
    toy.study(title="Other", question="Other?", curves=[])
    (toy.folder / "v10.yaml").write_text("# comment\n\nlr: 1.0e-2\nreward:  {kind: 'b'}\nwhy: another\nextends: v2\n")
    assert text != (toy.folder / "v10.yaml").read_text()
    assert changed(before, build(toy)) == set()


def test_a_new_variant_changes_no_other(toy):
    before = build(toy)
    toy.variant("v4", {"extends": "v3", "why": "x", "lr": 0.5})
    assert changed(before, build(toy)) == set()


def test_stating_a_default_in_the_base_changes_nothing(toy):
    before = build(toy)
    toy.study(base={"lr": 0.001, "reward": {"kind": "a"}})
    assert changed(before, build(toy)) == set()


def with_field(toy, monkeypatch, name, annotation, default):
    """Give the toy's config model one more field, which train reads."""
    wider = type("ToyConfig", (toy_study.ToyConfig,), {"__annotations__": {name: annotation}, name: default})
    monkeypatch.setattr(toy_study, "ToyConfig", wider)
    stages = yaml.safe_load((toy.folder / "_study.yaml").read_text())["stages"]
    if name not in stages["train"]["reads"]:
        stages["train"]["reads"].append(name)
    toy.study(stages=stages)
    return build(toy)


def test_a_new_field_reruns_its_readers_unless_it_says_what_its_absence_meant(toy, monkeypatch):
    before = build(toy)
    assert changed(before, with_field(toy, monkeypatch, "extra", int, 5)) == names(BELOW, ALL)
    marked = with_field(toy, monkeypatch, "extra", Annotated[int, Absent(5)], 5)
    assert changed(before, marked) == set()
    (train, *_) = [stage for stage in marked.stages.values() if stage.id == "toy.train"]
    assert (
        marked.configs[train.id, train.key]["config"]["extra"] == 5
    )  # written although it is not hashed: no stage fills up from defaults
    # The mark says what was, so another default is another value, and the old one leads back to the old keys.
    assert changed(before, with_field(toy, monkeypatch, "extra", Annotated[int, Absent(5)], 6)) == names(BELOW, ALL)
    toy.variant("base", {"why": "the start", "extra": 5})
    again = with_field(toy, monkeypatch, "extra", Annotated[int, Absent(5)], 6)
    assert changed(before, again) == set()


def test_a_new_field_inside_a_new_field(toy, monkeypatch):
    class Early(BaseModel):
        model_config = ConfigDict(extra="forbid")
        key: str = "loss"

    class Later(Early):
        patience: Annotated[int, Absent(1)] = 1

    mark = Absent({"key": "loss"})
    before = with_field(toy, monkeypatch, "early", Annotated[Early, mark], Early())
    assert changed(before, with_field(toy, monkeypatch, "early", Annotated[Later, mark], Later())) == set()
    after = with_field(toy, monkeypatch, "early", Annotated[Later, mark], Later(patience=2))
    assert changed(before, after) == names(BELOW, ALL)


def test_false_is_not_zero(toy, monkeypatch):
    before = build(toy)
    assert changed(before, with_field(toy, monkeypatch, "extra", Annotated[int | bool, Absent(0)], False)) != set()
    assert changed(before, with_field(toy, monkeypatch, "extra", Annotated[int | bool, Absent(0)], 0)) == set()


def test_a_changed_default_takes_no_results_of_another_value(toy, monkeypatch):
    """The default 0.001 ran in a variant; then 0.02 is the default and the root states nothing: not its results."""
    toy.study(base={"lr": 0.02})
    toy.variant("other", {"extends": "base", "why": "x", "lr": 0.001})
    before = build(toy)
    smaller = type("ToyConfig", (toy_study.ToyConfig,), {"__annotations__": {"lr": float}, "lr": 0.02})
    monkeypatch.setattr(toy_study, "ToyConfig", smaller)
    toy.study(base={})
    after = build(toy)
    assert changed(before, after) == set()
    assert stages_of(after, "base")["train"] != stages_of(before, "other")["train"]


def stages_of(plan, variant):
    return next(run.stages for run in plan.runs if run.variant == variant)


def test_abort_rules_count_by_their_numbers(toy):
    before = build(toy)
    rule = before.studies["toy"].written.health[0].model_dump(mode="json")
    toy.study(health=[{**rule, "id": "other", "diagnosis": "other", "remedy": "other"}])
    assert changed(before, build(toy)) == set()
    toy.study(health=[{**rule, "range": {"max": 6.0}}])
    assert changed(before, build(toy)) == names(BELOW, ALL)
    warned = build_with_rule(toy, {**rule, "severity": "warn"})
    assert changed(warned, build_with_rule(toy, {**rule, "severity": "warn", "range": {"max": 9.0}})) == set()


def build_with_rule(toy, rule):
    toy.study(health=[rule])
    return build(toy)


def test_code_rekeys_what_reaches_it(toy):
    before = build(toy)
    toy.code("trainers/toy/helper.py", "def add(a, b):\n    return a - b\n")
    assert changed(before, build(toy)) == names(BELOW, ALL)


def test_an_objective_rekeys_the_variants_that_use_it(toy):
    before = build(toy)
    toy.code("trainers/objectives/b.py", "def loss(x):\n    # only a comment\n    return 2 * x\n")
    assert changed(before, build(toy)) == set()
    toy.code("trainers/objectives/b.py", "def loss(x):\n    return 3 * x\n")
    assert changed(before, build(toy)) == names(BELOW, ("v10",))


def test_a_path_asset_counts_by_content(toy, monkeypatch):
    data = toy.root / "missing.jsonl"
    absent = build(toy)
    data.write_text("1\n")
    present = build(toy)
    assert changed(absent, present) == names(("prepare", *BELOW), ALL)
    data.write_text("2, and more\n")
    assert changed(present, build(toy)) == names(("prepare", *BELOW), ALL)
    data.write_text("1\n")
    assert changed(present, build(toy)) == set()


def test_digest_of_a_folder_counts_names_and_content(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("1")
    one = keys.path_digest(tmp_path / "a")
    (tmp_path / "a" / "x").rename(tmp_path / "a" / "y")
    assert keys.path_digest(tmp_path / "a") != one
    assert keys.path_digest(tmp_path / "none") is None


def test_a_missing_entry_is_named(toy):
    (toy.root / "trainers/toy/train.py").unlink()
    with pytest.raises(ConfigError, match=r"_study\.yaml: stages\.train\.entry = 'trainers\.toy\.train'"):
        build(toy)


def test_gpu_of_a_variant_reaches_its_stages(toy):
    toy.variant("v10", {**VARIANTS["v10"], "gpu": 2})
    gpus = {(s.label, s.id): s.resources.gpu for s in build(toy).stages.values()}
    assert gpus["v10 seed 0", "toy.train"] == 2
    assert gpus["v2 seed 0", "toy.train"] == 1
    assert gpus["v10 seed 0", "toy.evaluate"] == 0  # needs none, and gets none


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


def test_several_variants_are_selected(toy):
    labels = {stage.label for stage in build(toy, variant="v10, base", seed=0).selected() if stage.id == "toy.train"}
    assert labels == {"base seed 0", "v10 seed 0", "v2 seed 0"}  # v2 is the parent of v10
    assert build(toy, variant=["v10", "v2"]).selected() == build(toy, variant="v2,v10").selected()


def test_the_parent_of_a_variant_is_selected_and_said(toy):
    assert selection_note(build(toy, variant="v10")) == ["toy: v2 runs as well: a change is judged against the parent"]
    assert build(toy, variant="v3,v10").parents_added == {"toy": ["v2"]}
    for nothing_to_add in ("base", "base,v2", ""):
        assert selection_note(build(toy, variant=nothing_to_add)) == []
    assert build(toy).selected() == list(build(toy).stages.values())


@pytest.mark.parametrize("wanted", ["v11", "v2,v11"])
def test_unknown_variant(toy, wanted):
    with pytest.raises(ConfigError, match="did you mean 'v10'"):
        build(toy, variant=wanted)


# Files


def test_plan_file_follows_the_contract(toy):
    plan = build(toy)
    plan.write()
    written = json.loads(plan.file.read_text())
    assert set(written) == {"scale", "results", "reports", "studies", "stages"}
    (study,) = written["studies"]
    assert set(study) == {
        "name", "title", "question", "source", "table", "curves", "figures", "analysis", "analysis_digest", "health",
        "trained_model", "published", "variants", "runs", "last_stage",
    }  # fmt: skip
    assert study["last_stage"] == "evaluate"
    by_name = {variant["name"]: variant for variant in study["variants"]}
    assert set(by_name["v10"]) == {"name", "parent", "why", "file", "gpu", "resolved", "factors", "changes"}
    assert {"key": "lr", "from": 0.001, "to": 0.01, "factor": "lr", "no_effect": ""} in by_name["v10"]["changes"]
    for stage in written["stages"]:
        assert set(stage) == {
            "id", "study", "stage", "key", "seed", "label", "entry", "dir", "inputs", "resources", "variants",
        }  # fmt: skip
        assert set(stage["resources"]) == {"threads", "mem_mb", "runtime", "gpu", "gpu_share"}
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
        "model": "tests.tracker.toy_study:ToyConfig",
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
    assert {"trainers.toy.train", "trainers.toy.helper", "trainers.objectives.b"} <= code["trees"].keys()
    folders = sorted(path.parent.name for path in toy.root.glob("results/stages/**/config.json"))
    assert folders == sorted(stage.key for stage in plan.selected())
    assert not list(toy.root.glob("results/**/.*"))  # no temporary file is left


def test_the_written_config_gives_the_resolved_values_back(toy):
    plan = build(toy)
    for stage in plan.stages.values():
        if stage.id == "toy.train":
            resolved, config = (
                plan.studies["toy"].variants[stage.variants[0]].resolved,
                plan.configs[stage.id, stage.key],
            )
            assert config["config"] == resolved.model_dump(mode="json", include=set(config["reads"]))


def test_writing_twice_touches_nothing(toy):
    plan = build(toy)
    plan.write()
    files = [plan.file, *toy.root.glob("results/stages/**/config.json")]
    before = {file: file.stat().st_mtime_ns for file in files}
    build(toy).write()
    assert {file: file.stat().st_mtime_ns for file in files} == before
    files[1].write_text("")  # as after a power cut
    build(toy).write()
    assert json.loads(files[1].read_text())["key"] == files[1].parent.name
    build(toy, seeds=1).write()
    assert plan.file.stat().st_mtime_ns != before[plan.file]


def finish(stage, state):
    stage.dir.mkdir(parents=True, exist_ok=True)
    stage.status.write_text(state if state.startswith("{") else json.dumps({"state": state, "key": stage.key}))


def test_retry_sets_aside_what_did_not_end_well(toy):
    plan = build(toy, seed=0)
    stages = [stage for stage in plan.selected() if stage.id in ("toy.train", "toy.evaluate")]
    for stage, state in zip(stages, ["ok", "failed", "diverged", "blocked", "{torn", "ok"], strict=False):
        finish(stage, state)
    other = next(s for s in plan.stages.values() if s.seed == 1)
    finish(other, "failed")
    assert retry_failed(plan) == stages[1:5]
    assert [stage.status.exists() for stage in stages[:6]] == [True, False, False, False, False, True]
    assert json.loads((stages[1].dir / "status.attempt-1.json").read_text())["state"] == "failed"
    assert (stages[4].dir / "status.attempt-1.json").read_text() == "{torn"
    assert other.status.exists()  # not selected
    finish(stages[1], "diverged")
    assert retry_failed(plan) == [stages[1]]
    assert json.loads((stages[1].dir / "status.attempt-1.json").read_text())["state"] == "failed"
    assert json.loads((stages[1].dir / "status.attempt-2.json").read_text())["state"] == "diverged"
    assert retry_failed(plan) == []


def test_a_stage_that_lost_a_file_runs_again_without_being_asked(toy):
    plan = build(toy, seed=0)
    first, second, third, *whole = plan.selected()
    for stage in (first, second, third, *whole):
        finish(stage, json.dumps({"state": "ok", "key": stage.key, "files": {"metrics.parquet": 4}}))
        (stage.dir / "metrics.parquet").write_text("four")
    assert repair(plan) == []
    (first.dir / "metrics.parquet").unlink()
    (second.dir / "metrics.parquet").write_text("less"[:3])
    (third.dir / "metrics.parquet").unlink()
    (third.dir / "metrics.parquet").mkdir()
    assert pending(plan) == [first, second, third]
    assert repair(plan) == [first, second, third]
    assert not any(stage.status.exists() for stage in (first, second, third))
    assert all(stage.status.exists() for stage in whole)
    assert (third.dir / "metrics.attempt-1.parquet").is_dir()  # out of the way of the new one
    assert repair(plan) == []
    whole[0].status.unlink()
    os.mkfifo(whole[0].status)  # nobody waits for what it may say
    assert repair(plan) == [whole[0]]


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


# The study `debias` itself


@pytest.fixture
def copy(tmp_path, monkeypatch):
    for name in ("configs", "trainers", "contract"):
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def debias(root, **overrides):
    return build_plan(
        load_settings({"scale": "smoke", "studies": ["debias"], "seeds": 2, **overrides}, configs=root / "configs"),
        root=root,
    )


V8_FAMILY = ("v8", "v8.1", "v9", "v10", "v8-earlystop", "v8-earlystop-max", "v8-earlystop-mixed")


def edit(file, old, new):
    text = file.read_text()
    assert text.count(old) >= 1
    file.write_text(text.replace(old, new, 1))


def test_editing_the_adaptive_curriculum_rekeys_v8_and_its_family_only(copy):
    before = debias(copy)
    file = copy / "trainers/objectives/debias/rcs_adaptive.py"
    file.write_text("# a comment\n" + file.read_text() + "\n# another\n")
    assert changed(before, debias(copy)) == set()
    file.write_text(file.read_text() + "\n_ARITHMETIC = 1\n")
    assert changed(before, debias(copy)) == names(BELOW, V8_FAMILY)


def test_editing_the_fairness_term_rekeys_v10_only(copy):
    before = debias(copy)
    file = copy / "trainers/objectives/debias/fairness.py"
    file.write_text(file.read_text() + "\n_ARITHMETIC = 1\n")
    assert changed(before, debias(copy)) == names(BELOW, ("v10",))


def test_editing_the_edit_loss_rekeys_everything(copy):
    before = debias(copy)
    file = copy / "trainers/objectives/debias/bias_edit.py"
    file.write_text(file.read_text() + "\n_ARITHMETIC = 1\n")
    assert names(BELOW, before.studies["debias"].variants) <= changed(before, debias(copy))


def test_changing_the_alphas_of_v8_rekeys_v8_and_its_children(copy):
    before = debias(copy)
    edit(copy / "configs/studies/debias/v8.yaml", "alphas: [0.0, 1.0, 2.0]", "alphas: [0.0, 1.0, 3.0]")
    # v8.1 replaces the alphas, so that nothing changes for it.
    assert changed(before, debias(copy)) == names(BELOW, set(V8_FAMILY) - {"v8.1"})


def test_the_grid_of_debias(copy):
    plan = debias(copy)
    assert len(plan.studies["debias"].variants) == 15
    assert len(plan.runs) == 30
    assert len(plan.stages) == 2 + 1 + 30 + 30


def test_health_rules_of_debias_are_rules_of_the_health_package(copy):
    rules = {rule.id: as_rule(rule) for rule in debias(copy).studies["debias"].written.health}
    assert rules["lms-collapse"].is_outside(-0.9)
    assert not rules["lms-collapse"].is_outside(0.0)
    assert rules["loss-not-finite"].is_outside(float("nan"))
    assert rules["bias-grows"].measure == "change"
