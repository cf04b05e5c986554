"""What a trainer sees of its stage and leaves: config, metrics, items, quoted samples, the digest of its weights."""

import importlib
import io
import json
import sys
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

from ablation.contract import samples as limits
from ablation.contract.code import code_of
from ablation.contract.samples import FILE
from ablation.runner.stage import load_config
from tests.make_stage import make_stage
from tests.repository import ROOT
from tests.trainers.toy_stage import write_stage
from trainers.policy.batch import Sequences
from trainers.policy.config import Evaluate
from trainers.policy.evaluation import Quotes, telling
from trainers.policy.systematic_sampling import Distinct
from trainers.running.samples import save_samples, some_items
from trainers.running.stage import Diverged
from trainers.running.weights import MeasuredModels, write_weights


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
    with pytest.raises(AttributeError, match=r"config.mode is missing from the stage's `reads` \(lr, steps\)"):
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
        ({}, ["lr"], "config.json lacks lr or has another value of it"),
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
    with pytest.raises(ValueError, match=r"1 duplicate row, such as \('1', 'race', 'edited', 'ss'\)"):
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
        with pytest.raises(ValueError, match="no cluster is named for 1 item, such as 2"):
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


def place(item="1", subset="race", protocol="edited"):
    return {"item": item, "subset": subset, "protocol": protocol}


def saved(tmp_path, rows):
    save_samples(make_stage(tmp_path, "toy.evaluate", None, {}), rows)
    return pd.read_parquet(tmp_path / FILE)


def test_rows_may_have_texts_and_numbers_of_their_own(tmp_path):
    rows = [
        place() | {"prompt": "2 + 2", "response": "4", "correct": 1.0, "demonstrations": "1 + 1 → 2"},
        place("2") | {"prompt": "3 + 3", "response": "é\ud800\x00", "reference": "6", "demonstrations": None},
    ]
    table = saved(tmp_path, rows)
    assert table["response"].tolist() == ["4", "é\ufffd\x00"]
    assert table["reference"].tolist() == ["", "6"]
    assert table["demonstrations"].tolist() == ["1 + 1 → 2", ""]
    assert table["correct"][0] == 1.0
    assert np.isnan(table["correct"][1])
    assert pq.ParquetFile(tmp_path / FILE).metadata.row_group(0).column(0).compression == "ZSTD"
    save_samples(make_stage(tmp_path, "toy.evaluate", None, {}), [])  # replaces it
    assert pd.read_parquet(tmp_path / FILE).columns.tolist() == [*limits.PLACE, *limits.TEXTS]


def test_a_long_text_keeps_its_beginning_and_its_end(tmp_path):
    table = saved(tmp_path, [place() | {"response": "a" * 9_000 + "end"}])
    assert len(table["response"][0].replace(" [… 1,003 characters left out …] ", "")) == limits.LONGEST
    assert table["response"][0].endswith("end")
    again = limits.cut(table["response"][0], 300)
    assert again.startswith("a" * 200 + " [… 8,703 characters left out …] ")


def test_some_items_are_the_same_in_every_run():
    names = [f"item-{i}" for i in range(50)]
    chosen = {names[i] for i in some_items(names, 10)}
    turned = names[::-1]
    assert {turned[i] for i in some_items(turned, 10)} == chosen
    assert len(chosen) == 10
    assert some_items(names, 10) == sorted(some_items(names, 10))
    assert some_items(names, 50) == list(range(50))


def test_a_prompt_s_quotes_are_its_most_common_response_and_the_most_common_other_outcome():
    assert telling([3, 4, 5], {3: 0.2, 4: 0.5, 5: 0.3}, {3: 1.0, 4: 0.0, 5: 0.0}) == [4, 3]
    assert telling([3, 4, 5], {3: 0.2, 4: 0.5, 5: 0.3}, {3: 0.0, 4: 0.0, 5: 0.0}) == [4, 5]
    assert telling([3, 4, 5], {3: 0.2, 4: 0.5, 5: 0.3}, None) == [4, 5]
    assert telling([3], {3: 1.0}, None) == [3]


