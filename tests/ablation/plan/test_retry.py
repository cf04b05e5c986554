"""Which stages that have ended run again, and that what they left is set aside."""

import json
import os

from ablation.config.settings import load_settings
from ablation.plan.build import build_plan
from ablation.plan.retry import pending, release, repair, retry_failed, states_of


def build(toy, **overrides):
    return build_plan(load_settings(overrides, configs=toy.configs), root=toy.root)


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
    assert retry_failed(plan, states_of(plan)) == stages[1:5]
    assert [stage.status.exists() for stage in stages[:6]] == [True, False, False, False, False, True]
    assert json.loads((stages[1].dir / "status.attempt-1.json").read_text())["state"] == "failed"
    assert (stages[4].dir / "status.attempt-1.json").read_text() == "{torn"
    assert other.status.exists()  # not selected
    finish(stages[1], "diverged")
    assert retry_failed(plan, states_of(plan)) == [stages[1]]
    assert json.loads((stages[1].dir / "status.attempt-1.json").read_text())["state"] == "failed"
    assert json.loads((stages[1].dir / "status.attempt-2.json").read_text())["state"] == "diverged"
    assert retry_failed(plan, states_of(plan)) == []


def test_a_stage_that_lost_a_file_runs_again_without_being_asked(toy):
    plan = build(toy, seed=0)
    first, second, third, *whole = plan.selected()
    for stage in (first, second, third, *whole):
        finish(stage, json.dumps({"state": "ok", "key": stage.key, "files": {"metrics.parquet": 4}}))
        (stage.dir / "metrics.parquet").write_text("four")
    assert repair(plan, states_of(plan)) == []
    (first.dir / "metrics.parquet").unlink()
    (second.dir / "metrics.parquet").write_text("less"[:3])
    (third.dir / "metrics.parquet").unlink()
    (third.dir / "metrics.parquet").mkdir()
    assert pending(plan, states_of(plan)) == [first, second, third]
    assert repair(plan, states_of(plan)) == [first, second, third]
    assert not any(stage.status.exists() for stage in (first, second, third))
    assert all(stage.status.exists() for stage in whole)
    assert (third.dir / "metrics.attempt-1.parquet").is_dir()  # out of the way of the new one
    assert repair(plan, states_of(plan)) == []
    whole[0].status.unlink()
    os.mkfifo(whole[0].status)  # nobody waits for what it may say
    assert repair(plan, states_of(plan)) == [whole[0]]


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
    states = states_of(plan)
    again = [below[mended.key], below[missing.key]]
    assert sorted(release(plan, states, {}), key=again.index) == again
    assert [below[train.key].status.exists() for train in (mended, failed, missing)] == [False, True, False]
    assert states == states_of(plan)


def test_what_was_blocked_by_a_blocked_stage_runs_again_with_it(toy):
    plan = build(toy, variant="base", seed=0)
    for stage in plan.selected():
        finish(stage, "ok" if stage.id in ("assets", "toy.prepare") else "blocked")
    assert [stage.id for stage in release(plan, states_of(plan), {})] == ["toy.train", "toy.evaluate"]
