"""Our numbers beside reported ones: prediction intervals, the published metric, and runs that went wrong."""

import dataclasses
from math import isnan, nan

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ablation.audit import audit
from ablation.audit.measured import _cells, _deltas, measured, prediction_half_width, published_value
from ablation.audit.reproduction import Measured, MeasuredCell
from ablation.config.published_schema import PublishedFile
from ablation.config.validation import validate
from ablation.judge.significance import Noise
from ablation.judge.stored import read_measurements
from ablation.store.collect import collect
from ablation.store.database import Store
from tests.ablation.judge.published import of_kind, published
from tests.ablation.judge.studies import measurements
from tests.ablation.judge.test_verdicts import edit_analysis, run
from tests.simulate import Study, simulate

ROWS = {"v1": ["0.500", "0.500"], "v0": ["0.500", "0.500"]}
DELTA = {"variant": "v1", "against": "v0", "column": "a", "text": "a change"}


def test_the_prediction_interval_by_hand():
    half = prediction_half_width(Noise(0.01, 3, 0.0), seeds=4, runs=2, alpha=0.05)
    assert half == pytest.approx(stats.t.ppf(0.975, 3) * 0.2 * (1 / 4 + 1 / 2) ** 0.5)
    half = prediction_half_width(Noise(0.0, 3, 0.01), seeds=4, runs=2, alpha=0.05)
    assert half == pytest.approx(stats.norm.ppf(0.975) * (2 * 0.01) ** 0.5)
    assert isnan(prediction_half_width(Noise(nan, 0, 0.01), seeds=1, runs=1, alpha=0.05))
    assert prediction_half_width(Noise(0.0, 2, 0.0), seeds=3, runs=1, alpha=0.05) == 0.0


def test_reproduction_compares_like_with_like_only():
    file = published({"v": ["0.05", "0.025", "0.0375"]})
    ours = {"v": {"a": MeasuredCell(0.1, 0.04, 0.16, 3), "b": MeasuredCell(0.1, 0.08, 0.12, 2)}}
    inside, outside = of_kind(audit(file, Measured(ours)), "reproduction")
    assert "reproduced" in inside.sentence
    assert inside.severity == "note"
    assert "0.025, measured 0.100 [0.080, 0.120] on 2 seeds: different, because" in outside.sentence
    assert outside.severity == "warn"
    for finding in of_kind(audit(file, Measured(ours, "these results are at scale demo")), "reproduction"):
        assert "not comparable, because these results are at scale demo" in finding.sentence


@pytest.mark.parametrize(
    ("low", "high", "difference", "severity", "said"),
    [
        (-0.03, -0.015, "", "note", "the intervals overlap."),
        (-0.01, 0.02, "", "note", "the intervals overlap."),  # they touch
        (0.01, 0.02, "", "warn", "the intervals do not overlap."),
        (-0.05, -0.03, "", "warn", "the intervals do not overlap."),
        (nan, nan, "", "note", "one seed does not show how much runs vary."),
        (0.01, 0.02, "ours is at demo", "note", "not overlap, but they are not comparable, because ours is at demo."),
    ],
)
def test_reported_differences_stand_beside_ours_as_intervals(low, high, difference, severity, said):
    deltas = [DELTA | {"low": "-0.020", "high": "-0.010"}]
    file = published({}, target=None, items={}, columns=["a"], deltas=deltas)
    ours = Measured({}, difference, {("v1", "v0", "a"): MeasuredCell(0.0, low, high, 1 if isnan(low) else 3)})
    [finding] = audit(file, ours)
    assert (finding.kind, finding.severity) == ("reproduction", severity)
    assert "v1 minus v0, a: reported -0.020 to -0.010 (a change), measured" in finding.sentence
    assert finding.sentence.endswith(said)
    assert audit(file) == []  # nothing measured, nothing to compare
    assert audit(file, Measured({}, "")) == []


def study(direction="max", states=()):
    """Two variants of two seeds and four items."""
    values = {"v0": {"a": np.array([[0, 1, 0, 0], [0] * 4])}, "v1": {"a": np.array([[1, 1, 0, 0], [1, 0, 0, 0]])}}
    made = measurements(values, dict.fromkeys(values), direction=direction)
    return dataclasses.replace(made, states=made.states | dict(states))


def file_of(**more):
    return published(ROWS, items={"a": 4}, columns=["a", "mean"], **more)


