"""A source's claims beside what was measured: one verdict each, on the page and in docs/studies/README.md."""

from math import nan

import numpy as np
import pytest

from ablation.audit.claimed import claimed
from ablation.audit.reproduction import Measured, MeasuredCell
from tests.ablation.judge.published import claim, published

ROWS = {"old": ["0.10", "0.10", "0.10"], "new": ["0.05", "0.10", "0.08"]}


def cell(value, half=0.02, seeds=5):
    return MeasuredCell(value, nan, nan, seeds, half=half)


@pytest.mark.parametrize(
    ("percent", "cell", "verdict"),
    [
        (-20, cell(-0.05), "reproduced"),
        (-20, cell(-0.01), "not seen"),
        (-20, cell(0.05), "contradicted"),
        (34, cell(0.05), "reproduced"),
        (0, cell(0.01), "reproduced"),
        (0, cell(0.05), "contradicted"),
        (-20, cell(-0.05, nan, 1), "not testable here"),
        (-20, None, "not testable here"),
    ],
)
def test_a_claimed_change_is_held_against_the_interval_of_our_mean(percent, cell, verdict):
    file = published(ROWS, [claim(column="mean", percent=percent), claim(column="a", percent=-10)])
    deltas = {} if cell is None else {("new", "old", "mean"): cell}
    [found] = claimed(file, Measured({}, deltas=deltas))  # a small change of a part is no claim of its own
    assert (found.variant, found.verdict) == ("new", verdict)
    assert f"{percent:+g}% against old, mean" in found.said


@pytest.mark.parametrize(
    ("standing", "verdicts"),
    [
        ({"best": True}, ["reproduced", "not seen", "not testable here"]),
        ({"below": "0.06"}, ["reproduced", "contradicted", "not testable here"]),
    ],
)
def test_superlatives_and_bounds_are_held_against_our_table(standing, verdicts):
    file = published(ROWS, standings=[{"variant": "new", "column": "a", "text": "best"} | standing])
    for own, verdict in zip((cell(0.03), cell(0.2), cell(0.03, nan, 1)), verdicts, strict=True):
        [found] = claimed(file, Measured({"new": {"a": own}, "old": {"a": cell(0.1)}}))
        assert found.verdict == verdict


@pytest.mark.parametrize(
    ("stated", "verdict"),
    [
        (0.2, "reproduced"),
        (0.9, "not seen"),
        ([0, 0.3], "reproduced"),
        ([0.35, 1], "not seen"),
        ([0.5, 1], "contradicted"),
    ],
)
def test_a_figure_of_a_training_is_held_against_our_curve(stated, verdict):
    reading = {"variant": "new", "stage": "train", "kind": "seen", "values": {"loss": stated}, "text": "low"}
    file = published({}, target=None, items={}, columns=["a"], training=[reading])
    curve = {("new", "train", "loss"): [np.array([0.1, 0.25, 0.4])]}
    [found] = claimed(file, Measured({}, curves=curve))
    assert found.verdict == verdict
    [untested] = claimed(file, None)
    assert (untested.measured, untested.verdict) == ("", "not testable here")
