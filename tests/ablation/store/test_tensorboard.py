"""Event files made from metrics: TensorBoard's own reader finds every point, once, also after stages went on."""

import json
import math
import struct
from pathlib import Path

import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ablation.contract.errors import ConfigError
from ablation.store import tensorboard
from ablation.store.tensorboard import NOTE, encode_points, write_events
from tests.simulate import Study, editing, simulate, stage_dir


def shown(folder):
    """{tag: [(step, value)]} as TensorBoard reads them."""
    board = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {tag: [(point.step, point.value) for point in board.Scalars(tag)] for tag in board.Tags()["scalars"]}


def write_metrics(stage: Path, rows):
    frame = pd.DataFrame(rows, columns=["step", "name", "value"]).astype({"step": "int64", "value": "float64"})
    frame.to_parquet(stage / "metrics.parquet")


@pytest.fixture
def results(tmp_path):
    simulate(tmp_path / "results", [Study(seeds=2, variants=2), Study("other", seeds=1, variants=1)])
    return tmp_path / "results"


@pytest.fixture
def train(results):
    return stage_dir(results / "plan.json", "toy", "v1", 1, "train")


def test_stages_have_readable_names_and_a_shared_one_appears_once(results, tmp_path):
    folder = tmp_path / "board"
    assert write_events(results, folder, "toy") == 8
    names = sorted(str(path.parent.relative_to(folder)) for path in folder.glob("*/*/*/*/events*"))
    assert names == [
        f"toy/{v}/seed {s}/{stage}" for v in ("v0", "v1") for s in (0, 1) for stage in ("evaluate", "train")
    ]
    assert write_events(results, folder) == 10  # the other study's too


def test_tensorboard_reads_the_points_of_the_metrics(results, train, tmp_path):
    values = [1.5, -2.0, 1e300, math.nan, 1e-30]
    write_metrics(train, [(2**40 * step, "größe/mean", value) for step, value in enumerate(values)] + [(-1, "b", 3.0)])
    write_events(results, tmp_path)
    found = shown(tmp_path / "toy/v1/seed 1/train")
    assert found["b"] == [(-1, 3.0)]
    steps, read = zip(*found["größe/mean"], strict=True)
    assert steps == tuple(2**40 * step for step in range(5))
    assert read[:3] == (1.5, -2.0, math.inf)  # single precision has no 1e300
    assert math.isnan(read[3])
    assert read[4] == struct.unpack("f", struct.pack("f", 1e-30))[0]


def test_new_points_are_appended_and_nothing_else_is_written(results, train, tmp_path, monkeypatch):
    write_metrics(train, [(0, "a", 1.0), (1, "a", 2.0)])
    write_events(results, tmp_path)
    place = tmp_path / "toy/v1/seed 1/train"
    [file] = place.glob("events*")
    before = file.read_bytes()
    encoded = []
    monkeypatch.setattr(
        tensorboard,
        "encode_points",
        lambda rows, when, begin: encoded.extend(rows) or encode_points(rows, when, begin=begin),
    )
    write_events(results, tmp_path)
    assert encoded == []  # nothing has changed
    file.write_bytes(before + b"begun by a process that was killed")
    write_metrics(train, [(0, "a", 1.0), (1, "a", 2.0), (2, "a", 3.0)])
    write_events(results, tmp_path)
    assert encoded == [(2, "a", 3.0)]
    assert file.read_bytes().startswith(before)
    assert shown(place) == {"a": [(0, 1.0), (1, 2.0), (2, 3.0)]}


def test_a_stage_that_ran_again_is_written_anew(results, train, tmp_path):
    place = tmp_path / "toy/v1/seed 1/train"
    for rows in ([(0, "a", 1.0), (1, "a", 2.0)], [(0, "a", 1.0), (1, "a", 5.0), (2, "a", 6.0)], [(0, "a", 9.0)]):
        write_metrics(train, rows)
        write_events(results, tmp_path)
        assert shown(place) == {"a": [(step, value) for step, _, value in rows]}
        assert len(list(place.glob("events*"))) == 1


def test_damaged_metrics_and_variants_that_went_are_left_out(results, train, tmp_path):
    other = stage_dir(results / "plan.json", "toy", "v1", 0, "train")
    before = json.loads((other / "status.json").read_text())
    (other / "status.json").write_text(json.dumps(before | {"sha256": {"metrics.parquet": "of another content"}}))
    write_events(results, tmp_path)
    (train / "metrics.parquet").write_bytes(b"PAR1 no")
    with editing(results / "plan.json") as plan:
        plan["studies"][0]["runs"] = [run for run in plan["studies"][0]["runs"] if run["variant"] != "v0"]
    write_events(results, tmp_path)
    places = {str(path.parent.relative_to(tmp_path)) for path in tmp_path.glob(f"*/*/*/*/{NOTE}")}
    assert places == {"toy/v1/seed 0/evaluate", "toy/v1/seed 1/evaluate"} | {
        f"other/v0/seed 0/{stage}" for stage in ("train", "evaluate")
    }


def test_a_wrong_study_and_no_metrics_are_one_line(results, tmp_path):
    with pytest.raises(ConfigError, match="one of toy, other"):
        write_events(results, tmp_path, "tyo")
    for path in results.glob("stages/**/metrics.parquet"):
        path.unlink()
    with pytest.raises(ConfigError, match="no stage has logged"):
        write_events(results, tmp_path)
