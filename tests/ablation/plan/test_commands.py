"""A study of commands: its keys and types, what counts for the keys, and what is refused before any job."""

import pytest

from ablation.contract.errors import ConfigError
from ablation.plan.retry import REREAD, decide, pending, states_of
from tests.ablation.plan.commands import BASE, build, changed, finish


def keys(toy):
    return {run.variant: run.stages for run in build(toy, seeds=1).content.studies[0].runs}


def refused(toy, *parts):
    with pytest.raises(ConfigError) as caught:
        build(toy)
    for part in parts:
        assert part in str(caught.value), str(caught.value)


def test_the_plan_of_a_command(commands):
    plan = build(commands, seeds=1)
    found = keys(commands)
    assert len({stages["train"] for stages in found.values()}) == 3  # v4 shares the training of its parent
    train = plan.stage("toy.train", found["v3"]["train"])
    assert (train.entry, train.resources.gpu) == ("ablation.runner.command", 1)
    config = plan.configs["toy.train", found["v3"]["train"]]
    assert config["config"] == {
        "steps": 4,
        "lr": 1e-3,
        "task": {"name": "sums", "sizes": [3], "extra": {"any": 1}},
        "clip": 0.2,
    }
    assert config["model"] is None
    assert list(config["code"]["files"]) == ["my train.py", "src/model.py", "src/settings.json"]
    assert config["command"]["words"][:3] == ["{python}", "my train.py", "{config}"]
    assert plan.configs["toy.evaluate", found["v3"]["evaluate"]]["command"]["collect"] == [
        {"reader": "metrics", "place": ".", "columns": {}, "values": [], "at": None},
        {"reader": "items", "place": "scores/*.csv", "columns": {"item": "id"}, "values": ["correct"], "at": None},
    ]


@pytest.mark.parametrize(
    ("change", "reruns"),
    [
        (lambda toy: toy.code("my train.py", "1  # a comment\n"), ""),
        (lambda toy: toy.code("src/settings.json", "1 \n"), "train evaluate"),
        (lambda toy: toy.code("src/new.py", ""), "train evaluate"),
        (lambda toy: toy.code("evaluate.py", "2\n"), "evaluate"),
        (lambda toy: toy.code("lib/unused.py", "2\n"), ""),
        (lambda toy: toy.declare(base=BASE | {"eval": 7}), "evaluate"),
        (lambda toy: toy.declare(changed("evaluate", collect=["items"])), ""),  # what it left is read again
        (lambda toy: toy.declare(changed("train", time_limit=3, steps=None)), ""),
        (lambda toy: toy.declare(changed("train", resources={"gpu": 2, "threads": 2})), ""),
    ],
)
def test_what_runs_again(commands, change, reruns):
    """Also test_why.py, with the reasons."""
    before = keys(commands)["base"]
    change(commands)
    after = keys(commands)["base"]
    assert [stage for stage in before if before[stage] != after[stage]] == reruns.split()


@pytest.mark.parametrize(
    ("variant", "parts"),
    [
        ({"stps": 1}, ("v2.yaml: stps = 1", "is not a key of this configuration", "did you mean 'steps'?")),
        ({"task": {"nam": "x"}}, ("v2.yaml: task.nam = 'x'", "did you mean")),
        ({"steps": 1.5}, ("v2.yaml: steps = 1.5", "integer")),
        ({"lr": "1e-3 "}, ("v2.yaml: lr = '1e-3 '", "number")),
        ({"task": {"sizes": ["x"]}}, ("v2.yaml: task.sizes.0", "integer")),
        ({"task": 3}, ("v2.yaml: task = 3",)),
        ({"lr": 1e-3}, ("v2.yaml: lr = 0.001", "already has this value")),
    ],
)
def test_a_variant_is_checked_against_base(commands, variant, parts):
    commands.variant("v2", {"extends": "base", "why": "wrong", **variant})
    refused(commands, *parts)


