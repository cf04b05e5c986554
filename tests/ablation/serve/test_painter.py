"""`serve`: when the page is drawn again."""

import time
from pathlib import Path
from typing import Any

import pytest

from ablation.serve import painter as painter_module
from ablation.serve.now import Watcher
from ablation.serve.painter import MARKER, Painter
from tests.ablation.serve.asking import TOY, fail_the_last, progress
from tests.simulate import locked, simulate, stage_dir


@pytest.fixture
def painted(results, monkeypatch):
    """A painter whose drawings are `drawings`' texts, or errors, in turn; it is not started, `turn` is one."""
    monkeypatch.setattr(painter_module, "RETRY", 0.0)
    simulate(results, [TOY])
    painter: Any = Painter(results, Watcher(results), 0.0)
    painter.drawings = []

    def paint():
        found = painter.drawings.pop(0)
        if isinstance(found, str):
            (Path(painter._folder.name) / "page.html").write_text(found)
            return ""
        return str(found[0])

    monkeypatch.setattr(painter, "_paint", paint)
    yield painter
    painter.end()


def turn(painter):
    """What the thread does once."""
    painter._ended.set()
    painter._ended.wait = lambda _: True
    painter._ended.is_set = iter([False, True]).__next__
    painter._run()
    del painter._ended.is_set, painter._ended.wait


def test_it_is_drawn_anew_only_where_something_has_changed(painted, results):
    painted.drawings = [f"one{MARKER}", f"two{MARKER}"]
    turn(painted)
    turn(painted)
    turn(painted)
    assert painted.page.before == "one"
    fail_the_last(results)
    turn(painted)
    assert painted.page.before == "two"
    assert painted.drawings == []


def test_curves_of_a_running_stage_are_a_change(painted, results):
    folder = stage_dir(results / "plan.json", "toy", "v2", 0, "train")
    painted.drawings = [f"one{MARKER}", f"two{MARKER}"]
    with locked(folder):
        turn(painted)
        progress(folder, done=6)  # progress alone is not a change of the results
        turn(painted)
        assert painted.page.before == "one"
        (folder / "metrics.parquet").write_bytes(b"more")
        turn(painted)
    assert painted.page.before == "two"


def test_nobody_looks_so_nothing_is_drawn(painted):
    painted._asked -= 1000
    turn(painted)
    assert painted.page.version == ""
    painted.drawings = [f"one{MARKER}"]
    painted.asked()
    turn(painted)
    assert painted.page.before == "one"


def test_a_drawing_that_fails_leaves_the_last_good_page_says_so_and_is_tried_again(painted, results):
    painted.drawings = [f"one{MARKER}", ["tracker.duckdb: disk full"], f"three{MARKER}"]
    turn(painted)
    good = painted.page
    fail_the_last(results)
    turn(painted)
    assert (painted.page, painted.problem) == (good, "tracker.duckdb: disk full")
    turn(painted)
    assert (painted.page.before, painted.problem) == ("three", "")


def test_drawing_takes_a_tenth_of_a_processor_at_most(painted, monkeypatch):
    spent = iter([100.0, 107.0])
    monkeypatch.setattr(painter_module, "_children", lambda: next(spent))
    painted.drawings = [f"one{MARKER}"]
    begun = time.monotonic()
    turn(painted)
    assert painted._due == pytest.approx(begun + 70.0, abs=5)
