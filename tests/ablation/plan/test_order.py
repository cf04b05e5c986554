"""Stages run seed by seed, and after each seed the page is drawn while others go on; which are submitted together."""

import subprocess
from graphlib import TopologicalSorter

import pytest

from ablation.plan import start
from ablation.plan.order import groups_of, priorities, request_of
from ablation.plan.retry import states_of
from ablation.plan.start import follow, parts
from tests.ablation.plan.commands import build
from tests.ablation.toy_study import STUDY


def plan_of(toy, **overrides):
    return build(toy, **{"seeds": 3, **overrides})


def end(*statuses):
    for status in statuses:
        status.parent.mkdir(parents=True, exist_ok=True)
        status.write_text("{}")


def test_seeds_come_one_after_the_other_and_long_lines_first(toy):
    plan = plan_of(toy)
    number = priorities(plan)
    order = sorted(plan.stages.values(), key=lambda stage: -number[stage.id, stage.key])
    assert [stage.seed for stage in order if stage.seed is not None] == sorted([0, 1, 2] * (len(order) // 3))
    assert len(set(number.values())) == len(plan.stages)
    for address, above in plan.upstream.items():
        assert all(number[each] > number[address] for each in above)
    kinds = [stage.stage for stage in order if stage.seed == 1]
    assert kinds == sorted(kinds, key=["train", "evaluate"].index)  # nothing waits for an evaluation


def test_a_page_after_each_seed_but_the_last_and_first_of_all_after_the_largest_study(toy):
    toy.yaml("config.yaml", {"scale": "full", "gpus": 2, "results": "results", "studies": ["small", "toy"]})
    for source in toy.folder.glob("*.yaml"):
        if source.stem in ("_study", "base", "v2"):
            target = toy.configs / "studies" / "small" / source.name
            target.parent.mkdir(exist_ok=True)
            target.write_text(source.read_text())
    plan = plan_of(toy)
    first, *rest = parts(plan, states_of(plan))
    assert {(path.parts[-4], path.parts[-3]) for path in first} >= {("toy", "train"), ("toy", "evaluate")}
    assert not any(path.parts[-4] == "small" for path in first)
    seeds = {stage.status: stage.seed for stage in plan.stages.values()}
    assert [{seeds[path] for path in part} for part in rest] == [{None, 0}, {1}]


def test_the_page_is_drawn_when_a_part_has_ended_and_never_after_the_last(toy, monkeypatch):
    plan = plan_of(toy)
    drawn, states = [], states_of(plan)
    waiting = parts(plan, states)
    end(*waiting[0])

    def draw(command, **options):
        drawn.append(command[command.index("report") :])
        end(*waiting[1])  # while the first page is drawn, the second seed ends

    monkeypatch.setattr(subprocess, "run", draw)
    monkeypatch.setattr(start, "_SHARE", 1e9)
    thread = follow(plan, states, short=0, poll=0.01)
    thread.join(10)
    assert not thread.is_alive()
    assert drawn == [["report", "--so-far", "--results", str(plan.settings.results), "--reports", "reports"]] * 2
    assert follow(plan_of(toy, seeds=1), states_of(plan_of(toy, seeds=1))) is None


# Stages that are submitted together: such submissions never wait for each other in a circle

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
def chain(toy):
    write(toy)
    return toy


def test_short_stages_of_one_run_are_one_group_that_asks_for_all_minutes_and_the_most_of_the_rest(chain):
    assert groups_of(build(chain, group_minutes=9)) == groups_of(build(chain, group_minutes=0)) == {}
    plan = build(chain, group_minutes=13)
    groups = groups_of(plan)
    assert {group.name for group in groups.values() if group.members[0][0] == "toy.first"} == {"toy_first_1"}
    for run in plan.content.studies[0].runs:
        members = tuple((f"toy.{stage}", run.stages[stage]) for stage in CHAIN)
        for member in members:
            assert groups[member].members == members
            needs = request_of(plan, groups, member)
            assert (needs.threads, needs.mem_mb, needs.runtime, needs.gpu) == (4, 1000, 10 + 11 + 12 + 13, 1)
    alone = request_of(plan, {}, ("toy.second", plan.content.studies[0].runs[0].stages["second"]))
    assert (alone.threads, alone.mem_mb, alone.runtime, alone.gpu) == (2, 999, 11, 1)


@pytest.mark.parametrize("minutes", [11, 13, 1000])
@pytest.mark.parametrize("long", CHAIN)
def test_submissions_never_wait_for_each_other_in_a_circle(chain, minutes, long):
    write(chain, **{long: 500})
    plan = build(chain, group_minutes=minutes)
    groups = groups_of(plan)
    submission = {address: groups[address].members if address in groups else (address,) for address in plan.stages}
    waits = {members: set() for members in submission.values()}
    for address, above in plan.upstream.items():
        waits[submission[address]] |= {submission[other] for other in above} - {submission[address]}
    assert list(TopologicalSorter(waits).static_order())  # raises CycleError
    for address, group in groups.items():  # what Snakemake would merge: stages of one name that read each other
        for other in plan.upstream[address]:
            assert other not in groups or groups[other].name != group.name or groups[other] == group
