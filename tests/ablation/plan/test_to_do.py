"""Which stages Snakemake is told of: those to run; all, where it has to find out whether the database is current."""

import json
import os

import pytest

from ablation.config.settings import load_settings
from ablation.contract.stage_folder import DATABASE
from ablation.contract.status import read_state
from ablation.plan.build import build_plan
from ablation.plan.collected import note_collected, sources_of
from ablation.plan.retry import repair, states_of, to_do

LONG_AGO = 10_000


def plan_of(toy, **overrides):
    return build_plan(load_settings(overrides, configs=toy.configs), root=toy.root)


def finish(stage, state="ok"):
    stage.dir.mkdir(parents=True, exist_ok=True)
    stage.status.write_text(json.dumps({"state": state, "key": stage.key}))
    os.utime(stage.status, (LONG_AGO, LONG_AGO))


@pytest.fixture
def plan(toy):
    """A plan of which everything has ended (one stage failed), and is collected."""
    plan = plan_of(toy)
    for number, stage in enumerate(plan.stages.values()):
        finish(stage, "failed" if number == 3 else "ok")
    collect(plan)
    return plan


def collect(plan):
    states = {stage.key: read_state(stage.dir, stage.key) for stage in plan.stages.values()}
    (plan.settings.results / DATABASE).touch()
    note_collected(plan.settings.results, states, states, sources_of(plan.settings.results))


def told(plan):
    return to_do(plan, states_of(plan))


def test_nothing_where_all_has_ended_and_is_collected(plan):
    assert told(plan) == []


def test_a_part_of_the_grid_is_as_current_as_the_whole(plan, toy):
    assert told(plan_of(toy, variant="v2", seed=1)) == []


def test_what_is_missing_and_nothing_else(plan):
    gone = list(plan.stages.values())[4:6]
    for stage in gone:
        stage.status.unlink()
    assert told(plan) == gone


def test_what_is_damaged_once_it_is_set_aside(plan):
    torn = list(plan.stages.values())[5]
    torn.status.write_text("{torn")
    assert (
        told(plan) == plan.selected()
    )  # a dry run sets nothing aside: Snakemake sees a status younger than the tables
    states = states_of(plan)
    repair(plan, states)
    assert to_do(plan, states) == [torn]


def test_all_where_the_database_is_older_than_a_status(plan):
    first = next(iter(plan.stages.values()))
    os.utime(first.status)
    os.utime(plan.settings.results / DATABASE, (LONG_AGO, LONG_AGO))
    assert told(plan) == plan.selected()


def test_all_where_a_stage_ended_since(plan):
    fourth = list(plan.stages.values())[3]
    finish(fourth, "ok")  # an old time, as of a clock that was set back
    assert told(plan) == plan.selected()


@pytest.mark.parametrize("name", [DATABASE, "collected.json"])
def test_all_where_nobody_knows_what_the_database_holds(plan, name):
    (plan.settings.results / name).unlink()
    assert told(plan) == plan.selected()


def test_those_left_of_a_killed_grid(toy):
    plan = plan_of(toy)
    *ended, last = plan.stages.values()
    for stage in ended:
        finish(stage)
    assert told(plan) == [last]  # after which `collect` runs in any case
