"""CSV that W&B exports. Histories and tables of runs are what pandas writes of them, as W&B's documentation does it.

W&B's page exports charts; no account is at hand to export one, so their form is that of such files in public projects.
"""

import math

import pandas
import pytest

from ablation.contract.errors import ConfigError
from ablation.readers.wandb import read
from tests.ablation.readers.stored import points, read_all

ODD = 'odd/näme "q", x\\y #1'


def test_a_history(tmp_path):
    rows = [
        {"_step": 0, "_runtime": 0.5, "_timestamp": 1.7e9, "loss": 1.0, ODD: 2, "ok": True, "text": "words"},
        {"_step": 1, "loss": math.inf, ODD: None, "ok": False},
        {"_step": 1, "loss": -math.inf},
        {"_step": 10, "loss": 0.25},
    ]
    pandas.DataFrame(rows).to_csv(tmp_path / "my run.csv")
    runs, problems = read_all(read, tmp_path / "my run.csv")
    [run] = runs.values()
    assert (run.id, run.name, run.config) == ("my run", "my run", {})
    loss = {(0, "loss"): 1.0, (1, "loss"): -math.inf, (10, "loss"): 0.25}
    assert points(run) == loss | {(0, ODD): 2.0, (0, "ok"): 1.0, (1, "ok"): 0.0}
    assert problems == [f"{tmp_path / 'my run.csv'}: cells that are not numbers are left out (columns: text)"]


def test_a_chart_of_several_runs(tmp_path):
    names = ["base - s1 - train/loss", "new - train/loss"]
    header = ["Step", *(f"{name}{end}" for name in names for end in ("", "__MIN", "__MAX")), "new - _step"]
    rows = [[0, 1.0, 0.9, 1.1, 2.0, 2.0, 2.0, 0], [1, 0.5, 0.5, 0.5, "", "", "", ""]]
    pandas.DataFrame(rows, columns=header).to_csv(tmp_path / "chart.csv", index=False)
    runs, _ = read_all(read, tmp_path / "chart.csv")
    assert {key: points(run) for key, run in runs.items()} == {
        "base - s1": {(0, "train/loss"): 1.0, (1, "train/loss"): 0.5},
        "new": {(0, "train/loss"): 2.0},
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Step,val_loss\n5,0.5\n10,0.25\n", {"x": {(5, "val_loss"): 0.5, (10, "val_loss"): 0.25}}),
        ('"Step","a - s0 - loss","b - loss"\n5,0.5,\n', {"a - s0": {(5, "loss"): 0.5}}),
        ("global_step,loss,acc,_runtime\n5,0.5,1,3\n", {"x": {(5, "loss"): 0.5, (5, "acc"): 1.0}}),
    ],
)
def test_a_chart_without_its_ranges(text, found, tmp_path):
    (tmp_path / "x.csv").write_text(text)
    runs, problems = read_all(read, tmp_path / "x.csv")
    assert ({name: points(run) for name, run in runs.items() if points(run)}, problems) == (found, [])


def test_a_folder_of_exports(tmp_path):
    """A file for each run, or a chart for each metric and the table of runs: what has one name is one run."""
    for name in ("base/seed_0", "base/seed_1", "new/seed_0"):
        file = tmp_path / f"runs/{name}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("Step,val_loss\n5,0.5\n")
    (tmp_path / "runs/notes.csv").write_text("a,b\n1,2\n")
    runs, [problem] = read_all(read, tmp_path / "runs")
    assert sorted(runs) == ["base/seed_0", "base/seed_1", "new/seed_0"]
    assert problem.startswith(f"{tmp_path}/runs/notes.csv: is not a CSV file exported by W&B; ")
    charts = tmp_path / "charts"
    charts.mkdir()
    (charts / "loss.csv").write_text("Step,a-s0 - loss,a-s0 - loss__MIN,b-s0 - loss\n1,0.5,0.5,0.7\n")
    (charts / "acc.csv").write_text("Step,a-s0 - acc,b-s0 - acc\n1,0.1,0.2\n")
    (charts / "runs.csv").write_text(
        'name,config,summary,state\na-s0,{"lr": 0.1},{},finished\nb-s0,{"lr": 0.2},{},crashed\n'
    )
    runs, problems = read_all(read, charts)
    assert problems == []
    assert {name: (points(run), run.config, run.state) for name, run in runs.items()} == {
        "a-s0": ({(1, "loss"): 0.5, (1, "acc"): 0.1}, {"lr": 0.1}, "finished"),
        "b-s0": ({(1, "loss"): 0.7, (1, "acc"): 0.2}, {"lr": 0.2}, "failed"),
    }


