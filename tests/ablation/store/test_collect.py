"""The database is what the shards say, or the collect fails; one broken file costs one stage."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import duckdb
import pandas as pd
import pytest

from ablation.cli.main import main
from ablation.contract.errors import ConfigError
from ablation.contract.status import read_state
from ablation.store import collect as collect_module
from ablation.store import shards
from ablation.store.collect import collect, collect_apart
from ablation.store.database import DATABASE, Store
from tests.simulate import Study, editing, locked, simulate, stage_dir, write_status


def test_every_point_of_every_shard_arrives_in_its_order(results):
    plan = simulate(results, [Study(steps=7, metrics=2, items={"a": 5})])
    collected = collect(results)
    folder = stage_dir(plan, "toy", "v1", 1, "train")
    expected = pd.read_parquet(folder / "metrics.parquet")
    with Store(results / DATABASE) as store:
        query = "SELECT step, name, value FROM metrics WHERE key = ? ORDER BY rowid"
        pd.testing.assert_frame_equal(store.sql(query, [folder.name]), expected, check_dtype=False)
        assert store.meta()["scale"] == "simulated"
    runs = 4 * 2
    # train; evaluate: hit, distance, mean distance
    assert collected.rows["metrics"] == runs * (7 * 2 + 2 * (2 * 1 + 1))
    assert collected.rows["items"] == runs * 5 * 2
    assert collected.states == {"ok": 2 + 2 * runs}


def content(results):
    """Rows of the tables in their order, those of stages in the order of the keys."""
    with duckdb.connect(str(results / DATABASE), read_only=True) as c:
        tables = {"metrics": "key, rowid", "items": "key, rowid", "provenance": "key", "health": "key, rowid"}
        tables |= dict.fromkeys(("stages", "run_stages", "variants", "published"), "rowid")
        return {t: c.execute(f"SELECT * FROM {t} ORDER BY {order}").fetchall() for t, order in tables.items()}


@pytest.fixture
def read(monkeypatch):
    """The folders of the shards that are read from now on."""
    read, again = [], shards.read_shard
    monkeypatch.setattr(shards, "read_shard", lambda path, table: read.append(path.parent) or again(path, table))
    return read


def test_only_stages_whose_files_changed_are_read_again(results, read):
    plan = simulate(results, [Study(states={("v3", 1): "missing"}), Study("other", seeds=1)])
    collect(results)
    before = (results / DATABASE).read_bytes()
    read.clear()
    first = collect(results)
    assert (read, (results / DATABASE).read_bytes()) == ([], before)  # nothing changed, so nothing was written
    longer, damaged, gone = (stage_dir(plan, "toy", f"v{n}", 0, "train") for n in range(3))
    pd.concat([pd.read_parquet(longer / "metrics.parquet")] * 2).to_parquet(longer / "metrics.parquet")
    (damaged / "metrics.parquet").write_bytes(b"PAR1 no")
    shutil.rmtree(gone)
    ended = stage_dir(plan, "toy", "v3", 1, "train")
    shutil.copytree(stage_dir(plan, "toy", "v3", 0, "train"), ended, dirs_exist_ok=True)
    write_status(ended, {"id": "toy.train", "key": ended.name, "seed": 1}, "ok")
    with editing(plan) as edited:
        edited["studies"] = edited["studies"][:1]
        edited["stages"] = [stage for stage in edited["stages"] if stage["study"] != "other"]
    second = collect(results)
    assert sorted(set(read)) == sorted({longer, damaged, ended})
    assert second.states == {"corrupt": 1, "missing": 2, "ok": 15} != first.states
    changed = content(results)
    (results / DATABASE).unlink()
    collect(results)
    assert content(results) == changed


def test_states_come_from_the_folders(results):
    states = {("v0", 0): "failed", ("v1", 0): "diverged", ("v2", 0): "missing", ("v3", 0): "running"}
    simulate(results, [Study(states=states)])
    assert collect(results).states == {"blocked": 2, "diverged": 1, "failed": 1, "missing": 4, "ok": 10}
    # nobody holds the lock of the stage that wrote progress.json, so it does not run
    with Store(results / DATABASE) as store:
        runs = store.runs("toy").set_index(["variant", "seed"])
    assert runs.loc[("v0", 0), ["state", "reason"]].tolist() == ["failed", "RuntimeError: simulated failure"]
    assert runs.loc[("v1", 0), "state"] == "diverged"
    assert runs.loc[("v2", 0), "state"] == "missing"
    assert runs.loc[("v0", 1), ["state", "reason"]].tolist() == ["ok", ""]


@pytest.mark.parametrize(("devices", "hours"), [(1, 0.5), (16, 8.0), (None, 0.5)])
def test_device_hours_are_wall_time_times_devices(results, devices, hours):
    plan = simulate(results)
    folder = stage_dir(plan, "toy", "v1", 1, "train")
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(
        json.dumps(status | {"device": "5 x whatever", "devices": devices, "wall_s": 1800})
    )
    with Store(collect(results).database) as store:
        stages = store.stages().set_index("key")
    assert stages.loc[folder.name, "device_hours"] == hours


def test_a_plan_of_which_nothing_ran_gives_an_empty_database(results, capsys):
    simulate(results)
    shutil.rmtree(results / "stages")
    collected = collect(results)
    assert collected.states == {"missing": 18}
    assert collected.rows == {"metrics": 0, "items": 0, "health": 0}
    assert main(["collect", "--results", str(results)]) == 0
    assert main(["tables", "--results", str(results), "--reports", str(results / "reports")]) == 0
    assert main(["verdicts", "toy", "--results", str(results)]) == 0
    assert "missing" in capsys.readouterr().out
    with Store(results / DATABASE) as store:
        assert (store.runs("toy")["state"] == "missing").all()


def test_a_failing_collect_keeps_the_old_database_and_leaves_nothing_aside(results, monkeypatch):
    simulate(results)
    collect(results)
    before = (results / DATABASE).read_bytes()

    def fail(*_):
        raise RuntimeError("disk full")

    monkeypatch.setattr(collect_module, "_write_stages", fail)
    next(results.rglob("metrics.parquet")).touch()
    with pytest.raises(RuntimeError, match="disk full"):
        collect(results)
    assert (results / DATABASE).read_bytes() == before
    assert list(results.glob(".*.tmp.*")) == []


def test_what_a_killed_collect_left_is_no_hindrance_and_goes(results):
    simulate(results)
    for process in (os.getpid(), 1):  # one that had the number of this one as well
        for ending in ("", ".wal"):
            (results / f".{process}.tmp.{DATABASE}{ending}").write_bytes(b"half a database")
    assert collect(results).states["ok"] > 0
    assert list(results.glob(".*.tmp.*")) == []


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        '{"toy": 1}',
        '{"toy": [1]}',
        '{"toy": [{"digest": 5}]}',
        '{"toy": [{"digest": "a", "analysis": {}, "since": "b", "seeds": null}]}',
        "[" * 100_000,
    ],
)
def test_a_history_that_makes_no_sense_is_one_line(results, content):
    simulate(results)
    (results / "analysis_history.json").write_text(content)
    with pytest.raises(ConfigError, match=r"analysis_history\.json"):
        collect(results)


def test_a_reader_of_the_old_database_is_not_disturbed(results):
    simulate(results)
    with Store(collect(results).database) as store:
        rows = len(store.results("toy"))
        shutil.rmtree(results / "stages")
        collect(results)
        assert len(store.results("toy")) == rows
    with Store(results / DATABASE) as store:
        assert store.results("toy").empty


def test_results_may_move_after_the_plan_was_made(results, tmp_path):
    simulate(results)
    moved = tmp_path / "elsewhere"
    results.rename(moved)
    assert collect(moved).states == {"ok": 18}


def test_without_a_plan_the_error_says_what_to_do(results):
    with pytest.raises(ConfigError, match="the plan does not exist; run `snakemake`"):
        collect(results)
    results.mkdir()
    (results / "plan.json").write_text("{}")
    with pytest.raises(ConfigError, match="not a plan"):
        collect(results)


def test_a_stage_without_status_is_running_only_while_its_lock_is_held(results):
    plan = simulate(results, [Study(states={("v0", 0): "running"})])
    folder = stage_dir(plan, "toy", "v0", 0, "train")
    assert read_state(folder, folder.name).state == "missing"
    with locked(folder):
        assert read_state(folder, folder.name).state == "running"
        with (folder / ".lock").open("w") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert read_state(folder, folder.name).state == "missing"
    with (folder / ".lock").open("w") as lock:  # asking did not keep it
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    write_status(folder, {"id": "toy.train", "key": folder.name, "seed": 0}, "ok")
    assert read_state(folder, folder.name).state == "ok"


def test_a_hundred_thousand_points_arrive_in_five_seconds(results):
    plan = simulate(results, [Study(variants=5, seeds=4, steps=500, metrics=10)])
    with editing(plan) as content:
        rule = {"id": "r", "stage": "train", "metric": "train/m0[0-4]", "range": {"max": 0.01}, "window": 3}
        for study in content["studies"]:
            study["health"] = [rule | {"severity": "warn", "diagnosis": "d", "remedy": "r"}]
    start = time.process_time()
    collected = collect(results)
    assert collected.rows["metrics"] > 100_000
    assert collected.rows["health"] >= 100  # every series begins above the bound
    assert time.process_time() - start < 5


def test_two_collects_at_once_wait_for_each_other(results):
    """The one that looked first must not be the one that writes last."""
    simulate(results)
    with (results / ".collect.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        other = threading.Thread(target=collect, args=[results])
        other.start()
        other.join(0.5)
        assert other.is_alive()
        assert not (results / DATABASE).exists()
    other.join(60)
    assert (results / DATABASE).exists()


def test_a_command_ends_with_its_parent(results):
    command = [sys.executable, "-m", "ablation", "--parent", "1", "collect", "--results", str(results)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL  # its parent is another one


def test_a_database_apart_begins_with_the_rows_of_the_results_own(results, tmp_path, read):
    plan = simulate(results)
    collect(results)
    read.clear()
    running = stage_dir(plan, "toy", "v1", 0, "train")
    (running / "status.json").rename(running / "progress.json")
    with locked(running):
        for _ in range(2):  # of a running stage the metrics so far, each time
            apart = collect_apart(results, tmp_path / "apart.duckdb")
            assert (apart.states, read) == ({"ok": 17, "running": 1}, [])
            with Store(apart.database) as store:
                [(rows,)] = store.rows("SELECT count(*) FROM metrics WHERE key = ?", [running.name])[1]
            assert rows == len(pd.read_parquet(running / "metrics.parquet"))
