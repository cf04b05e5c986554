"""Projects that trackio wrote, against what its own API says of them."""

import shutil
import sqlite3

import pytest

from ablation.readers.trackio import read
from tests.ablation.readers.stored import comparable, make, points, read_all

PACKAGE, SCRIPT = "trackio", "trackio_projects.py"
FILES = {"grid": "grid.db", "other project": "otherproject.db", "study": "study.db", "live": "live.db"}


@pytest.fixture
def written(tmp_path):
    return make("trackio", "", "written", tmp_path)


def test_trackio_says_the_same(folder, told):
    runs, _ = read_all(read, folder)
    described = {key: run for project in FILES for key, run in told[project].items()}
    assert runs.keys() == described.keys()
    assert len(runs) == 10
    for key, run in runs.items():
        expected = {}
        for row in described[key]["logs"]:
            for name, value in row.items():
                if name not in ("step", "timestamp") and isinstance(value, int | float):
                    expected[row["step"], name] = comparable(value)
        assert points(run) == expected
        config = {name: value for name, value in described[key]["config"].items() if not name.startswith("_")}
        assert run.config == config | ({"nan": "NaN"} if "nan" in config else {})  # JSON has none
        assert (run.name, run.started) == (described[key]["name"], described[key]["logs"][0]["timestamp"])


def test_a_resumed_run_keeps_what_was_logged_last(folder):
    [run] = read_all(read, folder / "otherproject.db")[0].values()
    assert points(run) == {(step, "loss"): float(step) if step < 4 else 10.0 + step for step in range(7)}
    assert run.config == {"seed": 5}


@pytest.mark.parametrize("gone", ["live.db-shm", None])
def test_rows_in_the_log_of_a_killed_writer_or_of_a_copy(written, gone):
    assert (written / "live.db-wal").stat().st_size > 0
    if gone:
        (written / gone).unlink()
    before = sorted(path.name for path in written.iterdir())
    [run] = read_all(read, written / "live.db")[0].values()
    assert points(run) == {(step, "loss"): float(step) for step in range(3)}
    assert sorted(path.name for path in written.iterdir()) == before  # nothing is written beside it


def test_rows_that_make_no_sense_are_named(written):
    with sqlite3.connect(written / "grid.db") as writer:
        writer.execute("UPDATE metrics SET metrics = '{\"loss\": 0.2' WHERE id = 2")
        writer.execute("UPDATE metrics SET metrics = '[1]' WHERE id = 3")
        writer.execute("UPDATE configs SET config = x'ff00' WHERE id = 1")
    writer.close()
    runs, problems = read_all(read, written / "grid.db")
    first = next(iter(runs.values()))
    assert (2, "loss") not in points(first)
    assert (3, "loss") in points(first)
    assert first.config == {}
    assert any("rows without a JSON object or a step are left out (2; the first has id 2)" in line for line in problems)
    assert any("configuration is not a JSON object" in line for line in problems)


def test_a_log_that_is_cut_off(written, tmp_path):
    """The write-ahead log of a machine that stopped: SQLite takes the transactions that are whole."""
    log = (written / "live.db-wal").read_bytes()
    (written / "live.db-shm").unlink()
    counts = set()
    for end in [*range(0, len(log), 4001), len(log)]:
        (written / "live.db-wal").write_bytes(log[:end])
        [run] = read_all(read, written / "live.db")[0].values()
        found = points(run)
        assert found == {(step, "loss"): float(step) for step in range(len(found))}
        counts.add(len(found))
    assert counts >= {1, 3}


def test_projects_in_subfolders(folder, tmp_path):
    for place in ("a/seed_0", "b"):
        (tmp_path / place).mkdir(parents=True)
        shutil.copyfile(folder / "otherproject.db", tmp_path / place / "other.db")
    runs = list(read(tmp_path, print))
    assert [run.name for run in runs] == ["a/seed_0/resumed", "b/resumed"]
