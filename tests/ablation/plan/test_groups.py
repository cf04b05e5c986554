"""Which stages are submitted together, and that such submissions never wait for each other in a circle."""

from graphlib import TopologicalSorter

import pytest

from ablation.config.settings import load_settings
from ablation.plan.build import build_plan
from ablation.plan.order import groups_of, request_of
from tests.ablation.toy_study import STUDY, Toy

CHAIN = ("first", "second", "third", "fourth")


def write(toy, **minutes):
    """Make the last stage of the toy four stages in a row, each of which also reads the earlier ones."""
    stages = {name: stage for name, stage in STUDY["stages"].items() if name != "evaluate"}
    last = STUDY["stages"]["evaluate"]
    inputs = dict(last["inputs"])
    for number, name in enumerate(CHAIN):
        resources = {"threads": number + 1, "mem_mb": 1000 - number, "runtime": minutes.get(name, 10 + number)}
        stages[name] = {**last, "inputs": dict(inputs), "resources": {**resources, "gpu": int(name == "second")}}
        inputs[f"from_{name}"] = name
    toy.study(stages=stages)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    toy = Toy(tmp_path)
    write(toy)
    return toy


def plan_of(toy, minutes, **overrides):
    return build_plan(load_settings({"group_minutes": minutes, **overrides}, configs=toy.configs), root=toy.root)


def test_none_where_all_take_longer_or_it_is_off(toy):
    assert groups_of(plan_of(toy, 9)) == {}
    assert groups_of(plan_of(toy, 0)) == {}


def test_short_stages_of_one_run_are_one_group(toy):
    plan = plan_of(toy, 13)
    groups = groups_of(plan)
    (name,) = {group.name for group in groups.values() if group.members[0][0] == "toy.first"}
    assert name == "toy_first_1"
    for run in plan.runs:
        members = {groups[f"toy.{stage}", run.stages[stage]].members for stage in CHAIN}
        assert members == {tuple((f"toy.{stage}", run.stages[stage]) for stage in CHAIN)}


def test_a_group_asks_for_the_sum_of_minutes_and_the_most_of_the_rest(toy):
    plan = plan_of(toy, 13)
    groups = groups_of(plan)
    for stage in CHAIN:
        needs = request_of(plan, groups, (f"toy.{stage}", plan.runs[0].stages[stage]))
        assert (needs.threads, needs.mem_mb, needs.runtime, needs.gpu) == (4, 1000, 10 + 11 + 12 + 13, 1)
    alone = request_of(plan, {}, ("toy.second", plan.runs[0].stages["second"]))
    assert (alone.threads, alone.mem_mb, alone.runtime, alone.gpu) == (2, 999, 11, 1)


def test_a_long_stage_ends_a_group(toy):
    write(toy, third=99)
    plan = plan_of(toy, 20)
    groups = groups_of(plan)
    run = plan.runs[0].stages
    assert groups["toy.first", run["first"]].members[-1] == ("toy.second", run["second"])
    assert ("toy.third", run["third"]) not in groups
    assert ("toy.fourth", run["fourth"]) not in groups  # alone


@pytest.mark.parametrize("minutes", [11, 13, 1000])
@pytest.mark.parametrize("long", CHAIN)
def test_submissions_never_wait_for_each_other_in_a_circle(toy, minutes, long):
    write(toy, **{long: 500})
    plan = plan_of(toy, minutes)
    groups = groups_of(plan)
    submission = {address: groups[address].members if address in groups else (address,) for address in plan.stages}
    waits = {members: set() for members in submission.values()}
    for address, above in plan.upstream.items():
        waits[submission[address]] |= {submission[other] for other in above} - {submission[address]}
    assert list(TopologicalSorter(waits).static_order())  # raises CycleError
    for address, group in groups.items():  # what Snakemake would merge: stages of one name that read each other
        for other in plan.upstream[address]:
            assert other not in groups or groups[other].name != group.name or groups[other] == group
