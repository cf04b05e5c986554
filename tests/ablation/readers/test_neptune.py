"""Exports of Neptune, written by the published schema of its exporter."""

import math

import pyarrow.parquet as pq
import pytest

from ablation.contract.errors import ConfigError
from ablation.readers.neptune import read
from tests.ablation.readers.stored import points, read_all
from tests.ablation.readers.write_neptune import NOW, series, setting, write_run

SETTINGS = [
    setting("sys/id", "RAT-7"),
    setting("sys/custom_run_id", "base-s3"),
    setting("sys/name", "rates"),
    setting("sys/creation_time", NOW),
    setting("sys/tags", ["a"]),
    setting("seed", 3),
    setting("params/optim", "adam"),
    setting("params/lr", 0.1),
    setting("params/lr/decay", True),
    setting("params/layers", ["b", "a"]),
    setting("test/acc", 0.75),
    {"attribute_path": "source_code/diff", "attribute_type": "file", "file_value": {"path": "x"}},
]


def read_one(place):
    runs, problems = read_all(read, place)
    [run] = runs.values()
    return run, problems


def test_a_run_by_hand(tmp_path):
    told = {"attribute_path": "log", "attribute_type": "string_series", "string_value": "text", "timestamp": NOW}
    first = [*SETTINGS, *series("train/loss", {0: 4.0, 1: math.nan}), told]
    second = [*series("train/loss", {2: math.inf}), *series("monitoring/1234/cpu", {0: 99.0})]
    write_run(tmp_path, "base-s3", first, second)
    run, problems = read_one(tmp_path)
    assert (run.id, run.name, run.state) == ("team/rates/base-s3", "base-s3", "finished")
    assert run.started == "2025-11-03T12:00:00.250000+00:00"
    assert run.config == {
        "seed": 3,
        "params": {"optim": "adam", "lr": 0.1, "layers": ["b", "a"]},
        "params/lr/decay": True,  # a setting below a setting
        "test": {"acc": 0.75},
    }
    loss = {(0, "train/loss"): 4.0, (1, "train/loss"): "NaN", (2, "train/loss"): math.inf}
    assert points(run) == loss | {(2, "test/acc"): 0.75, (2, "params/lr"): 0.1}
    assert problems == []


@pytest.mark.parametrize(
    ("more", "state"),
    [([], "finished"), ([setting("sys/failed", True)], "failed"), ([setting("sys/state", "Active")], "running")],
)
def test_a_run_of_version_2_has_its_name_in_sys(tmp_path, more, state):
    write_run(tmp_path, "SAN-1", [setting("sys/id", "SAN-1"), setting("sys/name", "base-s3"), *more])
    run, _ = read_one(tmp_path)
    assert (run.id, run.name, run.state, run.config) == ("team/rates/SAN-1", "base-s3", state, {})


def test_steps_that_are_not_whole_are_counted(tmp_path):
    rows = [*series("loss", {0.5: 3.0, 1.25: 2.0, 0: 4.0}), *series("acc", {10: 0.5, 20: 0.6})]
    write_run(tmp_path, "a", rows)
    run, problems = read_one(tmp_path)
    assert points(run) == {(0, "loss"): 4, (1, "loss"): 3, (2, "loss"): 2, (10, "acc"): 0.5, (20, "acc"): 0.6}
    [line] = problems
    assert line.endswith("run a: steps that are not whole numbers are counted in their order: loss")


def test_parts_that_are_damaged_missing_or_not_finished(tmp_path):
    rows = [series("loss", {step: float(step)}) for step in range(4)]
    files = write_run(tmp_path, "a", *rows)
    files[1].unlink()
    files[2].write_bytes(files[2].read_bytes()[:-9])
    files[3].rename(files[3].with_suffix(".parquet.tmp"))
    run, problems = read_one(tmp_path)
    assert points(run) == {(0, "loss"): 0.0}
    assert len(problems) == 2
    assert "its run lacks part 1" in problems[0]
    assert f"{files[2]}: cannot be read" in problems[1]
    for file in (files[0], files[2]):
        file.unlink()
    with pytest.raises(ConfigError, match="does not hold runs"):
        read_all(read, tmp_path)


def test_a_table_of_another_kind_is_refused(tmp_path):
    [file] = write_run(tmp_path, "a", series("loss", {0: 1.0}))
    pq.write_table(pq.read_table(file).rename_columns({"step": "epoch"}), file)
    with pytest.raises(ConfigError, match="does not hold runs"):
        read_all(read, file)
