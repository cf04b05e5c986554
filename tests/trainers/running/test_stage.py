"""What a trainer sees: its config, and how it reports."""

import importlib
import io
import json
import sys
from typing import Any

import pandas as pd
import pytest
import torch

from ablation.runner.stage import load_config
from tests.make_stage import make_stage
from tests.trainers.toy_stage import write_stage
from trainers.running.stage import Diverged


class Recorder:
    """A run of wandb that remembers."""

    def __init__(self):
        self.rows = []

    def log(self, values):
        self.rows.append(values)


def toy(out, **words):
    return make_stage(out, "toy.train", None, {}, seed=1, label="v8 seed 1", **words)


@pytest.fixture
def model(tmp_path, monkeypatch):
    write_stage(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "toy_config:Config"
    sys.modules.pop("toy_config", None)


def test_config_shows_what_it_reads_and_nothing_else(model):
    config: Any = load_config(model, {"lr": 0.25, "steps": 6}, ["lr", "steps"])
    assert (config.lr, config.steps, config.doubled()) == (0.25, 6, 12)
    assert isinstance(config, importlib.import_module("toy_config").Config)
    with pytest.raises(AttributeError, match=r"config.mode is not in the stage's `reads` \(lr, steps\)"):
        _ = config.mode
    with pytest.raises(AttributeError, match=r"config\.source"):  # required by the model, not by this stage
        _ = config.source
    with pytest.raises(AttributeError, match="nonsense"):
        _ = config.nonsense


@pytest.mark.parametrize(
    ("values", "reads", "text"),
    [
        ({"lr": -1.0}, ["lr"], "lr must be positive"),
        ({"lr": "high"}, ["lr"], "lr = 'high'"),
        ({}, ["lrr"], "lrr"),
        ({}, ["lr"], "lr is not among the plan's values"),
    ],
)
def test_a_config_that_is_refused_says_why_in_one_line(model, values, reads, text):
    with pytest.raises(ValueError, match=text) as error:
        load_config(model, values, reads)
    assert "\n" not in str(error.value)


def test_metrics_come_back_as_they_were_logged(tmp_path):
    stage = toy(tmp_path)
    stage.log_metrics(0, {"a": 1, "b": torch.tensor([0.1])})
    stage.log_metrics(7, {"a": float("nan")})
    stage.metrics.close()
    frame = pd.read_parquet(tmp_path / "metrics.parquet")
    assert frame.dtypes.astype(str).tolist()[::2] == ["int64", "float64"]
    assert frame[["step", "name"]].to_numpy().tolist() == [[0, "a"], [0, "b"], [7, "a"]]
    assert frame.value[:2].tolist() == [1.0, torch.tensor(0.1).item()]
    assert frame.value.isna().tolist() == [False, False, True]


def test_a_checkpoint_restores_metrics_dashboards_and_the_state_of_rules(tmp_path):
    rule = {"metric": "m", "range": {"max": 1}, "window": 3, "severity": "abort"}
    first = toy(tmp_path, rules=[rule])
    first.log_metrics(0, {"m": 5.0})
    first.log_metrics(1, {"m": 5.0})
    first.save_checkpoint(2, {"w": torch.ones(2)}, {"epoch": 1})
    recorder = Recorder()
    second = toy(tmp_path, rules=[rule], run=recorder)
    step, tensors, state = second.load_checkpoint()
    assert (step, tensors["w"].tolist(), state) == (2, [1, 1], {"epoch": 1})
    assert recorder.rows == [{"step": 0, "m": 5.0}, {"step": 1, "m": 5.0}]
    with pytest.raises(Diverged, match="steps 0-2"):
        second.log_metrics(2, {"m": 5.0})
    assert second.metrics.rows == [(0, "m", 5.0), (1, "m", 5.0), (2, "m", 5.0)]


def test_items_from_rows_and_from_a_frame_are_the_same(tmp_path):
    rows = [("1", "race", "edited", "ss", 1.0), ("2", "race", "edited", "ss", 0.0)]
    stage = toy(tmp_path)
    stage.save_items(iter(rows))
    one = pd.read_parquet(tmp_path / "items.parquet")
    stage.save_items(pd.DataFrame(rows, columns=["item", "subset", "protocol", "name", "value"]).assign(item=[1, 2]))
    pd.testing.assert_frame_equal(one, pd.read_parquet(tmp_path / "items.parquet"))


def test_items_that_are_there_twice_or_lack_a_column_are_refused(tmp_path):
    stage = toy(tmp_path)
    with pytest.raises(ValueError, match=r"there twice.*'1', 'race'"):
        stage.save_items([("1", "race", "edited", "ss", 1.0), ("1", "race", "edited", "ss", 0.0)])
    with pytest.raises(ValueError, match="subset"):
        stage.save_items(pd.DataFrame({"item": ["1"], "protocol": ["e"], "name": ["ss"], "value": [1.0]}))
    assert not (tmp_path / "items.parquet").exists()


def test_clusters_of_items_are_a_column_of_their_own(tmp_path):
    rows = [("1", "race", "edited", "ss", 1.0), ("2", "race", "edited", "ss", 0.0), ("1", "race", "edited", "lms", 1.0)]
    stage = toy(tmp_path)
    stage.save_items(rows, clusters={"1": "nurse", "2": "doctor", "3": "unused"})
    assert pd.read_parquet(tmp_path / "items.parquet")["cluster"].tolist() == ["nurse", "doctor", "nurse"]
    stage.save_items(rows)
    assert "cluster" not in pd.read_parquet(tmp_path / "items.parquet")
    for missing in ({"1": "nurse"}, {"1": "nurse", "2": ""}):
        with pytest.raises(ValueError, match="1 items have no cluster, for example 2"):
            stage.save_items(rows, clusters=missing)


def test_progress_estimates_from_what_this_attempt_did(tmp_path, monkeypatch):
    now = [1000.0]
    for clock in ("time", "monotonic"):
        monkeypatch.setattr(f"ablation.runner.runlog.time.{clock}", lambda: now[0])
    terminal = io.StringIO()
    stage = toy(tmp_path, terminal=terminal)
    stage.progress(100, 120)  # resumed: a hundred steps were done before
    now[0] += 20.0
    stage.progress(110, 120)  # ten steps in 20 s: ten more take 20 s
    assert terminal.getvalue() == "    toy.train  v8 seed 1   110/120 steps  20 s left\n"
    assert json.loads((tmp_path / "progress.json").read_text()) == {
        "done": 110,
        "total": 120,
        "unit": "steps",
        "started": 1000.0,
        "updated": 1020.0,
    }