def test_quotes_stand_with_their_prompt_and_their_values():
    ids = torch.zeros(3, 1, dtype=torch.long)
    found = Distinct(Sequences(ids, ids, ids, ids), torch.tensor([0, 0, 1]), torch.tensor([0.25, 0.75, 1.0]))
    asked = [{"item": "a", "prompt": "1 + 1", "reference": "2"}, {"item": "b", "prompt": "2 + 2", "reference": "4"}]
    quotes = Quotes(asked, outcome="accuracy")
    quotes.keep("sampled", found, ["3", "2", "4"], {"accuracy": [0.0, 1.0, 1.0]})
    common = {"subset": "test", "protocol": "sampled"}
    assert quotes.rows == [
        asked[0] | common | {"response": "2", "accuracy": 1.0, "share of the samples": 0.75},
        asked[0] | common | {"response": "3", "accuracy": 0.0, "share of the samples": 0.25},
        asked[1] | common | {"response": "4", "accuracy": 1.0},
    ]


@pytest.mark.parametrize("entry", ["debias.train", "policy.reinforce", "gad.adversarial", "demonstrations.grpo"])
def test_what_is_quoted_is_in_no_key_of_a_training(entry):
    reached = code_of(f"trainers.{entry}", ROOT, exclude=[f"trainers.{entry.partition('.')[0]}.parts"]).files
    quoting = ("trainers/running/samples.py", "ablation/contract/samples.py", "trainers/policy/evaluation.py")
    assert not reached.keys() & set(quoting)


def written(tmp_path, start, trained):
    write_weights(tmp_path, start, trained)
    content = json.loads((tmp_path / "weights.json").read_text())
    return content["digest"], torch.tensor(content["moved"], dtype=torch.float64)


def tensors(seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return {"a": scale * torch.randn(40, 50, generator=generator), "b": scale * torch.randn(3000, generator=generator)}


def plus(one, other):
    return {name: one[name] + other[name] for name in one}


def test_digest_is_of_values_names_and_shapes(tmp_path):
    start, trained = tensors(0), tensors(1)
    digest = written(tmp_path, start, trained)[0]
    assert digest == written(tmp_path, start, {name: t.clone() for name, t in reversed(trained.items())})[0]
    flipped = {name: t.clone() for name, t in trained.items()}
    flipped["b"][7] = torch.nextafter(flipped["b"][7], torch.tensor(9.0))
    renamed = {"a": trained["a"], "c": trained["b"]}
    reshaped = trained | {"a": trained["a"].T.contiguous().T.reshape(50, 40)}
    for other in (flipped, renamed, reshaped):
        assert digest != written(tmp_path, {name: torch.zeros_like(t) for name, t in other.items()}, other)[0]


def test_distance_of_sketches_is_the_distance_of_the_ways(tmp_path):
    start, way, little = tensors(0), tensors(1, 0.01), tensors(2, 0.0001)
    _, one = written(tmp_path, start, plus(start, way))
    _, other = written(tmp_path, start, plus(plus(start, way), little))
    length = sum(float(t.double().square().sum()) for t in way.values()) ** 0.5
    assert float(one.norm()) == pytest.approx(length, rel=0.2)
    assert float((one - other).norm() / one.norm()) == pytest.approx(0.01, rel=0.3)


def measured(folder, *models, samples=4, data="d1", tokenizer="{}"):
    files = {"config.json": "{}", "tokenizer.json": tokenizer, "README.md": folder.name}
    (folder / "model").mkdir(parents=True)
    for name, content in files.items():
        (folder / "model" / name).write_text(content)
    made = MeasuredModels(Evaluate(samples=samples), {"data": folder.parent / data})
    for model in models:
        made.add(model, folder / "model")
    made.write(folder)
    content = json.loads((folder / "weights.json").read_text())
    assert content["moved"] == []
    return content["digest"]


def test_a_measurement_is_the_same_with_the_same_models_settings_and_data_only(tmp_path):
    one, other = (
        {"a": torch.arange(3.0), "b": torch.ones(2)},
        {"a": torch.arange(3.0), "b": torch.ones(2) * (1 + 2**-23)},
    )
    same = measured(tmp_path / "1", one, other)
    assert same == measured(tmp_path / "2", dict(reversed(one.items())), other)
    different = [
        measured(tmp_path / "3", one, one),
        measured(tmp_path / "4", one),
        measured(tmp_path / "5", other, one),
        measured(tmp_path / "6", one, other, samples=5),
        measured(tmp_path / "7", one, other, data="d2"),
        measured(tmp_path / "8", one, other, tokenizer="{ }"),
    ]
    assert len({same, *different}) == 7
