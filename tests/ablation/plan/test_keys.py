"""What a key depends on, and what it does not, in a toy study; `test_every_module.py` edits the real modules."""

from typing import Annotated

import pytest
import yaml

from ablation.contract.absent import Absent
from ablation.plan import keys
from tests.ablation import toy_study
from tests.ablation.plan.commands import build
from tests.ablation.toy_study import VARIANTS


def keys_of(plan):
    return {
        (run.variant, run.seed, stage): key for run in plan.content.studies[0].runs for stage, key in run.stages.items()
    }


def changed(before, after):
    """The names in both plans whose key differs."""
    one, two = keys_of(before), keys_of(after)
    return {name for name in one.keys() & two.keys() if one[name] != two[name]}


def names(stages, variants, seeds=(0, 1)):
    return {(variant, seed, stage) for variant in variants for seed in seeds for stage in stages}


ALL = tuple(VARIANTS)
BELOW = ("train", "evaluate")


def test_a_key_is_the_digest_of_canonical_json():
    assert keys.canonical({"b": 1.0, "a": [None, True, "é"]}) == '{"a":[null,true,"\\u00e9"],"b":1.0}'
    # printf '{"a":1}' | sha256sum
    assert keys.key_of({"a": 1}) == "015abd7f5cc57a2d"
    with pytest.raises(ValueError, match="JSON"):
        keys.canonical(float("nan"))


def test_seeds_change_seeded_stages_only(toy):
    run0, run1 = build(toy).content.studies[0].runs[:2]
    assert run0.stages["prepare"] == run1.stages["prepare"]
    assert run0.stages["train"] != run1.stages["train"]
    assert keys_of(build(toy)).items() <= keys_of(build(toy, seeds=5)).items()


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
    return next(run.stages for run in plan.content.studies[0].runs if run.variant == variant)


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
    data.unlink()
    data.mkdir()
    (data / "x").write_text("1\n")
    folder = build(toy)
    assert changed(present, folder) == names(("prepare", *BELOW), ALL)
    (data / "x").rename(data / "y")
    assert changed(folder, build(toy)) == names(("prepare", *BELOW), ALL)
