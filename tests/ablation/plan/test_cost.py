"""What a dry run says at its end: the cost of the jobs, and what the planned seeds can find."""

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ablation.cli.due import main
from ablation.contract.status import StageState
from ablation.plan.cost import hours_of, in_words, say_due
from ablation.store.collect import collect
from tests.simulate import Study, simulate

TRAIN, JUDGE = (SimpleNamespace(id=f"toy.{name}", key=name, study="toy", seed=0) for name in ("train", "judge"))


def test_a_job_costs_what_its_kind_has_cost_so_far():
    ran = {("toy.train", str(n)): StageState("ok", wall_s=3600 * n, devices=2) for n in (1, 2)}
    ran |= {("toy.train", "9"): StageState("failed", wall_s=1e6), ("toy.prepare", "1"): StageState("ok", wall_s=60)}
    assert hours_of(SimpleNamespace(), ran, [TRAIN, TRAIN, JUDGE]) == (pytest.approx(6.0), 1)
    assert hours_of(SimpleNamespace(), {}, [TRAIN]) == (0, 1)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((0.0, 3, 3, 2.0), "of unknown cost"),
        ((1.5, 0, 3, None), "about 1.5 h of device time"),
        ((1.5, 1, 3, 2.0), "about 1.5 h of device time (3.00), and 1 more of unknown cost"),
    ],
)
def test_in_words(numbers, said):
    assert in_words(*numbers) == said


def test_what_so_many_seeds_can_find_falls_with_the_seeds(tmp_path, capsys):
    simulate(tmp_path / "results", [Study("toy", seeds=3, seed_sd=0.05, items={"all": 200})])
    collect(tmp_path / "results")
    found = []
    for seeds in (3, 12):
        assert main([str(tmp_path / "results"), f"toy={seeds}", "other=3"]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        said = re.fullmatch(rf"toy: {seeds} seeds find an effect of (\S+) with 80% \(median of 3 edges\)", line)
        found.append(float(said[1]))
    assert 0 < found[1] < found[0] / 1.5
    assert main([str(tmp_path), "toy=3"]) == 0
    assert main([str(tmp_path / "results"), "toy=1"]) == 0
    assert capsys.readouterr().out == ""


def test_a_dry_run_says_both(tmp_path, monkeypatch, capfd):
    started = []
    monkeypatch.setattr(subprocess, "run", lambda words, **_: started.append(words))
    monkeypatch.setattr("ablation.plan.cost.pending", lambda plan, states: [TRAIN, JUDGE])
    settings = SimpleNamespace(results=tmp_path, cost_per_device_hour=10.0, seeds_of=lambda study: (0, 1, 2))
    states = {("toy.train", "1"): StageState("ok", wall_s=1800)}
    say_due(SimpleNamespace(settings=settings), states)
    assert capfd.readouterr().err == "to run: 2 jobs, about 30 min of device time (5.00), and 1 more of unknown cost\n"
    assert started == []
    (tmp_path / "tracker.duckdb").touch()
    say_due(SimpleNamespace(settings=settings), states)
    assert started == [[sys.executable, "-m", "ablation.cli.due", str(tmp_path), "toy=3"]]