def test_our_own_difference_is_paired_and_in_the_metrics_sense():
    for direction in ("max", "min", {"target": 0.5}):  # never turned into a gain, nor into another metric
        ours, file = study(direction), file_of(target=None, deltas=[DELTA | {"low": 0, "high": 1}])
        [cell] = _deltas(ours, file).values()
        assert cell.value == pytest.approx(0.25)
        assert cell.low <= cell.value <= cell.high
        for other in ({"against": "v9"}, {"column": "b"}):
            changed = [file.deltas[0].model_copy(update=other)]
            assert not _deltas(ours, file.model_copy(update={"deltas": changed}))
        distances = _cells(ours, ["v1", "v0"], file_of(target="0.5"))["a"]
        assert distances.value == pytest.approx(-0.25)  # |0.5 - 0.5| and |0.25 - 0.5| after 0.25 and 0.5


def test_a_failed_seed_is_not_dropped_in_silence():
    failed = study(states={("v1", 2): ("failed", "out of memory")})
    cell = _cells(failed, ["v1"], file_of(target=None))["a"]
    assert (cell.seeds, cell.problem) == (2, "v1 seed 2 failed (out of memory)")
    none = study(states={("v1", 0): ("missing", ""), ("v1", 1): ("missing", "")})
    cell = _cells(none, ["v1"], file_of(target=None))["a"]
    assert (cell.seeds, cell.problem) == (0, "v1 seed 0 has not run; v1 seed 1 has not run")
    delta = file_of(target=None, deltas=[DELTA | {"low": 0, "high": 1}])
    [cell] = _deltas(none, delta).values()
    assert "v1 seed 1 has not run" in cell.problem


def report(columns, **more):
    """What a source reports of v1, as distances."""
    known = {"source": "x", "metric": "hit_distance", "target": "0.5", "columns": columns}
    return PublishedFile.model_validate(known | {"rows": {"v1": ["0.1"] * len(columns)}} | more)


def test_a_published_rate_stands_beside_the_value_that_it_is_a_mean_of_and_why_it_may_differ(tmp_path):
    """The analysis plan decides by a graded value; what the source printed is the share of items."""

    def graded(plan):
        for file in plan.parent.glob("stages/*/*/*/items.parquet"):
            rows = pd.read_parquet(file)
            pd.concat([rows, rows.assign(name="graded", value=0.9)]).to_parquet(file, index=False)
        edit_analysis(value="graded")(plan)

    _, results = run(tmp_path, graded)
    printed = report(columns=["gender", "race", "mean"], items={"gender": 253, "race": 400}, model="gpt2-medium")
    with Store(results / "tracker.duckdb") as store:
        cells = store.results("toy")
        name = published_value(store, "toy", printed)
        ours = measured(store, read_measurements(store, "toy", name), printed)
        assert published_value(store, "toy", report(columns=["gender"], metric="wins")) is None
        planned = measured(store, read_measurements(store, "toy"), printed)
    expected = cells[(cells["variant"] == "v1") & (cells["metric"] == "edited/gender/distance")]["value"].mean()
    cell = ours.rows["v1"]["gender"]
    assert cell.value == pytest.approx(expected)
    assert cell.low <= cell.value <= cell.high
    assert planned.rows["v1"]["gender"].value == pytest.approx(0.4)
    for said in ("scale simulated", "model is gpt2-medium", "gender: 400 here, 253 published"):
        assert said in ours.difference
    assert "race" not in ours.difference


def test_our_curves_come_from_the_runs_that_ended_well(tmp_path):
    simulate(tmp_path, [Study("toy", seeds=2, steps=30, states={("v2", 1): "failed"})])
    stated = {"variant": "v1", "kind": "seen", "values": {"train/m00": 1.0, "|train/m01|": 1.0}, "text": "a run"}
    published = validate(PublishedFile, {"source": "x", "training": [stated]}, "a log")
    with Store(collect(tmp_path).database) as store:
        curves = measured(store, read_measurements(store, "toy"), published).curves
        of_one = "variant = 'v1' AND seed = 1 AND metric = 'train/m01'"
        expected = store.sql(f"SELECT value FROM curves WHERE {of_one} ORDER BY step")
    assert {key[1:] for key in curves} == {("train", "train/m00"), ("train", "train/m01")}
    assert [len(course) for course in curves["v1", "train", "train/m01"]] == [30, 30]
    assert curves["v1", "train", "train/m01"][1].tolist() == expected["value"].tolist()
    assert len(curves["v2", "train", "train/m00"]) == 1
