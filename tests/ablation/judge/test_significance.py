"""P-values, intervals and corrections by hand; alpha spending; what so many seeds leave room for."""

import math

import numpy as np
import pytest
from scipy import special, stats

from ablation.judge.power import power
from ablation.judge.significance import (
    GroupNoise,
    Noise,
    critical_square,
    half_width,
    holm,
    interim_weights,
    max_undetected_share,
    p_value,
    seeds_for,
    sequential_p,
    sign_flip,
    skewed_p,
)


def test_half_width_is_students_normal_or_the_weighted_mean_of_both():
    student, normal = stats.t.ppf(0.975, 2), stats.norm.ppf(0.975)
    assert half_width(Noise(4.0, 2, 0.0), 0.05) == pytest.approx(2 * student)
    assert half_width(Noise(0.0, 2, 4.0), 0.05) == pytest.approx(2 * normal)
    assert half_width(Noise(3.0, 2, 1.0), 0.05) == pytest.approx((3 * student + normal) / 4 * 2)
    assert half_width(Noise(0.0, 2, 0.0), 0.05) == 0.0


def test_the_test_for_skewed_values_is_students_of_halls_transformation():
    """T + g T^2 / (3 sqrt n) + g^2 T^3 / (27 n) + g / (6 sqrt n): T is Student's, g the skewness (0 if symmetric)."""
    rng = np.random.default_rng(2)
    for units in (rng.exponential(1, 30) - 0.7, 1.4 - rng.exponential(1, 8), rng.normal(0.3, 1, 12)):
        count, skewness, t = len(units), stats.skew(units), stats.ttest_1samp(units, 0).statistic
        root = np.sqrt(count)
        changed = t + skewness * t**2 / (3 * root) + skewness**2 * t**3 / (27 * count) + skewness / (6 * root)
        assert skewed_p(units) == pytest.approx(2 * stats.t.sf(abs(changed), count - 1))
        assert skewed_p(units) != pytest.approx(stats.ttest_1samp(units, 0).pvalue, rel=1e-3)
    symmetric = np.array([1.0, 2.0, 3.0, 4.0]) - 1.5
    assert skewed_p(symmetric) == pytest.approx(stats.ttest_1samp(symmetric, 0).pvalue)
    assert (skewed_p(np.zeros(5)), skewed_p(np.ones(5))) == (1.0, 0.0)


@pytest.mark.parametrize("level", [0.05, 0.005, 0.001, 0.0002])
@pytest.mark.parametrize("df", [1, 2, 3, 4.5, 9])
def test_p_value_holds_its_level_for_few_degrees_of_freedom_and_every_ratio(df, level):
    """Integrated over the estimated variance, finer where it is small; the plain mean of both t errs six times."""
    edges = np.concatenate([[0], np.logspace(-9, -2, 1500), np.linspace(0.01, 1, 1500)[1:]])
    ratios, weights = stats.chi2.ppf((edges[1:] + edges[:-1]) / 2, df) / df, np.diff(edges)
    for share in (0.1, 0.5, 0.8, 0.96):
        critical = np.sqrt(critical_square(Noise(share, df, 1 - share), level, ratios))
        assert weights @ (2 * stats.norm.sf(critical)) <= 1.06 * level
        assert power(0.0, Noise(share, df, 1 - share), level) <= 1.1 * level
        by_item = critical_square(Noise(1 - share, math.inf, share, df), level, 1.0, ratios)
        assert np.sqrt(by_item) == pytest.approx(critical)


def test_the_critical_value_by_hand():
    """Up to twice apart the mean of both t, as the interval; five times apart and more that of their squares."""
    t, z = stats.t.isf(0.025, 4), stats.norm.isf(0.025)
    assert critical_square(Noise(3.0, 4, 1.0), 0.05) == pytest.approx(half_width(Noise(3.0, 4, 1.0), 0.05) ** 2)
    assert critical_square(Noise(3.0, 4, 1.0), 0.05) == pytest.approx((3 * t + z) ** 2 / 4)
    t = stats.t.isf(0.025, 1)
    assert critical_square(Noise(3.0, 1, 1.0), 0.05) == pytest.approx(3 * t**2 + z**2)
    t = stats.t.isf(0.025, 2)
    q = 1 + np.log(t / z / 2) / np.log(2.5)
    assert critical_square(Noise(3.0, 2, 1.0), 0.05) == pytest.approx(4 * ((3 * t**q + z**q) / 4) ** (2 / q))
    assert critical_square(Noise(0.0, 2, 1.0), 0.05) == pytest.approx(z**2)


def test_sign_flip_by_hand():
    assert sign_flip([1.0, 2.0, 3.0]) == 0.25
    assert sign_flip([1.0, 2.0, -3.0]) == 1.0
    assert sign_flip([3.0, 2.0, -1.0]) == pytest.approx(4 / 8)  # sums 4, 6 and their mirror images
    assert 0 < sign_flip([1.0] * 20) < 1e-3


def slow_holm(p):
    """Step down, one at a time: the smallest of m times m, the next times m - 1, never less than the one before."""
    left, least, adjusted = dict(enumerate(p)), 0.0, {}
    while left:
        at = min(left, key=left.__getitem__)
        least = max(least, min(1.0, left.pop(at) * (len(left) + 1)))
        adjusted[at] = least
    return [adjusted[index] for index in range(len(p))]


