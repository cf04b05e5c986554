"""`serve`: what runs now, how far it is and how long still."""

import json
import time
from pathlib import Path

import pytest

from ablation.serve import now as now_module
from ablation.serve.now import Watcher
from tests.ablation.serve.asking import TOY, Asking, progress
from tests.simulate import Study, locked, simulate, stage_dir, write_status

ATTACK = "<script>alert(1)</script>"


def test_a_running_stage_is_told_with_its_steps_and_the_time_left_at_its_pace(served, results):
    asking = served()
    folder = stage_dir(results / "plan.json", "toy", "v2", 0, "train")
    with locked(folder):
        progress(folder)
        [stage] = json.loads(asking.text("/status.json"))["running"]
        html = asking.text()
    assert (stage["stage"], stage["run"], stage["done"], stage["total"]) == ("toy.train", "v2 seed 0", 5, 20)
    assert stage["left"] == pytest.approx(30.0, abs=1)  # 15 steps at half a step a second
    assert stage["silent"] is None
    assert "Running now" in html
    assert '<progress max="20.0" value="5.0" aria-label="toy.train v2 seed 0">' in html
    assert "5 of 20 steps" in html
    assert "about 30 s" in html or "about 29 s" in html
    assert "Running now" not in asking.text()  # the runner has gone, and its progress is of then


def test_what_is_not_known_of_the_time_left_is_said(served, results):
    asking = served()
    folder = stage_dir(results / "plan.json", "toy", "v2", 0, "train")
    cases: dict[str, dict[str, float]] = {
        "not known yet": {"done": 0},
        "no step for 2 min": {"updated": -130.0, "started": -140.0},
        "longer than its pace predicted": {"updated": -31.0, "started": -41.0},
        "about 48 min": {"updated": -130.0, "started": -1130.0},  # 200 s a step: two minutes without one are nothing
    }
    with locked(folder):
        for words, written in cases.items():
            times = {name: time.time() + value for name, value in written.items() if name != "done"}
            progress(folder, **written | times)
            assert words in asking.text()


def test_a_stage_that_was_resumed_goes_at_the_pace_that_was_seen(results, monkeypatch):
    plan = simulate(results, [TOY])
    folder, watcher, begun = stage_dir(plan, "toy", "v2", 0, "train"), Watcher(results), time.time()
    (folder / "attempt.json").write_text('{"attempt": 2}')
    with locked(folder):
        progress(folder, done=900, total=1000, started=begun - 1, updated=begun)
        [first] = watcher.now().running
        assert (first.left, first.words) == (None, "not known yet")  # 900 steps in a second were not its own
        monkeypatch.setattr(now_module.time, "time", lambda: begun + 20)
        progress(folder, done=910, total=1000, started=begun - 1, updated=begun + 20)
        [second] = watcher.now().running
        assert second.left == pytest.approx(180.0)  # 90 steps at half a step a second
        progress(folder, done=1, total=1000, started=begun + 5, updated=begun + 20)  # another attempt
        [third] = watcher.now().running
        assert third.left is None


def test_text_of_a_failed_stage_stays_text(served, results):
    asking = served(Study(states={("v1", 1): "failed"}))
    stage = next(s for s in json.loads((results / "plan.json").read_text())["stages"] if s["label"] == "v1 seed 1")
    write_status(Path(stage["dir"]), stage, "failed", f"{ATTACK}\u202egnp")
    html = asking.text()
    assert ATTACK not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "\u202e" not in html
    assert "2 stages did not end well" in html  # it, and the one that it blocks


def test_long_lists_are_cut_and_counted(served, results, monkeypatch):
    monkeypatch.setattr(now_module, "_MOST", 1)
    asking = served(Study(states={("v1", 0): "running", ("v1", 1): "running"}))
    folders = [stage_dir(results / "plan.json", "toy", "v1", seed, "train") for seed in (0, 1)]
    with locked(folders[0]), locked(folders[1]):
        html = asking.text()
    assert html.count('<th scope="row">v1 seed') == 1
    assert "And 1 more." in html


def test_where_nothing_is_planned_yet_the_page_says_so_and_waits(results):
    asking = Asking(results)
    try:
        assert "Nothing has been planned yet" in asking.text("/")
        assert asking.watcher.now().results is None
        simulate(results)
        assert asking.watcher.now().results is not None
        (results / "plan.json").write_text("{")
        assert "not a plan" in asking.text()
    finally:
        asking.end()
