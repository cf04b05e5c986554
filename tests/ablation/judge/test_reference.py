"""One new run against the past ones: the interval by hand, the steps of an answer, and what is promised."""

import math

import numpy as np
import pytest
from scipy import stats

from ablation.judge.reference import watch

PAST = [1.0, 2.0, 3.0, 4.0, 5.0]  # mean 3, sd sqrt(2.5)


def test_the_interval_by_hand():
    answer = watch("reward", "max", PAST, [2.5])
    width = 1.533206 * math.sqrt(2.5) * math.sqrt(1 + 1 / 5)  # t with 4 degrees of freedom, 90%, from a table
    assert answer.low == pytest.approx(3 - width, abs=1e-5)
    assert (answer.high, answer.outcome) == (math.inf, "passed")
    assert answer.p == pytest.approx(stats.t.cdf(-0.5 / math.sqrt(2.5 * 1.2), 4))


@pytest.mark.parametrize(
    ("direction", "new", "outcome"),
    [
        ("max", [-1.0], "undecided"),  # an alarm asks for reruns
        ("max", [-1.0, 3.0], "undecided"),
        ("max", [-1.0, 3.0, 3.0], "passed"),  # the reruns alone decide
        ("max", [-1.0, -1.0, -1.0], "worse"),
        ("max", [9.0, -9.0, -9.0], "passed"),  # no alarm, whatever came later
        ("min", [-1.0], "passed"),
        ("min", [7.0, 7.0, 7.0], "worse"),
        ("both", [7.0, 7.0, 7.0], "worse"),
        ("both", [-1.0, -1.0, -1.0], "worse"),
    ],
)
def test_steps_of_an_answer(direction, new, outcome):
    assert watch("reward", direction, PAST, new).outcome == outcome


@pytest.mark.parametrize(
    ("past", "new", "outcome", "said"),
    [
        (PAST[:4], 3.0, "undecided", "fewer than 5 past runs: one more is needed"),
        ([], 3.0, "undecided", "5 more are needed"),
        ([1.0] * 6, 1.0 + 1e-8, "passed", "the same value as in all 6 past runs"),
        ([1.0] * 6, 0.9, "undecided", "check that they use their seeds"),
    ],
)
def test_without_an_estimate_nothing_is_worse(past, new, outcome, said):
    answer = watch("reward", "max", past, [new, new, new])
    assert (answer.outcome, said in answer.why) == (outcome, True)


# False alarms, and falls of 1 and 2 sd that are confirmed, in percent: of an independent simulation.
@pytest.mark.parametrize(("count", "shares"), [(5, (1.5, 14, 46)), (10, (1.0, 15, 57)), (20, (0.7, 15, 62))])
def test_false_alarms_and_detection(count, shares):
    rng, nights = np.random.default_rng(7), 1500
    for fall, share in enumerate(np.array(shares) / 100):
        runs = rng.normal(size=(nights, count + 3))
        runs[:, count:] -= fall
        worse = np.mean([watch("r", "max", [*run[:count]], [*run[count:]]).outcome == "worse" for run in runs])
        assert worse == pytest.approx(share, abs=0.005 + 3 * np.sqrt(share * (1 - share) / nights))