@pytest.mark.parametrize(
    ("stage", "fields", "parts"),
    [
        ("train", {"code": ["gone.py"]}, ("_study.yaml: stages.train.code = 'gone.py': matches no file in",)),
        ("train", {"colect": ["items"]}, ("stages.train.colect", "not a key", "mean 'collect'? choose from code, ")),
        ("train", {"code": ["src/"]}, ("'my train.py' is a file of the project", "add my train.py")),
        ("train", {"command": "x {config} {seed} --a=src/model.py", "code": ["my train.py"]}, ("add src/model.py",)),
        ("train", {"code": ["/etc/passwd"]}, ("stages.train.code", "must be relative to the folder")),
        ("train", {"command": "python {sed}"}, ("stages.train", "{sed} is not a placeholder")),
        ("train", {"command": "python 'x"}, ("stages.train", "no closing quotation")),
        ("train", {"command": "x {config}"}, ("the stage is seeded, but its command does not contain {seed}",)),
        ("train", {"command": "x {seed}"}, ("gets none of the keys in `reads`", "add {config}, {overrides}")),
        ("train", {"command": "x {config} {seed}", "reads": None}, ("stages.train.reads", "is empty")),
        ("train", {"seeded": False}, ("stages.train.seeded = False: the command contains {seed}",)),
        ("train", {"steps": "stps"}, ("stages.train.steps = 'stps'", "did you mean 'steps'?")),
        ("train", {"steps": "eval"}, ("stages.train.steps = 'eval'", "add eval to the stage's `reads`")),
        ("train", {"entry": "trainers.toy.train"}, ("stages.train", "needs exactly one of `entry` and `command`")),
        ("train", {"command": None}, ("stages.train", "needs exactly one of `entry` and `command`")),
        ("train", {"command": None, "entry": "trainers.toy.train", "code": None, "steps": None}, ("config model",)),
        ("train", {"command": None, "entry": "trainers.toy.train", "steps": None}, ("`code` needs a `command`",)),
        ("evaluate", {"command": "x {input:tran} {value:eval}"}, ("{input:tran}", "did you mean 'train'?")),
        ("evaluate", {"command": "x {value:lr} {input:train}"}, ("the stage does not read lr",)),
        ("evaluate", {"collect": ["itms"]}, ("stages.evaluate.collect = 'itms'", "did you mean 'items'?")),
        ("evaluate", {"collect": [{"items": "../x"}]}, ("stages.evaluate.collect", "must be inside")),
        ("evaluate", {"collect": None}, ("stages.evaluate.collect", "choose a reader")),
        ("evaluate", {"reads": [], "command": "x {input:train}"}, ("base.eval = 8: no stage reads this key",)),
        (
            "train",
            {"command": "x {value:lr} {value:task} {seed}"},
            ("base.clip: no stage reads this key", "{value:KEY}"),
        ),
    ],
)
def test_what_is_wrong_with_a_command_is_said_before_any_job(commands, stage, fields, parts):
    commands.declare(changed(stage, **fields))
    refused(commands, *parts)


@pytest.mark.parametrize(
    ("base", "parts"),
    [
        ({"_private": 1}, ("base._private", "is not a valid key")),
        ({"task": {"a.b": 1}}, ("base.task.a.b", "is not a valid key")),
        ({"why": 1}, ("base.why", "is reserved")),
    ],
)
def test_keys_that_cannot_be(commands, base, parts):
    commands.declare(base=BASE | base)
    refused(commands, *parts)


def test_an_asset_may_be_an_input(commands):
    source = {"source": "path", "path": "data.jsonl"}
    stages = changed("evaluate", inputs={"train": "train", "data": "asset:data"})
    stages["evaluate"]["command"] += ["{input:data}"]
    commands.declare(stages, base=BASE | {"data": {"kind": "questions", "sources": [source]}})
    commands.code("data.jsonl", "{}\n")
    plan = build(commands, seeds=1)
    assert [stage.id for stage in plan.stages.values()].count("assets") == 1
    commands.declare(stages, base=BASE | {"data": {"kind": "nothing", "sources": [source]}})
    refused(commands, "_study.yaml: base.data.kind = 'nothing'")
    commands.declare(stages)
    refused(commands, "base.data", "is an asset in `inputs`")


def test_another_way_to_read_the_files_runs_no_command_again(commands):
    plan = build(commands, seeds=1)
    for stage in plan.selected():
        finish(stage, "failed", reading=plan.configs[stage.address]["command"]["reading"])
    assert list(decide(plan, states_of(plan)).again) == pending(plan, states_of(plan)) == []
    commands.declare(changed("evaluate", collect=["items"]))
    plan = build(commands, seeds=1)
    expected = [stage for stage in plan.selected() if stage.stage == "evaluate"]
    assert pending(plan, states_of(plan)) == expected
    assert decide(plan, states_of(plan)).again == {stage.address: REREAD for stage in expected}
