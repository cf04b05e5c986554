"""Which stages are to run: those that Snakemake is told of, and those that have ended and run again."""

import json
import os

import pytest

from ablation.contract.stage_folder import DATABASE
from ablation.plan.collected import note_collected, sources_now
from ablation.plan.retry import DAMAGED, RETRIED, UNBLOCKED, apply, decide, pending, states_of, to_do
from tests.ablation.plan.commands import build, finish

LONG_AGO = 10_000


def started_over(plan, why):
    """What runs again for this reason; its status is set aside."""
    states = states_of(plan)
    actions = decide(plan, states)
    assert states == states_of(plan)  # to decide changes nothing
    apply(plan, actions)
    assert actions.states == states_of(plan)
    return [plan.stages[address] for address, reason in actions.again.items() if reason == why]


def test_retry_sets_aside_what_did_not_end_well(toy):
    plan = build(toy, seed=0, retry="failed")
    stages = [stage for stage in plan.selected() if stage.id in ("toy.train", "toy.evaluate")]
    for stage, state in zip(stages, ["ok", "failed", "diverged", "blocked", "{torn", "ok"], strict=False):
        finish(stage, state)
    other = next(s for s in plan.stages.values() if s.seed == 1)
    finish(other, "failed")
    assert started_over(plan, RETRIED) == stages[1:3]  # nothing blocks the blocked one, the torn one is damaged
    assert [stage.status.exists() for stage in stages[:6]] == [True, False, False, False, False, True]
    assert json.loads((stages[1].dir / "status.attempt-1.json").read_text())["state"] == "failed"
    assert (stages[4].dir / "status.attempt-1.json").read_text() == "{torn"
    assert other.status.exists()  # not selected
    finish(stages[1], "diverged")
    assert started_over(plan, RETRIED) == [stages[1]]
    assert json.loads((stages[1].dir / "status.attempt-1.json").read_text())["state"] == "failed"
    assert json.loads((stages[1].dir / "status.attempt-2.json").read_text())["state"] == "diverged"
    assert started_over(plan, RETRIED) == []


def test_a_stage_that_lost_a_file_runs_again_without_being_asked(toy):
    plan = build(toy, seed=0)
    first, second, third, *whole = plan.selected()
    for stage in (first, second, third, *whole):
        finish(stage, json.dumps({"state": "ok", "key": stage.key, "files": {"metrics.parquet": 4}}))
        (stage.dir / "metrics.parquet").write_text("four")
    assert started_over(plan, DAMAGED) == []
    (first.dir / "metrics.parquet").unlink()
    (second.dir / "metrics.parquet").write_text("less"[:3])
    (third.dir / "metrics.parquet").write_text("longer")
    assert pending(plan, states_of(plan)) == [first, second, third]
    assert started_over(plan, DAMAGED) == [first, second, third]
    assert not any(stage.status.exists() for stage in (first, second, third))
    assert all(stage.status.exists() for stage in whole)
    assert started_over(plan, DAMAGED) == []


def test_a_stage_is_blocked_no_longer_than_something_blocks_it(toy):
    plan = build(toy)
    for stage in plan.stages.values():
        finish(stage, "ok")
    trained = [stage for stage in plan.stages.values() if stage.id == "toy.train"]
    mended, failed, missing = trained[:3]
    below = {
        train.key: next(stage for stage in plan.stages.values() if train.dir in stage.inputs.values())
        for train in trained
    }
    finish(failed, "failed")
    missing.status.unlink()
    for train in (mended, failed, missing):
        finish(below[train.key], "blocked")
    again = [below[mended.key], below[missing.key]]
    assert sorted(started_over(plan, UNBLOCKED), key=again.index) == again
    assert [below[train.key].status.exists() for train in (mended, failed, missing)] == [False, True, False]


# What Snakemake is told of: those to run; all, where it has to find out whether the database is current


def ended(stage, state="ok"):
    finish(stage, state)
    os.utime(stage.status, (LONG_AGO, LONG_AGO))


@pytest.fixture
def plan(toy):
    """A plan of which everything has ended (one stage failed), and is collected."""
    plan = build(toy)
    for number, stage in enumerate(plan.stages.values()):
        ended(stage, "failed" if number == 3 else "ok")
    plan.write()
    (plan.settings.results / DATABASE).touch()
    note_collected(plan.settings.results, sources_now(plan.settings.results), {})
    return plan


def told(plan):
    return to_do(plan, states_of(plan))


def test_nothing_to_do_where_all_has_ended_and_is_collected_also_for_a_part(plan, toy):
    assert told(plan) == told(build(toy, variant="v2", seed=1)) == []


def test_what_is_damaged_once_it_is_set_aside(plan):
    torn = list(plan.stages.values())[5]
    torn.status.write_text("{torn")
    assert (
        told(plan) == plan.selected()
    )  # a dry run sets nothing aside: Snakemake sees a status younger than the tables
    assert started_over(plan, DAMAGED) == [torn]
    assert to_do(plan, states_of(plan)) == [torn]


def database_older_than_a_status(plan, stage):
    os.utime(stage.status)
    os.utime(plan.settings.results / DATABASE, (LONG_AGO, LONG_AGO))


@pytest.mark.parametrize(
    "change",
    [
        database_older_than_a_status,
        lambda plan, stage: ended(stage),  # with an old time, as of a clock that was set back
        lambda plan, stage: (plan.settings.results / DATABASE).unlink(),
        lambda plan, stage: (plan.settings.results / "collected.json").unlink(),
        lambda plan, stage: plan.file.write_text("of another commit"),
    ],
    ids=["older", "ended since", "no database", "nobody knows what it holds", "another plan"],
)
def test_all_where_the_database_may_lack_something(plan, change):
    change(plan, list(plan.stages.values())[3])
    assert told(plan) == plan.selected()


def test_a_database_of_another_version_is_collected_again(plan, monkeypatch):
    database = plan.settings.results / DATABASE
    started_over(plan, RETRIED)
    assert database.stat().st_mtime > 1
    monkeypatch.setattr("ablation.plan.collected.SCHEMA_VERSION", "another")
    assert started_over(plan, RETRIED) == []  # a failed stage stays as it is
    assert database.stat().st_mtime == 1
    assert told(plan) == plan.selected()
