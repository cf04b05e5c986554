"""Alpha spending against the published function and by simulation of the worst case."""

import math

import numpy as np
import pytest
from scipy import special

from ablation.judge.significance import look_weights, sequential_p, spending


def test_spending_is_the_pocock_form():
    # ln(1 + (e - 1) t), Lan and DeMets (1983): ln(1.859) at a half.
    assert spending(0.5) == pytest.approx(math.log((1 + math.e) / 2)) == pytest.approx(0.62011, abs=1e-5)
    assert spending(1.0) == spending(2.0) == pytest.approx(1.0)
    assert spending(0.0) == 0.0


def test_weights_sum_to_one():
    weights = look_weights([3, 6, 12])
    assert sum(weights.values()) == pytest.approx(1)
    assert look_weights([3]) == {3: pytest.approx(1.0)}
    assert weights[6] == pytest.approx(spending(0.5) - spending(0.25))


@pytest.mark.parametrize("looks", [[], [1, 2], [4, 2], [2, 2]])
def test_looks_must_increase_from_two(looks):
    with pytest.raises(ValueError, match="looks"):
        look_weights(looks)


def test_sequential_p_by_hand():
    weights = {2: 0.1, 4: 0.9}
    assert sequential_p({2: 0.004, 4: 0.5}, weights) == pytest.approx(0.04)
    assert sequential_p({2: 0.5}, weights) == 1.0
    assert math.isnan(sequential_p({}, weights))
    assert sequential_p({2: float("nan"), 4: 0.09}, weights) == pytest.approx(0.1)


def test_error_over_looks_of_t_tests_is_near_alpha_and_never_above():
    """Cumulative t tests of the same growing sample, at 5% and at the level of the hardest of twenty edges."""
    rng, looks, count = np.random.default_rng(1), [3, 5, 10], 100_000
    values, weights = rng.standard_normal((count, looks[-1])), look_weights(looks)
    smallest = np.ones(count)
    for look, weight in weights.items():
        seen = values[:, :look]
        t = np.abs(seen.mean(axis=1)) / seen.std(axis=1, ddof=1) * math.sqrt(look)
        smallest = np.minimum(smallest, 2 * special.stdtr(look - 1, -t) / weight)
    for level, least in ((0.05, 0.85), (0.0025, 0.85)):
        found = np.mean(smallest <= level)
        assert least * level - 3 * math.sqrt(level / count) <= found <= level + 3 * math.sqrt(level / count)
