"""Why stages would run, told before they do; and which stages nothing needs any more."""

import fcntl

import pytest

from ablation.cli.main import main
from ablation.plan.retry import reasons, say_what_failed, states_of
from tests.ablation.plan.commands import STAGES, VARIANTS, build, changed, finish
from tests.ablation.typed import output, refused


def start(toy, state="ok", **overrides):
    """Plan, and let every stage end."""
    plan = build(toy, **overrides)
    plan.write()
    for stage in plan.selected():
        finish(stage, state, reading=plan.configs[stage.address]["command"]["reading"])
    return plan


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda toy: None, []),
        (
            lambda toy: toy.code("my train.py", "2\n"),
            ["6 x toy.train: my train.py changed", "8 x toy.evaluate: its input train changed"],
        ),
        (lambda toy: toy.code("lib/used.py", "2\n"), ["8 x toy.evaluate: lib/used.py changed"]),
        (
            lambda toy: toy.variant("v2", {**VARIANTS["v2"], "lr": 2}),
            ["2 x toy.train: lr of v2 changed (1.0 -> 2.0)", "2 x toy.evaluate: its input train changed"],
        ),
        (
            lambda toy: toy.variant("new", {"extends": "v3", "why": "x", "eval": 1}),
            ["2 x toy.evaluate: new variant new"],
        ),
        (
            lambda toy: toy.declare(changed("evaluate", collect=["items"])),
            ["8 x toy.evaluate: `collect` changed, so the files are read again"],
        ),
        (
            lambda toy: toy.declare(changed("train", command=STAGES["train"]["command"] + " -v")),
            ["6 x toy.train: its command changed", "8 x toy.evaluate: its input train changed"],
        ),
    ],
)
def test_what_changed(commands, change, expected):
    start(commands, seeds=2)
    change(commands)
    plan = build(commands, seeds=2)
    assert reasons(plan, states_of(plan)) == expected


def test_a_new_seed_and_what_failed(commands):
    plan = build(commands, seeds=1)
    assert reasons(plan, states_of(plan)) == []  # everything is new: nothing has been started
    start(commands, "failed", seeds=1)
    plan = build(commands, seeds=2, retry="failed")
    assert set(reasons(plan, states_of(plan))) == {
        "3 x toy.train: the files are read again",
        "4 x toy.evaluate: the files are read again",
        "3 x toy.train: new seed 1",
        "4 x toy.evaluate: new seed 1",
    }


def test_prune_removes_what_nothing_needs(commands, capsys):
    assert "the plan does not exist" in refused(capsys, "prune")
    old = start(commands)
    commands.code("lib/used.py", "2\n")
    now = start(commands)
    other = old.settings.results / "stages/toy/train/notes"
    other.mkdir()
    gone = [stage.dir for address, stage in old.stages.items() if address not in now.stages]
    assert {folder.parent.name for folder in gone} == {"evaluate"}
    assert f"toy.evaluate: {len(gone)} stages, " in output(capsys, "prune", "--dry-run")
    assert all(folder.exists() for folder in gone)
    with (old.settings.results / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["prune"]) == 2
    assert all(folder.exists() for folder in gone)
    assert main(["prune"]) == 0
    assert not any(folder.exists() for folder in gone)
    assert all(stage.dir.exists() for stage in now.selected())
    assert other.exists()


@pytest.mark.parametrize(
    ("words", "again"),
    [
        (["/bin/snakemake", "--cores", "2"], "snakemake --cores 2 --config retry=failed"),
        (["snakemake", "--config", "retry=failed"], "snakemake --config retry=failed"),
        (
            ["snakemake", "--config", "seeds=2", "study=toy", "-p"],
            "snakemake --config retry=failed seeds=2 study=toy -p",
        ),
    ],
)
def test_the_last_words_of_a_failed_grid(commands, capsys, words, again):
    plan = build(commands, seeds=1)
    say_what_failed(plan, words)
    assert capsys.readouterr().err == "error: the grid did not finish (see above); run the same command to continue\n"
    for stage in plan.selected():
        broken = stage.stage == "train" and stage.variants == ("v2",)
        below = stage.stage == "evaluate" and stage.variants == ("v2",)
        finish(stage, "failed" if broken else "blocked" if below else "ok", reason="ValueError: lr" if broken else "")
    say_what_failed(plan, words)
    (folder,) = (stage.dir for stage in plan.selected() if stage.stage == "train" and stage.variants == ("v2",))
    assert capsys.readouterr().err.splitlines() == [
        "error: 1 stage failed: toy.train v2 seed 0; 1 dependent stage did not start",
        "    first failure: ValueError: lr",
        f"    log: {folder}/log.txt",
        f"    next: {again}",
    ]