def test_more_runs_divide_the_variance_of_each_group_by_its_own_number():
    noise = Noise.independent([GroupNoise(0.3, 2, 3), GroupNoise(0.8, 3, 4)], 0.01, 50)
    then = noise.after(12, 3)
    assert [(group.variance, group.df, group.runs) for group in then.groups] == [
        (pytest.approx(0.3 * 3 / 12), 11, 12),
        (pytest.approx(0.8 * 4 / 12), 11, 12),
    ]
    assert (then.seed_variance, then.item_variance) == (pytest.approx(0.3 * 3 / 12 + 0.8 * 4 / 12), 0.01)
    paired = Noise(0.3, 2, 0.01, residual=0.03).after(12, 3)
    assert (paired.seed_variance, paired.seed_df, paired.residual) == pytest.approx((0.075, 11, 0.0075))


def test_holm_by_hand_and_against_a_slow_one():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06], rel=1e-12)
    assert holm([0.03, 0.03, 0.6]) == pytest.approx([0.09, 0.09, 0.6], rel=1e-12)
    with_gap = holm([0.02, float("nan"), 0.5])
    assert np.isnan(with_gap[1])
    assert with_gap[[0, 2]] == pytest.approx([0.04, 0.5], rel=1e-12)
    assert holm([]).shape == (0,)
    assert np.isnan(holm([float("nan")] * 2)).all()
    raw = np.random.default_rng(0).uniform(size=30) ** 3
    assert holm(raw) == pytest.approx(slow_holm(raw), rel=1e-12)


def bisected(effect, seed_variance, item_variance, seeds):
    low, high = -80.0, 0.0
    for _ in range(60):
        middle = (low + high) / 2
        alpha = np.exp(middle)
        student, normal = stats.t.isf(alpha / 2, seeds - 1), stats.norm.isf(alpha / 2)
        apart = student / normal if alpha < 1 else 1.0
        power = 1 if apart < 2 else 2 if apart > 5 else 1 + math.log(apart / 2) / math.log(2.5)
        total = seed_variance + item_variance
        mean = (seed_variance * student**power + item_variance * normal**power) / total
        if effect**2 >= total * mean ** (2 / power):
            high = middle
        else:
            low = middle
    return np.exp(high)


@pytest.mark.parametrize("effect", [1e-3, 0.3, -1.0, 7.0])
@pytest.mark.parametrize(("seed_variance", "item_variance"), [(0.01, 0.02), (0.3, 1e-6), (0.3, 0.0), (0.0, 0.1)])
@pytest.mark.parametrize("seeds", [2, 10])
def test_p_values_are_those_of_a_bisection(effect, seed_variance, item_variance, seeds):
    ours = p_value(effect, Noise(seed_variance, seeds - 1, item_variance))
    assert ours == pytest.approx(bisected(effect, seed_variance, item_variance, seeds), rel=1e-12)


def test_interim_analyses_spend_alpha_in_the_pocock_form():
    half = math.log((1 + math.e) / 2)  # ln(1 + (e - 1) t), Lan and DeMets (1983), at t = 1/2
    assert interim_weights([3, 6]) == pytest.approx({3: half, 6: 1 - half})
    assert half == pytest.approx(0.62011, abs=1e-5)
    weights = interim_weights([3, 6, 12])
    assert weights[6] == pytest.approx(half - math.log(1 + (math.e - 1) / 4))
    assert sum(weights.values()) == pytest.approx(1)
    assert (interim_weights([3]), interim_weights([])) == ({3: pytest.approx(1.0)}, {})


def test_sequential_p_by_hand():
    weights = {2: 0.1, 4: 0.9}
    assert sequential_p({2: 0.004, 4: 0.5}, weights) == pytest.approx(0.04)
    assert sequential_p({2: 0.5}, weights) == 1.0
    assert math.isnan(sequential_p({}, weights))
    assert sequential_p({2: float("nan"), 4: 0.09}, weights) == pytest.approx(0.1)


def test_error_over_interim_analyses_of_t_tests_is_near_alpha_and_never_above():
    """Cumulative t tests of the same growing sample, at 5% and at the level of the hardest of twenty comparisons."""
    rng, interims, count = np.random.default_rng(1), [3, 5, 10], 100_000
    values, weights = rng.standard_normal((count, interims[-1])), interim_weights(interims)
    smallest = np.ones(count)
    for interim, weight in weights.items():
        seen = values[:, :interim]
        t = np.abs(seen.mean(axis=1)) / seen.std(axis=1, ddof=1) * math.sqrt(interim)
        smallest = np.minimum(smallest, 2 * special.stdtr(interim - 1, -t) / weight)
    for level, least in ((0.05, 0.85), (0.0025, 0.85)):
        found = np.mean(smallest <= level)
        assert least * level - 3 * math.sqrt(level / count) <= found <= level + 3 * math.sqrt(level / count)


@pytest.mark.parametrize(("seeds", "share"), [(1, 0.95), (2, 0.7764), (3, 0.6316), (5, 0.4507), (10, 0.2589)])
def test_the_share_of_seeds_that_may_behave_otherwise(seeds, share):
    assert max_undetected_share(seeds, 0.05) == pytest.approx(share, abs=1e-4)
    assert (1 - max_undetected_share(seeds, 0.05)) ** seeds == pytest.approx(0.05)


@pytest.mark.parametrize(("rare", "seeds"), [(0.5, 5), (0.25, 11), (0.1, 29), (0.95, 1)])
def test_seeds_that_leave_a_smaller_share(rare, seeds):
    assert seeds_for(rare, 0.05) == seeds
    assert max_undetected_share(seeds, 0.05) <= rare + 1e-12
    assert seeds == 1 or max_undetected_share(seeds - 1, 0.05) > rare
