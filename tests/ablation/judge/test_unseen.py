"""What items that do not differ leave room for, by hand."""

from itertools import pairwise

import numpy as np
import pytest

from ablation.judge.statistics import contrast


def agreeing(*sizes, seeds=2):
    """The same 0/1 values in both arms, one array [2, seeds, items] per size."""
    generator = np.random.default_rng(5)
    run = [generator.integers(0, 2, (1, seeds, n)).astype(float) for n in sizes]
    return [np.concatenate([subset, subset]) for subset in run]


def test_items_that_all_agree_leave_room_for_what_was_not_seen():
    """Rule of three by hand: 0 of 29 differ, so below 3.689 / 29 = 0.1272 do; a third in a mean of three."""
    estimate = contrast(agreeing(60, 60, 29), (1, -1), {"target": 0.5})
    assert estimate.effect == 0
    assert estimate.high == pytest.approx(-np.log(0.025) / 29 / 3) == pytest.approx(0.0424, abs=1e-4)
    assert estimate.low == -estimate.high
    assert estimate.p == 1


def test_one_item_that_differs_does_not_narrow_the_interval():
    """Before, one flipped item in one of five seeds made of [-.037, .037] the interval [-.0095, .0055]."""
    values, widths = agreeing(100, seeds=5), []
    for flipped in range(4):
        numbers = contrast(values, (1, -1), "max")
        widths.append(numbers.high - numbers.low)
        values[0][0, 0, np.flatnonzero(values[0][1, 0])[flipped]] = 0
    assert widths[0] == pytest.approx(2 * 0.0369, abs=1e-4)
    assert all(later > 0.985 * width for width, later in pairwise(widths))
    assert widths[0] < widths[-1] < 1.5 * widths[0]


def test_what_went_unseen_is_measured_by_the_range_and_not_by_the_smallest_step():
    graded = [np.random.default_rng(5).integers(0, 11, (1, 2, 50)) / 10 * np.ones((2, 1, 1))]
    exact = contrast(graded, (1, -1), "max")
    assert exact.high == pytest.approx(-np.log(0.025) / 50)
    graded[0][0] += np.random.default_rng(6).normal(0, 1e-16, (2, 50))
    dusty = contrast(graded, (1, -1), "max")
    assert dusty.high == pytest.approx(exact.high, rel=0.01)  # arms that differ are rounded to tenths, too


def test_items_that_have_all_changed_hide_nothing():
    [values] = agreeing(50)
    values[:] = values[0, 0]
    dense = values.copy()
    dense[0] = 1 - dense[0]
    assert contrast([dense], (1, -1), "max").noise.unseen == 0
    some = values.copy()
    some[0, :, :5] = 1 - some[0, :, :5]
    assert contrast([some], (1, -1), "max").noise.unseen == pytest.approx(0.9 / 50)


def test_clusters_that_agree_leave_more_room():
    [values] = agreeing(60)
    numbers = contrast([values], (1, -1), "max", clusters=[np.arange(60) // 6])
    assert numbers.high == pytest.approx(-np.log(0.025) / 10)
