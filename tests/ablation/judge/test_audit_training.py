"""Training figures that a source states, against themselves and our curves; the published files of gad and gspo."""

import numpy as np
import pytest

from ablation.audit import audit
from ablation.audit.measured import measured
from ablation.audit.reproduction import Measured
from ablation.config.published_schema import PublishedFile
from ablation.config.validation import validate
from ablation.judge.measurements import read_measurements
from ablation.store.collect import collect
from ablation.store.database import Store
from tests.simulate import Study, simulate


def reading(kind, values, variant="v1", **more):
    return {"variant": variant, "kind": kind, "values": values, "text": "a run"} | more


def stating(*readings, **more):
    return validate(PublishedFile, {"source": "x", "training": list(readings)} | more, "a log")


def findings(*readings, differences=(), curves=None, incomparable=""):
    return audit(
        stating(*readings, differences=list(differences)),
        None if curves is None else Measured({}, incomparable, curves=curves),
    )


def ours(*seeds, variant="v1", stage="train", metric="a"):
    return {(variant, stage, metric): [np.array(seed, dtype=float) for seed in seeds]}


def test_a_difference_within_the_printed_digits_is_no_finding():
    rule = {"metric": "d", "of": "t", "less": "s"}
    for whole, found in ((1.3, False), (1.4, True)):  # 2.57 - 1.3 = 1.27; digits hide up to 0.105
        stated = reading("seen", {"d": whole, "t": 2.57, "s": 1.3})
        assert bool(findings(stated, differences=[rule])) is found, whole
    assert not findings(reading("seen", {"d": 9.0, "t": 2.57}), differences=[rule])  # one of them is not stated
    assert not findings(reading("seen", {"d": [8, 9], "t": 2.57, "s": 1.3}), differences=[rule])


@pytest.mark.parametrize(
    ("value", "wanted", "kind", "severity"),
    [
        (0.9, [0.5, 0.8], "healthy", "warn"),
        (0.9, [0.5, 0.8], "expected", "note"),
        (0.8, [0.5, 0.8], "healthy", None),  # a bound is inside
        (0.9, [0.5, None], "healthy", None),
        (0.4, [0.5, None], "healthy", "warn"),
        (0.9, [None, 0.8], "healthy", "warn"),
        (0.9, 0.8, "expected", None),  # near a number: how near is not said
    ],
)
def test_what_was_seen_against_what_was_wanted(value, wanted, kind, severity):
    found = findings(reading("seen", {"a": value}, at="step 3"), reading(kind, {"a": wanted}))
    assert [f.severity for f in found] == ([severity] if severity else [])
    assert all(f"v1, a: seen at {value} (step 3; a run), outside of the" in f.sentence for f in found)
    assert not findings(reading("seen", {"a": value}), reading(kind, {"a": wanted}, variant="v2"))
    assert not findings(reading("seen", {"b": value}), reading(kind, {"a": wanted}))


@pytest.mark.parametrize(
    ("stated", "severity", "said"),
    [
        ([0.5, 0.8], "note", "measured in train 0.2 to 0.9, median 0.65, 50% inside (6 steps of 2 runs)."),
        ([0.91, None], "warn", "0% inside"),
        (0.3, "note", "measured in train 0.2 to 0.9, median 0.65 (6 steps of 2 runs)."),
        (117, "warn", "median 0.65, never there (6"),
    ],
)
def test_our_course_beside_a_stated_figure(stated, severity, said):
    curves = ours([0.2, 0.6, 0.7], [0.9, 0.8, 0.4])
    [finding] = findings(reading("seen", {"a": stated}), curves=curves)
    assert (finding.severity, finding.variant, finding.column) == (severity, "v1", "a")
    assert said in finding.sentence
    [finding] = findings(reading("seen", {"a": stated}), curves=curves, incomparable="ours is at scale demo")
    assert finding.severity == "note"
    assert finding.sentence.endswith("; not comparable, ours is at scale demo.")


def test_our_curves_come_from_the_runs_that_ended_well(tmp_path):
    simulate(tmp_path, [Study("toy", seeds=2, steps=30, states={("v2", 1): "failed"})])
    published = stating(reading("seen", {"train/m00": 1.0, "|train/m01|": 1.0}))
    with Store(collect(tmp_path).database) as store:
        curves = measured(store, read_measurements(store, "toy"), published).curves
        of_one = "variant = 'v1' AND seed = 1 AND metric = 'train/m01'"
        expected = store.sql(f"SELECT value FROM curves WHERE {of_one} ORDER BY step")
    assert {key[1:] for key in curves} == {("train", "train/m00"), ("train", "train/m01")}
    assert [len(course) for course in curves["v1", "train", "train/m01"]] == [30, 30]
    assert curves["v1", "train", "train/m01"][1].tolist() == expected["value"].tolist()
    assert len(curves["v2", "train", "train/m00"]) == 1
