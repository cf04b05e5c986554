"""Both stores of MLflow, written by MLflow, against what its own client says of them."""

import math
import shutil
import sqlite3
from pathlib import Path

import pytest

from ablation.readers.mlflow import read, typed
from tests.ablation.readers.stored import comparable, points, read_all

PACKAGE, SCRIPT = "mlflow", "mlflow_stores.py"
STORES = ("mlflow.db", "mlruns")


def expected_points(history):
    """What the reader documents, of the client's histories: [timestamp, step, value] per metric."""
    found = {}
    for name, rows in history.items():
        if name.startswith("system/"):
            continue
        ordered = sorted(rows, key=lambda row: row[0])
        without = len(ordered) > 1 and all(step == 0 for _, step, _ in ordered)
        for place, (_, step, value) in enumerate(ordered):
            real = math.copysign(math.inf, value) if abs(value) == 1.7976931348623157e308 else value
            found[place if without else step, name] = comparable(real)
    return found


@pytest.mark.parametrize("store", STORES)
def test_the_client_says_the_same(folder, told, store):
    runs, _ = read_all(read, folder / store)
    active = {key: run for key, run in told[store].items() if run["stage"] == "active"}
    assert runs.keys() == active.keys()
    assert len(active) == 3
    for key, run in runs.items():
        assert points(run) == expected_points(active[key]["history"])
        assert run.config.keys() == active[key]["params"].keys()
        assert run.name.split(" / ")[-1] == active[key]["name"]
        assert run.started.startswith("2026-09-21T14:13:20")
        assert run.items is None


@pytest.mark.parametrize("store", STORES)
def test_parameters_tags_states_and_deleted_runs(folder, store):
    found, [line] = read_all(read, folder / store)
    assert line.startswith(f"{folder / store}: deleted runs are left out (2): ")
    assert "deleted (" in line
    assert "of a deleted experiment (" in line
    runs = {run.name: run for run in found.values()}
    assert runs["sweep"].config == {
        "lr": 0.001,
        "optim.name": "adam",
        "flag": True,
        "none": None,
        "betas": [0.9, 0.99],
        "note": "two\nlines of 'text'",
    }
    assert runs["sweep"].seed == 7  # of a tag
    assert runs["sweep / child"].config == {"train/seed": 12}
    assert {name: run.state for name, run in runs.items()} == {
        "sweep": "finished",
        "sweep / child": "failed",
        "sweep / child / grandchild": "running",
    }


def test_a_run_that_only_holds_others_is_left_out_and_named(folder):
    runs, [line] = read_all(read, folder / "study/mlflow.db")
    assert sorted(run.name for run in runs.values()) == [f"sweep / {v}-{s}" for v in ("base", "fast") for s in range(3)]
    assert "hold only nested runs are left out: sweep (" in line


def test_a_folder_with_both_an_experiment_and_a_run(written):
    runs, problems = read_all(read, written)
    assert len(runs) == 12
    assert sum(run.name.startswith("study/sweep / ") for run in runs.values()) == 6
    assert len(problems) == 3
    [grid] = {run.source.parent for run in runs.values() if run.source.is_dir()}
    assert len(read_all(read, grid)[0]) == 3
    child = next(run for run in runs.values() if run.source.is_dir() and run.name == "sweep / child")
    alone, _ = read_all(read, child.source)
    assert points(alone[child.id]) == points(child)
    assert alone[child.id].name.endswith(" / child")


def test_stores_in_subfolders_are_read_by_their_names(written, tmp_path):
    for place in ("a", "b/c"):
        shutil.copytree(written / "mlruns", tmp_path / place / "mlruns")
    shutil.copyfile(written / "mlflow.db", tmp_path / "b/mlflow.db")
    sqlite3.connect(tmp_path / "b/other.db").execute("CREATE TABLE runs (a)").connection.close()
    problems = []
    runs = list(read(tmp_path, problems.append))
    assert [run.name for run in runs if run.name.endswith("grandchild")] == [
        f"{place}/sweep / child / grandchild" for place in ("b", "a", "b/c")
    ]
    assert len(runs) == 9
    assert [line for line in problems if "deleted" not in line] == [
        f"{tmp_path}/b/other.db: is not an MLflow database, because it has no table experiments; "
        "name mlflow.db, mlruns/ or a folder that holds one of them"
    ]


def test_a_path_inside_a_store_may_be_relative(written, monkeypatch):
    run = next(path for path in (written / "mlruns").rglob("meta.yaml") if path.parent.name != "mlruns").parent
    names = []
    for folder in (run, run.parent):
        monkeypatch.chdir(folder)
        names.append([[run.name for run in read(path, [].append)] for path in (Path("."), folder)])
    assert all(relative == absolute for relative, absolute in names)
    assert any(relative for relative, _ in names)


@pytest.mark.parametrize("end", range(0, 60, 7))
def test_a_metric_that_is_cut_off(written, tmp_path, end):
    source = next(path for path in (written / "mlruns").rglob("metrics/loss") if path.stat().st_size > 60)
    run = tmp_path / "run"
    shutil.copytree(source.parents[1], run)
    whole = points(read_all(read, run)[0]["run"])
    content = source.read_bytes()
    (run / "metrics/loss").write_bytes(content[:end])
    runs, problems = read_all(read, run)
    lines = content[:end].count(b"\n")
    assert {key: value for key, value in points(runs["run"]).items() if key[1] != "loss"} == {
        key: value for key, value in whole.items() if key[1] != "loss"
    }
    assert sorted(step for step, name in points(runs["run"]) if name == "loss") == list(range(lines))
    assert bool(problems) == (not content[:end].endswith(b"\n") and end > 0)


def test_a_damaged_page_is_named(written, tmp_path):
    file = tmp_path / "mlflow.db"
    shutil.copyfile(written / "mlflow.db", file)
    with sqlite3.connect(file) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name IN ('metrics', 'index_metrics_run_uuid')"
        pages = [page for (page,) in connection.execute(query)]
    with file.open("r+b") as content:
        for page in pages:
            content.seek((page - 1) * 4096)
            content.write(b"\xff" * 4096)
    runs, problems = read_all(read, file)
    assert len(runs) == 3
    assert any("metrics of run sweep" in line and "malformed" in line for line in problems)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("{'a': [1, 2.5]}", {"a": [1, 2.5]}),
        ("(1, 2)", "(1, 2)"),
        ("007", "007"),
        ("nan", "nan"),
        ("1e999", "1e999"),
        ("__import__('os')", "__import__('os')"),
        ("[" * 5000, "[" * 5000),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_parameters_as_what_they_were(text, value):
    found = typed(text)
    assert found == value
    assert type(found) is type(value)
