"""Stages run seed by seed, and after each seed the page is drawn while others go on."""

import subprocess

from ablation.config.settings import load_settings
from ablation.plan import pages
from ablation.plan.build import build_plan
from ablation.plan.order import priorities
from ablation.plan.pages import follow, parts
from ablation.plan.retry import states_of


def plan_of(toy, **overrides):
    return build_plan(load_settings({"seeds": 3, **overrides}, configs=toy.configs), root=toy.root)


def end(*stages):
    for status in stages:
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
    monkeypatch.setattr(pages, "_SHARE", 1e9)
    thread = follow(plan, states, short=0, look=0.01)
    thread.join(10)
    assert not thread.is_alive()
    assert drawn == [["report", "--so-far", "--results", str(plan.settings.results), "--reports", "reports"]] * 2
    assert follow(plan_of(toy, seeds=1), states_of(plan_of(toy, seeds=1))) is None
