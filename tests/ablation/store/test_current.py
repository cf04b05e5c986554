"""One list of the files that a database was made from tells whether it is up to date, to readers and to gates."""

import os
import shutil

import pandas as pd
import pytest

from ablation.contract.errors import TrackerError
from ablation.plan.collected import COLLECTED, noted_sources, sources_now
from ablation.store.collect import collect
from ablation.store.current import load_or_collect
from ablation.store.database import DATABASE, Store
from tests.simulate import Study, simulate, stage_dir


@pytest.fixture
def plan(results):
    plan = simulate(results, [Study(seeds=2, variants=2)])
    collect(results)
    return plan


def value(results, *, strict):
    """A final metric of one run, from a database that is up to date."""
    with Store(load_or_collect(results, strict=strict)) as store:
        query = "SELECT value FROM results WHERE variant = 'v1' AND seed = 0 ORDER BY metric LIMIT 1"
        return store.rows(query)[1][0][0]


def add_one(plan):
    """Log larger values, as a stage that ran again would; its status stays."""
    path = stage_dir(plan, "toy", "v1", 0, "evaluate") / "metrics.parquet"
    rows = pd.read_parquet(path)
    rows["value"] += 1
    rows.to_parquet(path, index=False)


@pytest.mark.parametrize("strict", [False, True])
def test_what_a_stage_left_is_read_again_when_a_file_of_it_changes(results, plan, strict):
    before = value(results, strict=strict)
    add_one(plan)
    assert value(results, strict=strict) == pytest.approx(before + 1)


@pytest.mark.parametrize("strict", [False, True])
def test_an_earlier_database_that_is_put_back_is_not_believed(results, plan, tmp_path, strict):
    before = value(results, strict=strict)
    shutil.copy(results / DATABASE, tmp_path)
    add_one(plan)
    collect(results)
    shutil.copyfile(tmp_path / DATABASE, results / DATABASE)  # newer than every status
    assert noted_sources(results) == sources_now(results)
    assert value(results, strict=strict) == pytest.approx(before + 1)


def test_another_projects_database_is_not_believed(results, plan, tmp_path):
    before = value(results, strict=True)
    simulate(tmp_path / "other", [Study(seeds=2, variants=2, distances={"v1": 0.3})])
    for name in (DATABASE, COLLECTED):
        shutil.copy(collect(tmp_path / "other").database.with_name(name), results / name)
    assert value(results, strict=True) == before


def test_dates_alone_do_not_change_what_is_shown_and_nothing_is_written_where_nothing_changed(results, plan):
    before, written = value(results, strict=True), (results / DATABASE).stat().st_mtime_ns
    assert (results / DATABASE).stat().st_mtime_ns == written
    os.utime(stage_dir(plan, "toy", "v1", 0, "evaluate") / "status.json")
    assert value(results, strict=True) == before


def test_a_gate_refuses_a_database_of_stages_that_are_to_run_again(results, plan):
    (stage_dir(plan, "toy", "v1", 0, "evaluate") / "status.json").unlink()
    with pytest.raises(TrackerError, match=r"is out of date, because 1 stage was deleted or started again"):
        load_or_collect(results, strict=True)
    assert load_or_collect(results) == results / DATABASE


def test_a_gate_misses_a_deleted_stage_where_the_list_of_files_is_gone_too(results, plan):
    shutil.rmtree(stage_dir(plan, "toy", "v1", 1, "evaluate"))
    (results / COLLECTED).unlink()
    with pytest.raises(TrackerError, match="1 stage was deleted or started again after the database was written"):
        load_or_collect(results, strict=True)
