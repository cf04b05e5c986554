"""Alpha spending against the published boundary values and by simulation of the worst case."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from tracker.judge.sequential import look_weights, sequential_p, spending


def test_spending_is_the_obrien_fleming_form():
    # 2 - 2 Phi(1.959964 / sqrt(t)), Lan and DeMets (1983); tabulated for alpha 0.05 at halves: 0.00557.
    assert spending(0.5, 0.05) == pytest.approx(0.00557, abs=1e-5)
    assert spending(1.0, 0.05) == pytest.approx(0.05)
    assert spending(2.0, 0.05) == pytest.approx(0.05)
    assert spending(0.0, 0.05) == 0.0


def test_weights_sum_to_one_and_grow():
    weights = look_weights([2, 4, 8], 0.05)
    assert sum(weights.values()) == pytest.approx(1)
    assert weights[2] < weights[4] < weights[8]
    assert look_weights([3], 0.05) == {3: pytest.approx(1.0)}
    assert weights[4] * 0.05 == pytest.approx(spending(0.5, 0.05) - spending(0.25, 0.05))


@pytest.mark.parametrize("looks", [[], [1, 2], [4, 2], [2, 2]])
def test_looks_must_increase_from_two(looks):
    with pytest.raises(ValueError, match="looks"):
        look_weights(looks, 0.05)


def test_sequential_p_by_hand():
    weights = {2: 0.1, 4: 0.9}
    assert sequential_p({2: 0.004, 4: 0.5}, weights) == pytest.approx(0.04)
    assert sequential_p({2: 0.5}, weights) == 1.0
    assert math.isnan(sequential_p({}, weights))
    assert sequential_p({2: float("nan"), 4: 0.09}, weights) == pytest.approx(0.1)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 1.0])
def test_error_over_all_looks_is_at_most_alpha(correlation):
    rng = np.random.default_rng(0)
    looks, count = [2, 4, 6, 8], 40000
    shared, own = rng.standard_normal((count, 1)), rng.standard_normal((count, len(looks)))
    p = 2 * norm.sf(np.abs(np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own))
    weights = look_weights(looks, 0.05)
    smallest = (p / np.array([weights[look] for look in looks])).min(axis=1)
    assert np.mean(smallest <= 0.05) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / count)
    assert np.mean((p <= 0.05).any(axis=1)) > 0.05 or correlation == 1  # without it, peeking inflates
