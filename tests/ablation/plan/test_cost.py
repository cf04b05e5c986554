"""What a dry run says at its end: the cost of the jobs, and what the planned seeds can find."""

import json
import re
import subprocess
import sys

import pytest

from ablation.cli.power import main
from ablation.contract.numbers import rough
from ablation.plan.cost import hours_of, say_due
from ablation.plan.retry import states_of
from ablation.store.collect import collect
from tests.ablation.plan.commands import build, finish
from tests.ablation.typed import output
from tests.simulate import Study, editing, simulate


def ended(plan, took, **more):
    """Let stages end after so many seconds, by kind and variant."""
    for stage in plan.selected():
        for variant in stage.variants:
            if seconds := took.get((stage.stage, variant)):
                finish(stage, wall_s=seconds, **more)


def test_a_job_costs_what_its_variant_has_cost_before_the_code_changed_and_else_what_its_kind_has(commands):
    plan = build(commands, seeds=2)
    assert hours_of(plan, states_of(plan), plan.selected()) == (0, 14)  # v4 shares the training of base
    plan.write()
    ended(plan, {("train", "base"): 3600, ("train", "v2"): 7200}, devices=2)
    commands.code("my train.py", "2\n")
    again = build(commands, seeds=2)
    states = states_of(again)
    assert {state.state for state in states.values()} == {"missing"}
    trained = [stage for stage in again.selected() if stage.stage == "train"]
    hours, unknown = hours_of(again, states, again.selected())
    assert (hours, unknown) == (pytest.approx(2 * 2 + 2 * 4 + 2 * 3), 8)
    assert hours_of(again, states, [s for s in trained if s.variants == ("v2",)]) == (pytest.approx(8), 0)
    again.write()  # a start that was ended at once: the plan of what has run is gone
    assert hours_of(again, states, trained) == (pytest.approx(6 * 3), 0)


def test_what_so_many_seeds_can_find_falls_with_the_seeds(tmp_path, capsys):
    simulate(tmp_path / "results", [Study("toy", seeds=3, seed_sd=0.05, items={"all": 200})])
    collect(tmp_path / "results")
    found = []
    for seeds in (3, 12):
        assert main([str(tmp_path / "results"), f"toy={seeds}", "other=3"]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        said = re.fullmatch(
            rf"toy: {seeds} seeds detect an effect of (\S+) with 80% power \(median of 3 comparisons\)", line
        )
        found.append(float(said[1]))
    assert 0 < found[1] < found[0] / 1.5
    assert main([str(tmp_path / "results"), "toy=1"]) == 0
    assert capsys.readouterr().out == ""


def test_seeds_after_the_last_interim_analysis_are_judged_at_its_share_as_power_has_it(tmp_path, capsys):
    results = tmp_path / "results"
    with editing(simulate(results, [Study("toy", seeds=3, seed_sd=0.05, items={"all": 200})])) as plan:
        plan["studies"][0]["analysis"]["interim_analyses"] = [3, 5, 10]
    collect(results)
    sizes = ["--seeds", 10, 12, "--items", 200]
    plan = output(capsys, "power", "toy", "--effect", 0.1, *sizes, "--results", results, "--json")
    of_ten, of_twelve = [row["effect"] for row in json.loads(plan)["rows"]]
    assert of_twelve < of_ten
    assert main([str(results), "toy=12"]) == 0
    assert f" an effect of {rough(of_twelve)} with " in capsys.readouterr().out


def test_a_dry_run_says_both(commands, tmp_path, monkeypatch, capfd):
    started = []
    monkeypatch.setattr(subprocess, "run", lambda words, **_: started.append(words))
    plan = build(commands, seeds=3, cost_per_device_hour=10.0, variant="base")
    say_due(plan, states_of(plan))
    assert capfd.readouterr().err == "to run: 6 jobs, of unknown cost\n"
    first = plan.selected()[0]
    finish(first, wall_s=1800, reading=plan.configs[first.address]["command"]["reading"])
    say_due(plan, states_of(plan))
    told = "to run: 5 jobs, about 60 min of device time (10.00), not counting 3 jobs of unknown cost\n"
    assert capfd.readouterr().err == told
    assert started == []
    (plan.settings.results / "tracker.duckdb").touch()
    say_due(plan, states_of(plan))
    assert started == [[sys.executable, "-m", "ablation.cli.power", str(plan.settings.results), "toy=3"]]