def test_a_table_of_runs_as_the_documentation_exports_it(tmp_path):
    ended = {"acc": 0.5, "_step": 99, "_runtime": 3, "nan": math.nan, "eval": {"f1": 0.25}, "t": {"_type": "table"}}
    config = [{"lr": 1e-3, "seed": 1, "optim": {"name": "adam"}, "none": None}, {"lr": 1e-3, "seed": 2}]
    summary = [ended, {"acc": -math.inf, "ok": True, "words": "x"}]
    frame = pandas.DataFrame({"summary": summary, "config": config, "name": ["base", "base"]})
    frame.to_csv(tmp_path / "project.csv")
    runs, problems = read_all(read, tmp_path / "project.csv")
    assert list(runs) == ["base", "base#2"]
    first, second = runs.values()
    assert points(first) == {(99, "acc"): 0.5, (99, "nan"): "NaN", (99, "eval.f1"): 0.25}
    assert points(second) == {(0, "acc"): -math.inf, (0, "ok"): 1.0}
    assert first.config == {"lr": 1e-3, "seed": 1, "optim": {"name": "adam"}, "none": None}
    assert (second.config, first.name, second.name) == ({"lr": 1e-3, "seed": 2}, "base", "base")
    assert problems == [f"{tmp_path / 'project.csv'}: 2 runs have the name base, so they are numbered in row order"]


def test_a_table_of_runs_with_a_column_each(tmp_path):
    (tmp_path / "runs.csv").write_text(
        "ID,Name,State,config.lr,config.seed,config.flag,config.model,summary.acc,summary._step\n"
        "a1,base,finished,0.001,1,True,small,0.5,7\n"
        "a2,base,crashed,0.001,2,,large,,\n"
        "a3,base,running,0.01,3,false,large,NaN,8\n"
        "a3,base,running,0.01,3,false,large,1,8\n"
        ",,,,,,,,\n"
    )
    runs, problems = read_all(read, tmp_path / "runs.csv")
    assert {key: (run.state, run.config.get("seed"), points(run)) for key, run in runs.items()} == {
        "a1": ("finished", 1, {(7, "acc"): 0.5}),
        "a2": ("failed", 2, {}),
        "a3": ("running", 3, {(8, "acc"): "NaN"}),
    }
    assert runs["a1"].config == {"lr": 0.001, "seed": 1, "flag": True, "model": "small"}
    assert any("the id a3 occurs twice" in line for line in problems)
    assert any("neither a name nor an id" in line for line in problems)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is not a CSV file exported by W&B"),
        ("a,b\n1,2\n", "is not a CSV file exported by W&B"),
        ("_step,loss,loss\n1,2,3\n", "line 1 .*: is the name of several columns"),
        ("config,summary\n{},{}\n", "has no column `name` or `id`"),
        ("\x00\x01\x02", "is not a CSV"),
        ("Relative Time,a - loss,a - loss__MIN\n0.5,1,1\n", "Relative Time: holds no whole numbers .* choose Step"),
        ("Name,State,_step,lr\na,finished,3,0.1\n", "does not state which columns hold the configuration"),
        ("Name,State,Runtime,lr\na,finished,3,0.1\n", "does not state which columns hold the configuration"),
    ],
)
def test_what_is_no_export(tmp_path, text, what):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(ConfigError, match=f"bad.csv: {what}"):
        list(read(tmp_path / "bad.csv", print))
