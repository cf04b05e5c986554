"""A clock that was wrong: what it dated in the future is usable, and nothing counts as younger than it may be."""

import os
import time

import pytest

from ablation.contract.status import KEPT_STATUS
from ablation.plan.start import fix_future_mtimes
from tests.ablation.plan.commands import build


def dated(path, seconds):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (seconds, seconds))
    return path


def test_what_is_from_the_future_gets_a_date_and_a_warning(toy):
    plan = build(toy, reports=str(toy.root / "reports"))
    now = time.time()
    first, second, *_ = plan.selected()
    status, early = dated(first.status, now + 1e6), dated(second.status, now - 1e6)
    database = dated(plan.settings.results / "tracker.duckdb", now + 1e6)
    made = [dated(plan.settings.results / "gate.txt", now + 1e6)]
    made += [dated(plan.settings.reports / name, now + 1e6) for name in ("index.html", "toy/table.md")]
    made += [dated(first.dir / KEPT_STATUS, now + 1e6)]
    [warning] = fix_future_mtimes(plan)
    assert f"{status} and 5 more files are dated in the future" in warning
    assert now - 1 < status.stat().st_mtime <= database.stat().st_mtime <= time.time()
    assert early.stat().st_mtime == pytest.approx(now - 1e6, abs=1)
    assert {path.stat().st_mtime for path in made} == {1}
    assert fix_future_mtimes(plan) == []
