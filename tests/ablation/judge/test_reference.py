"""One new run against the past ones: the interval by hand, the steps of an answer, and what is promised."""

import math

import numpy as np
import pytest
from scipy import stats

from ablation.judge import reference
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
        (PAST[:4], 3.0, "undecided", "there are fewer than 5 past runs; one more is needed"),
        ([], 3.0, "undecided", "5 more are needed"),
        ([1.0] * 6, 1.0 + 1e-8, "passed", "the value is the same as in all 6 past runs"),
        ([1.0] * 6, 0.9, "undecided", "check that the runs use their seeds"),
    ],
)
def test_without_an_estimate_nothing_is_worse(past, new, outcome, said):
    answer = watch("reward", "max", past, [new, new, new])
    assert (answer.outcome, said in answer.why) == (outcome, True)


# Nights on the line 2 + 0.1 t, t from 0 to 14, but for +1, -2 and +1 in the first, middle and last: neither their mean
# nor their slope is changed by these, and the sum of squares about the line is 6.
LINE = [2 + 0.1 * t + {0: 1, 7: -2, 14: 1}.get(t, 0) for t in range(15)]


def test_the_trend_by_hand(monkeypatch):
    monkeypatch.setattr(reference, "_AUTOCORRELATIONS", np.array([0.0]))
    answer = watch("reward", "max", LINE, [2.0], in_order=True)
    error = math.sqrt(6 / 13 * (1 + 1 / 15 + 8**2 / 280))  # night 15 is 8 from the middle; 280: their sum of squares
    assert (answer.trend, answer.autocorrelation) == (pytest.approx(0.1), 0)
    assert answer.low == pytest.approx(3.5 - 1.350171 * error, abs=1e-5)  # t with 13 degrees of freedom, from a table
    assert answer.p == pytest.approx(stats.t.cdf(-1.5 / error, 13))
    answer = watch("reward", "max", LINE, [0.0, 2.0, 2.4], in_order=True)
    error = math.sqrt(6 / 13 * (1 / 2 + 1 / 15 + 8**2 / 280))
    assert answer.low == pytest.approx(3.5 + stats.t.ppf(0.02, 13) * error)
    assert (answer.value, answer.outcome, answer.confirm) == (2.2, "passed", 0.02)
    assert 0.02 < answer.p < 0.05  # at 5% it would be worse


def test_the_autocorrelation_by_the_covariances_of_all_nights():
    """The slow way: the matrix of covariances of the past nights and of two reruns, for each value of the grid."""
    rng = np.random.default_rng(4)
    past = 50 + np.cumsum(rng.normal(0.1, 1, 18))
    nights, found = np.arange(18), []
    line = np.column_stack([np.ones(18), nights])
    for carry in np.arange(10) / 10:
        cov = carry ** abs(nights[:, None] - nights) / (1 - carry**2)
        inverse = np.linalg.inv(cov)
        normal = line.T @ inverse @ line
        fitted = np.linalg.solve(normal, line.T @ inverse @ past)
        rest = past - line @ fitted
        variance = rest @ inverse @ rest / 16
        dets = [np.linalg.slogdet(matrix)[1] for matrix in (cov, normal)]
        ahead = inverse @ (carry ** (18 - nights) / (1 - carry**2))  # weights of the past deviations
        gap = np.array([1, 18]) - line.T @ ahead
        common = 1 / (1 - carry**2) - ahead @ cov @ ahead - 1 + carry + gap @ np.linalg.solve(normal, gap)
        likelihood = np.exp(-(sum(dets) + 16 * np.log(variance)) / 2)
        mean = np.array([1, 18]) @ fitted + ahead @ rest
        found.append((likelihood, mean, variance * (common + (1 - carry) / 2), fitted[1], carry))
    weights, means, variances, trends, carries = np.array(found).T
    weights /= weights.sum()
    mean = weights @ means
    error = np.sqrt(weights @ (variances + (means - mean) ** 2))
    answer = watch("reward", "max", [*past], [mean - 9, mean - 1.5, mean - 2.5], in_order=True)
    assert answer.low == pytest.approx(mean + stats.t.ppf(0.02, 16) * error)
    assert answer.p == pytest.approx(stats.t.cdf(-2 / error, 16))
    assert (answer.trend, answer.autocorrelation) == pytest.approx((weights @ trends, weights @ carries))
    assert 0.4 < answer.autocorrelation < 0.9


def test_few_or_unordered_past_runs_count_as_independent():
    for past, in_order in ((LINE, False), (LINE[:14], True)):
        answer = watch("reward", "max", past, [2.0, 2.0, 2.0], in_order=in_order)
        assert answer == watch("reward", "max", past, [2.0, 2.0, 2.0])
        assert np.isnan([answer.trend, answer.autocorrelation]).all()
        assert answer.confirm == 0.05


def test_nights_without_noise_decide_nothing():
    line = [0.7 + 0.01 * night for night in range(20)]
    for past, said in (
        (line, "the values of all 20 past runs lie on a straight line"),
        ([0.7] * 20, "all 20 past runs have the same value"),
    ):
        answer = watch("reward", "max", past, [0.1, 0.1, 0.1], in_order=True)
        assert (answer.outcome, said in answer.why) == ("undecided", True), answer.why


# False alarms, and falls of 1 and 2 sd that are confirmed, in percent: of an independent simulation.
@pytest.mark.parametrize(("count", "shares"), [(5, (1.5, 14, 46)), (10, (1.0, 15, 57)), (20, (0.7, 15, 62))])
def test_false_alarms_and_detection(count, shares):
    rng, nights = np.random.default_rng(7), 1500
    for fall, share in enumerate(np.array(shares) / 100):
        runs = rng.normal(size=(nights, count + 3))
        runs[:, count:] -= fall
        worse = np.mean([watch("r", "max", [*run[:count]], [*run[count:]]).outcome == "worse" for run in runs])
        assert worse == pytest.approx(share, abs=0.005 + 3 * np.sqrt(share * (1 - share) / nights))
