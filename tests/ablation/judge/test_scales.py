"""Values on two scales, and margins that nothing could exceed: told where they are, and of nothing else."""

from types import SimpleNamespace

import numpy as np
import pytest

from ablation.contract.rows import LOGGED
from ablation.judge.scales import margin_is_the_scale, unlike_units

RNG = np.random.default_rng(0)
SHARES, RIGHT = RNG.random(100).round(3), RNG.integers(0, 2, 100).astype(float)
FIVE, TEN, LOSSES = RNG.integers(1, 6, 100), RNG.integers(1, 11, 100), RNG.exponential(1.0, 100)
ONE_IN_PERCENT = np.append(SHARES[1:], 75.8)


def study(*runs, margin=0.01, direction="max", protocol="test", allowed=frozenset(), transform=None):
    """Two variants, a and b, with a run each, or as many as there are."""
    analysis = SimpleNamespace(subsets=["all"], margin=margin, protocol=protocol, transform=transform)
    values = {
        ("ab"[place % 2], place // 2): {"all": SimpleNamespace(values=np.array(run, float))}
        for place, run in enumerate(runs)
    }
    return SimpleNamespace(
        analysis=analysis, values=values, imported=False, planned=False, allowed=allowed, direction=direction
    )


@pytest.mark.parametrize(
    ("one", "other", "unlike"),
    [
        (SHARES, 100 * SHARES, True),
        (RIGHT, 100 * RIGHT, True),
        (SHARES, ONE_IN_PERCENT, True),
        (ONE_IN_PERCENT, SHARES, True),
        (SHARES, np.where(RIGHT == 1, SHARES, 100 * SHARES), True),
        (SHARES, TEN, True),
        (RIGHT, FIVE, True),
        (SHARES, FIVE, True),
        (FIVE, 20 * FIVE, True),
        (SHARES, np.append(SHARES[1:], 1.02), False),
        (RIGHT, 0 * RIGHT, False),
        (0 * RIGHT, 0 * RIGHT + 1, False),
        (FIVE, np.maximum(FIVE - 1, 1), False),
        (100 * RIGHT, 50 * RIGHT, False),
        (LOSSES, 1.5 * LOSSES, False),
        (SHARES, SHARES - 0.5, False),
        ([0.7], [70.0], True),  # of one item, as final metrics are
        ([0.7], [5.0], True),
        ([0.7], [0.75], False),
        ([0.9], [1.4], False),
        ([3.31], [3.28], False),
    ],
)
def test_values_of_another_scale(one, other, unlike):
    runs = [("a", 0), ("b", 0)]
    for pair in ((one, other), (other, one)):
        assert bool(unlike_units(study(*pair), runs)) == unlike
    assert not unlike_units(study(one, other, allowed=frozenset({"scale"})), runs)


@pytest.mark.parametrize(
    ("runs", "margin", "rules", "wide"),
    [
        ((RIGHT, 0 * RIGHT), 1.0, {}, True),
        ((np.append(np.ones(9), 0), np.zeros(10)), 0.9, {}, True),  # right in 0.9
        ((np.append(np.ones(9), 0), np.zeros(10)), 0.85, {}, False),
        ((FIVE, FIVE), 4.0, {}, True),
        ((FIVE, FIVE), 0.5, {}, False),
        ((RIGHT, RIGHT), 0.6, {"direction": "min"}, True),
        ((RIGHT, RIGHT), 0.1, {"direction": {"target": 0.5}}, False),
        ((RIGHT, RIGHT), 0.5, {"direction": {"target": 0.5}}, True),
        (([0.84], [0.0]), 0.9, {"protocol": "logged"}, True),
        (([0.84], [0.0]), 0.05, {"protocol": "logged"}, False),
        (([0.001], [0.002]), 0.01, {"protocol": "logged", "direction": "min"}, False),  # a share that may rise a little
        (([3.31], [3.3]), 0.5, {"protocol": "logged", "direction": "min"}, False),
        (([3.31], [3.3]), 1e308, {"protocol": "logged", "direction": "min"}, True),
        (([-3.0], [2.0]), 1e308, {"protocol": "logged"}, True),
        ((RIGHT, RIGHT), None, {}, False),
    ],
)
def test_a_margin_as_wide_as_the_scale(runs, margin, rules, wide):
    assert bool(margin_is_the_scale(study(*runs, margin=margin, **rules), "a")) == wide


def test_logarithms_of_a_logged_metric_are_no_shares():
    """A loss of 2.6 has the logarithm 0.96, from which a rise by 5% is possible."""
    assert not margin_is_the_scale(
        study([0.96], [0.97], margin=0.05, direction="min", protocol=LOGGED, transform="log"), "a"
    )
    assert margin_is_the_scale(
        study([0.96], [0.97], margin=9.0, direction="min", protocol=LOGGED, transform="log"), "a"
    )
