"""Effects, intervals, p-values and power against hand computation and slow independent implementations."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tracker.judge.power import minimal_detectable_effect, power, seeds_needed
from tracker.judge.resampling import (
    cluster_counts,
    correlation_within,
    draw_together,
    item_degrees,
    number_clusters,
    shared_variance,
    unfolding,
)
from tracker.judge.significance import Noise, half_width, holm, p_value, sign_flip
from tracker.judge.statistics import Crossing, contrast, gain, run_statistics

TARGET = {"target": 0.5}


def crossed(seed: int = 0, seeds: int = 4, items: int = 60, seed_sd: float = 0.1, item_sd: float = 0.3) -> np.ndarray:
    """Values [2, seeds, items]: the child's differences have a seed effect, an item effect and a residual."""
    rng = np.random.default_rng(seed)
    parent = rng.normal(0, 1, (1, items)) + rng.normal(0, 0.2, (seeds, items))
    child = parent + rng.normal(0, seed_sd, (seeds, 1)) + rng.normal(0, item_sd, (1, items))
    return np.stack([child + rng.normal(0, 0.2, (seeds, items)), parent])


def test_gain_is_positive_for_improvement():
    means = np.array([0.4, 0.5, 0.7])
    assert gain(means, "max").tolist() == [0.4, 0.5, 0.7]
    assert gain(means, "min").tolist() == [-0.4, -0.5, -0.7]
    assert gain(means, TARGET) == pytest.approx([-0.1, 0.0, -0.2])
    with pytest.raises(ValueError, match="direction"):
        gain(means, "up")


def test_statistic_of_a_run_is_the_mean_of_distances_of_subset_means():
    first = np.array([[[1, 1, 1, 0]]], float)  # mean 0.75, distance 0.25
    second = np.array([[[0, 1]]], float)  # mean 0.5, distance 0: distances of single items would be 0.5
    assert run_statistics([first, second], TARGET) == pytest.approx(np.array([[-0.125]]))


def test_effect_by_hand():
    child = [[1, 1, 0, 0], [1, 0, 1, 0]]  # SS 0.5, 0.5
    parent = [[1, 1, 1, 0], [1, 1, 1, 1]]  # SS 0.75, 1.0: distances 0.25, 0.5
    numbers = contrast([np.array([child, parent], float)], (1, -1), TARGET)
    assert numbers.effect == pytest.approx(0.375)
    assert numbers.per_seed == pytest.approx((0.25, 0.5))
    assert (numbers.seeds, numbers.items) == (2, 4)
    # For max the seed variance is s^2 / S of the per-seed differences -0.25 and -0.5.
    plain = contrast([np.array([child, parent], float)], (1, -1), "max")
    assert plain.effect == pytest.approx(-0.375)
    assert plain.seed_variance == pytest.approx((0.03125 + 0.25**2 / 6) / 2)  # and the rounding to quarters


def test_two_stages_agree_with_a_slow_bootstrap_and_with_the_formula():
    values = crossed()
    numbers = contrast([values], (1, -1), "max", replicates=4000)
    difference = values[0] - values[1]
    seeds, items = difference.shape
    rng = np.random.default_rng(1)
    by_seed = [difference[rng.integers(0, seeds, seeds)].mean() for _ in range(20000)]
    assert numbers.seed_variance == pytest.approx(np.var(by_seed) * seeds / (seeds - 1), rel=0.05)
    by_item = np.array([difference[:, rng.integers(0, items, items)].mean(axis=1) for _ in range(4000)])
    slow = np.cov(by_item.T, ddof=0)[~np.eye(seeds, dtype=bool)].mean() * items / (items - 1)
    assert numbers.item_variance == pytest.approx(slow, rel=0.1)
    formula = np.cov(difference)[~np.eye(seeds, dtype=bool)].mean() / items
    assert numbers.item_variance == pytest.approx(formula, rel=0.1)


def test_variance_counts_the_residual_once():
    """Independent noise of seeds and items only: the total is sigma^2 / (S I), not three times that (Owen, 2007)."""
    rng = np.random.default_rng(2)
    totals = []
    for _ in range(200):
        values = np.stack([rng.normal(0, 1, (5, 50)), np.zeros((5, 50))])
        numbers = contrast([values], (1, -1), "max", replicates=200)
        totals.append(numbers.seed_variance + numbers.item_variance)
    assert np.mean(totals) == pytest.approx(1 / 250, rel=0.25)


def test_equal_runs_have_no_effect_and_no_spread():
    values = crossed()
    same = np.stack([values[0], values[0]])
    numbers = contrast([same], (1, -1), "max")
    assert (numbers.effect, numbers.p) == (0, 1)
    unseen_share = -np.log(0.025) / values.shape[2]
    assert numbers.high == -numbers.low == pytest.approx(unseen_share * np.ptp(values[0]))


def test_swapping_the_arms_mirrors_everything():
    values = (crossed() > 0.2).astype(float)
    one, other = contrast([values], (1, -1), TARGET), contrast([values[::-1]], (1, -1), TARGET)
    assert one.effect == pytest.approx(-other.effect)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
    assert one.p == pytest.approx(other.p)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.floats(-3, 3))
def test_shifting_the_child_shifts_the_interval(seed, seeds, shift):
    values = crossed(seed, seeds)
    moved = np.stack([values[0] + shift, values[1]])
    one, other = contrast([values], (1, -1), "max", replicates=200), contrast([moved], (1, -1), "max", replicates=200)
    assert other.effect - one.effect == pytest.approx(shift, abs=1e-9)
    # The range of the values bounds what went unseen, and is another one.
    seen = [h.noise.total for h in (one, other)]
    assert seen[0] == pytest.approx(seen[1], rel=1e-6)


def test_same_seed_same_numbers_and_another_seed_others():
    values = crossed()
    assert contrast([values], (1, -1), "max") == contrast([values], (1, -1), "max")
    one, other = contrast([values], (1, -1), "max"), contrast([values], (1, -1), "max", seed=1)
    assert (one.item_draws != other.item_draws).any()
    assert np.var(one.item_draws) == pytest.approx(np.var(other.item_draws), rel=0.2)


def test_one_seed_knows_item_noise_only():
    numbers = contrast([crossed(seeds=1)], (1, -1), "max")
    assert np.isnan(numbers.p)
    assert np.isnan(numbers.seed_variance)
    assert numbers.item_variance > 0
    by_item = stats.t.ppf(0.975, 59) * np.sqrt(numbers.item_variance)
    hidden = -np.log(0.025) * numbers.noise.unseen
    assert numbers.high - numbers.low == pytest.approx(2 * np.hypot(by_item, hidden), rel=1e-9)


def test_not_finite_values_are_refused():
    values = crossed()
    values[0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        contrast([values], (1, -1), "max")


def test_clusters_are_drawn_with_replacement():
    counts = cluster_counts(5, 300, 4)
    assert counts.shape == (300, 5)
    assert (counts.sum(axis=1) == 0).all()
    assert counts.min() == -1
    assert counts.var() == pytest.approx(0.8, abs=0.1)  # n p (1 - p) with p = 1/5


def test_shared_variance_is_the_covariance_between_seeds():
    assert shared_variance(np.array([[1.0, -2 / 3], [-2 / 3, 1.0]])) == 0.0  # cut at 0
    assert shared_variance(np.array([[1.0, 2.0], [2.0, 4.0]])) == pytest.approx(2.0)
    assert shared_variance(np.array([[1.5]])) == pytest.approx(1.5)


def slow_cr2(values, clusters):
    """Variance and degrees of freedom of a mean, by the matrices of Bell and McCaffrey (2002)."""
    n = len(values)
    numbers = np.unique(clusters)
    hat, residuals = np.full((n, n), 1 / n), values - values.mean()
    columns, variance = [], 0.0
    for number in numbers:
        inside = clusters == number
        block = np.eye(inside.sum()) - hat[np.ix_(inside, inside)]
        size, vectors = np.linalg.eigh(block)
        adjusted = vectors @ np.diag(size**-0.5) @ vectors.T
        variance += (adjusted @ residuals[inside]).sum() ** 2 / n**2
        columns.append((np.eye(n) - hat)[:, inside] @ adjusted @ np.ones(inside.sum()) / n)
    matrix = np.stack(columns, axis=1)

    def degrees(together):
        working = np.where(clusters[:, None] == clusters, together, 0.0)
        np.fill_diagonal(working, 1.0)
        product = matrix.T @ working @ matrix
        return np.trace(product) ** 2 / np.trace(product @ product)

    return variance, degrees


def test_clusters_variance_and_degrees_are_those_of_bell_and_mccaffrey():
    rng = np.random.default_rng(9)
    clusters = np.repeat(np.arange(7), [1, 2, 3, 5, 8, 4, 4])
    difference = rng.standard_normal(7)[clusters] + rng.standard_normal(27)
    values = np.stack([np.tile(difference, (2, 1)), np.zeros((2, 27))])
    variance, degrees = slow_cr2(difference, clusters)
    found = contrast([values], (1, -1), "max", clusters=[clusters])
    assert found.item_variance == pytest.approx(variance, rel=1e-9)
    numbered = number_clusters([27], [clusters])
    for together in (0.0, 0.3, 1.0):
        assert item_degrees(numbered, together) == pytest.approx(degrees(together), rel=1e-9)
    assert found.noise.item_df == pytest.approx(degrees(correlation_within([difference], numbered)), rel=1e-9)
    assert found.clusters == 7


def test_degrees_of_freedom_of_items_and_of_equal_clusters():
    assert item_degrees(number_clusters([40]), 0.0) == pytest.approx(39)
    assert item_degrees(number_clusters([40], [np.arange(40) // 4]), 0.6) == pytest.approx(9)
    # Two subsets with items of their own: Satterthwaite's for a sum of two means.
    both = (1 / 10 + 1 / 30) ** 2 / (1 / 10**2 / 9 + 1 / 30**2 / 29)
    assert item_degrees(number_clusters([10, 30]), 0.0) == pytest.approx(both)
    # The same clusters in both subsets are no more clusters.
    assert item_degrees(number_clusters([12, 12], [np.arange(12) // 2] * 2), 1.0) == pytest.approx(5)


def test_correlation_within_clusters():
    rng = np.random.default_rng(10)
    clusters = np.arange(4000) // 4
    numbered = number_clusters([4000], [clusters])
    shared = rng.standard_normal(1000)[clusters]
    own = rng.standard_normal(4000)
    assert correlation_within([shared + own], numbered) == pytest.approx(0.5, abs=0.05)
    assert correlation_within([own], numbered) == pytest.approx(0, abs=0.05)
    assert correlation_within([np.zeros(4000)], numbered) == 0


def test_clusters_of_items_that_move_together_widen_the_interval():
    values = crossed(items=60)
    clusters = np.arange(60) // 6
    together = values.copy()
    together[0] = values[1] + (values[0] - values[1]).mean(axis=1, keepdims=True)
    together[0] += np.random.default_rng(1).normal(0, 0.3, 10)[clusters]
    one, other = (contrast([together], (1, -1), "max", clusters=c) for c in (None, [clusters]))
    assert other.item_variance > 3 * one.item_variance
    assert np.var(other.item_draws) == pytest.approx(other.item_variance, rel=0.1)
    assert other.noise.item_df == pytest.approx(9)
    assert not other.items_only


@pytest.mark.parametrize("clusters", [np.arange(60) % 4, np.zeros(60, int)])
def test_with_fewer_than_five_clusters_an_effect_is_one_on_these_items(clusters):
    numbers = contrast([crossed(items=60)], (1, -1), "max", clusters=[clusters])
    assert numbers.items_only
    assert (numbers.item_variance, numbers.noise.unseen) == (0, 0)
    assert np.isnan(numbers.item_p)
    assert not numbers.item_draws.any()


def test_one_seed_and_few_clusters_know_no_noise():
    numbers = contrast([crossed(seeds=1, items=60)], (1, -1), "max", clusters=[np.arange(60) % 4])
    assert np.isnan([numbers.low, numbers.high, numbers.p, numbers.item_p]).all()


def test_clusters_must_be_those_of_the_items():
    with pytest.raises(ValueError, match="clusters"):
        contrast([crossed(items=60)], (1, -1), "max", clusters=[np.zeros(59, int)])


def test_half_width_is_students_normal_or_the_weighted_mean_of_both():
    student, normal = stats.t.ppf(0.975, 2), stats.norm.ppf(0.975)
    assert half_width(Noise(4.0, 2, 0.0), 0.05) == pytest.approx(2 * student)
    assert half_width(Noise(0.0, 2, 4.0), 0.05) == pytest.approx(2 * normal)
    assert half_width(Noise(3.0, 2, 1.0), 0.05) == pytest.approx((3 * student + normal) / 4 * 2)
    assert half_width(Noise(0.0, 2, 0.0), 0.05) == 0.0


def test_p_value_is_the_t_test_or_the_z_test_at_the_ends():
    assert p_value(1.5, Noise(0.25, 3, 0.0)) == pytest.approx(2 * stats.t.sf(3, 3), rel=1e-6)
    assert p_value(1.5, Noise(0.0, 3, 0.25)) == pytest.approx(2 * stats.norm.sf(3), rel=1e-6)
    assert p_value(0.0, Noise(1.0, 2, 1.0)) == pytest.approx(1.0)
    between = p_value(1.5, Noise(0.125, 3, 0.125))
    assert 2 * stats.norm.sf(3) < between < 2 * stats.t.sf(3, 3)
    assert np.isnan(p_value(1.0, Noise(1.0, 0, 1.0)))


@pytest.mark.parametrize("level", [0.05, 0.005])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.97, 1.0])
def test_p_value_is_at_most_its_level_for_every_ratio(level, share):
    """Exact in the effect, integrated over the estimated seed variance with two seeds, where cruder rules fail."""
    quantiles = stats.chi2.ppf((np.arange(20000) + 0.5) / 20000, 1)
    critical = share * quantiles * stats.t.isf(level / 2, 1) ** 2 + (1 - share) * stats.norm.isf(level / 2) ** 2
    assert np.mean(2 * stats.norm.sf(np.sqrt(critical))) <= level * 1.01
    assert power(0.0, Noise(share, 1, 1 - share), level) <= level * 1.1


def test_sign_flip_by_hand():
    assert sign_flip([1.0, 2.0, 3.0]) == (0.25, 0.25)
    assert sign_flip([1.0, 2.0, -3.0])[0] == 1.0
    assert sign_flip([3.0, 2.0, -1.0])[0] == pytest.approx(4 / 8)  # sums 4, 6 and their mirror images
    p, smallest = sign_flip([1.0] * 20)
    assert p < 1e-3
    assert smallest > 0
    with pytest.raises(ValueError, match="no differences"):
        sign_flip([])


def slow_holm(p):
    """Step down, one at a time: the smallest of m times m, the next times m - 1, never less than the one before."""
    left, least, adjusted = dict(enumerate(p)), 0.0, {}
    while left:
        at = min(left, key=left.__getitem__)
        least = max(least, min(1.0, left.pop(at) * (len(left) + 1)))
        adjusted[at] = least
    return [adjusted[index] for index in range(len(p))]


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


# Roots to 1e-12: closed forms, and the bisection that the library's root finding replaced.


def bisected(effect, seed_variance, item_variance, seeds):
    low, high = -80.0, 0.0
    for _ in range(60):
        middle = (low + high) / 2
        alpha = np.exp(middle)
        student, normal = stats.t.ppf(alpha / 2, seeds - 1), stats.norm.ppf(alpha / 2)
        if effect**2 >= seed_variance * student**2 + item_variance * normal**2:
            high = middle
        else:
            low = middle
    return np.exp(high)


@pytest.mark.parametrize(
    ("t", "seeds", "expected"),
    [
        (1.0, 2, 0.5),  # two seeds: a Cauchy variable is beyond 1 half of the time
        (3.0**0.5, 2, 1 / 3),
        (1.0, 3, 1 - (1 / 3) ** 0.5),  # three: P(|t| > x) = 1 - x / sqrt(2 + x^2)
        (5.0, 3, 1 - 5 / 27**0.5),
    ],
)
def test_p_values_in_closed_form(t, seeds, expected):
    assert p_value(t * 0.3, Noise(0.09, seeds - 1, 0.0)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("effect", [1e-3, 0.01, 0.3, 1.0, 7.0, -1.0])
@pytest.mark.parametrize(("seed_variance", "item_variance"), [(0.01, 0.02), (0.3, 1e-6), (1e-6, 0.3), (0.0, 0.1)])
@pytest.mark.parametrize("seeds", [2, 5, 10])
def test_p_values_are_those_of_a_bisection(effect, seed_variance, item_variance, seeds):
    ours = p_value(effect, Noise(seed_variance, seeds - 1, item_variance))
    assert ours == pytest.approx(bisected(effect, seed_variance, item_variance, seeds), rel=1e-12)


def test_a_p_value_has_a_least():
    assert (
        p_value(1e9, Noise(0.0, 4, 1e-9)) == p_value(1.0, Noise(0.0, 4, 1e-30)) == pytest.approx(np.exp(-80), rel=1e-12)
    )


@pytest.mark.parametrize(("seed_variance", "item_variance", "seeds"), [(0.5, 0.5, 4), (1e-4, 2e-5, 2), (0.0, 1.0, 3)])
def test_the_detectable_effect_is_a_root_to_1e_12(seed_variance, item_variance, seeds):
    noise = Noise(seed_variance, seeds - 1, item_variance)
    effect = minimal_detectable_effect(noise, 0.01)
    assert power(effect, noise, 0.01) == pytest.approx(0.8, rel=1e-12)
    low, high = 0.0, 1000 * effect
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if power(middle, noise, 0.01) < 0.8 else (low, middle)
    assert effect == pytest.approx(high, rel=1e-12)


def test_power_integrates_over_the_estimated_variance():
    """Item by item with scipy.stats, whose functions take longer to import."""
    quantiles = stats.chi2.ppf((np.arange(400) + 0.5) / 400, 4) / 4
    critical = np.sqrt(0.3 * quantiles * stats.t.isf(0.025, 4) ** 2 + 0.1 * stats.norm.isf(0.025) ** 2)
    slow = np.mean([stats.norm.sf((c - 0.7) / 0.4**0.5) + stats.norm.cdf((-c - 0.7) / 0.4**0.5) for c in critical])
    assert power(0.7, Noise(0.3, 4, 0.1), 0.05) == pytest.approx(slow, rel=1e-12)


def test_unfolding_tells_residual_noise_from_spread():
    rng = np.random.default_rng(3)
    items, seeds = 4000, 200
    noisy = (rng.random((1, seeds, items)) < 0.5).astype(float)
    assert unfolding([noisy], noisy.mean(axis=2)[..., None])[0, 0] < 0.4
    spread = noisy + rng.normal(0, 0.2, (1, seeds, 1))
    assert unfolding([spread], spread.mean(axis=2)[..., None])[0, 0] > 0.95
    same = np.repeat((rng.random((1, 1, items)) < 0.5).astype(float), 3, axis=1)
    together = draw_together(same.mean(axis=2)[..., None], unfolding([same], same.mean(axis=2)[..., None]))
    assert np.ptp(together) == 0


def test_folding_bias_is_taken_out_of_the_centre():
    """The child's SS is 0.5, its noise is new in every seed: its measured distance is not 0; the parent's is fair."""
    rng, plain, centre = np.random.default_rng(4), [], []
    for _ in range(60):
        child, parent = (rng.random((10, 100)) < 0.5).astype(float), (rng.random((10, 100)) < 0.8).astype(float)
        numbers = contrast([np.stack([child, parent])], (1, -1), TARGET, replicates=50)
        plain.append(numbers.effect)
        centre.append(numbers.centre)
        assert numbers.low <= numbers.effect <= numbers.high
    assert np.mean(plain) == pytest.approx(0.3 - 0.04, abs=0.01)  # E|N(0, 0.05)| = 0.04
    assert abs(np.mean(centre) - 0.3) < 0.02


def test_seeds_on_both_sides_of_the_target_vary_by_the_larger_reading():
    """Means 0.4, 0.6, 0.4, 0.8 against a constant 0.8: folded, distances 0.1, 0.1, 0.1, 0.3; unfolded, the means."""
    order = np.random.default_rng(6).permutation(400)
    child = np.stack([order < 400 * rate for rate in (0.4, 0.6, 0.4, 0.8)])
    parent = np.stack([order < 320] * 4)
    numbers = contrast([np.stack([child, parent]).astype(float)], (1, -1), TARGET)
    assert numbers.per_seed == pytest.approx((0.2, 0.2, 0.2, 0.0))
    expected = np.var([0.4, 0.6, 0.4, 0.8], ddof=1) + 1 / 400**2 / 6
    assert numbers.seed_variance == pytest.approx(expected / 4)


def test_a_far_parent_does_not_add_its_distance_to_the_seed_variance():
    """The child's seeds lie on both sides of the target within 0.02; the parent is 0.3 away."""
    order = np.random.default_rng(7).permutation(400)
    child = np.stack([order < 400 * rate for rate in (0.48, 0.52, 0.49, 0.51)])
    parent = np.stack([order < 320] * 4)
    numbers = contrast([np.stack([child, parent]).astype(float)], (1, -1), TARGET)
    assert numbers.seed_variance < 0.02**2


def test_two_seeds_with_the_same_count_do_not_mean_that_seeds_agree():
    rng = np.random.default_rng(8)
    child = np.stack([rng.permutation(200) < 120 for _ in range(2)])
    parent = np.stack([rng.permutation(200) < 110 for _ in range(2)])
    numbers = contrast([np.stack([child, parent]).astype(float)], (1, -1), "max")
    assert numbers.per_seed == pytest.approx((0.05, 0.05))
    assert numbers.seed_variance == pytest.approx(1 / 200**2 / 6 / 2)
    assert numbers.p > 0.01


def test_crossing_the_target_is_no_evidence():
    """Both are 0.02 from the target, on opposite sides; the shared items happened to come out high for both."""
    rng = np.random.default_rng(5)
    ease = rng.standard_normal(400)
    latent = ease + 0.1 * rng.standard_normal((2, 6, 400))
    centred = latent - np.quantile(ease, 0.5)
    values = np.stack([centred[0] < 0.03, centred[1] < 0.13]).astype(float)
    numbers = contrast([values], (1, -1), TARGET)
    draws_cross = contrast([values], (1, -1), "max")
    assert draws_cross.p < 0.05  # SS itself differs
    assert numbers.p > draws_cross.p
    assert numbers.low < 0 < numbers.high


def test_power_at_the_minimal_detectable_effect_is_80_percent():
    effect = minimal_detectable_effect(Noise(0.5, 3, 0.5), 0.01)
    assert power(effect, Noise(0.5, 3, 0.5), 0.01) == pytest.approx(0.8, abs=1e-3)
    # Items only: the normal formula (z + z) * SE.
    assert minimal_detectable_effect(Noise(0.0, 4, 4.0), 0.05) == pytest.approx(2 * (1.959964 + 0.841621), rel=1e-3)
    # Seeds only: Student's noncentral t.
    alone = minimal_detectable_effect(Noise(1.0, 4, 0.0), 0.05)
    assert stats.nct.sf(stats.t.ppf(0.975, 4), 4, alone) == pytest.approx(0.8, abs=0.01)


def test_one_seed_and_too_few_clusters_know_no_detectable_effect():
    values = [np.random.default_rng(0).integers(0, 2, (2, 1, 30)).astype(float)]
    numbers = contrast(values, (1, -1), "max", clusters=[np.arange(30) % 3])
    assert np.isnan([numbers.low, numbers.high, minimal_detectable_effect(numbers.noise, 0.05)]).all()


def test_a_moderated_variance_asks_for_the_seeds_that_it_is_moderated_from():
    """An effect of fifty standard errors: two seeds would do, could their variance be moderated."""
    noise = Noise(0.0004, 4 + 2.5, 0.0)
    assert seeds_needed(1.0, noise, 5, 0.05) == 3
    assert seeds_needed(1.0, Noise(0.0004, 4, 0.0), 5, 0.05) == 2


def test_seeds_needed_is_the_first_number_that_suffices():
    needed = seeds_needed(1.0, Noise(0.5, 3, 0.01), 4, 0.05)
    assert power(1.0, Noise(2.0 / needed, needed - 1, 0.01), 0.05) >= 0.8
    assert power(1.0, Noise(2.0 / (needed - 1), needed - 2, 0.01), 0.05) < 0.8
    assert seeds_needed(-1.0, Noise(0.5, 3, 0.01), 4, 0.05) == needed
    assert seeds_needed(0.1, Noise(0.5, 3, 1.0), 4, 0.05) is None  # item noise alone hides it
    assert seeds_needed(1.0, Noise(float("nan"), 0, 0.01), 1, 0.05) is None


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


def test_a_single_arm_has_no_items_that_went_unseen():
    [values] = agreeing(50)
    numbers = contrast([values[:1]], (1,), "max")
    assert numbers.noise.unseen == 0
    assert numbers.high - numbers.effect < 0.25


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


def test_no_word_contradicts_the_effect_that_is_shown():
    """Noise around the target reads as distance: freed of it the child is better, as the table shows it is worse."""
    rng, seeds, items = np.random.default_rng(4), 12, 400
    child = (rng.random((seeds, items)) < 0.5).astype(float)
    parent = np.tile((np.arange(items) < 0.515 * items).astype(float), (seeds, 1))
    found = contrast([np.stack([child, parent])], (1, -1), {"target": 0.5}, replicates=300)
    assert found.effect < 0 < found.centre
    assert found.p == 1.0
    assert found.low <= min(0.0, found.effect)
    assert found.high >= max(0.0, found.centre)
    sure = replace(found, noise=Noise(1e-12, 11, 1e-12), crossing=Crossing(1.0, 0.0, np.full(1, found.centre)))
    assert sure.p_value(sure.noise) == 1.0
    assert replace(sure, effect=sure.centre).p_value(sure.noise) < 1e-6


@pytest.mark.parametrize(
    ("weights", "squares"), [((1,), 1), ((1, -1), 2), ((1, -1, -1, 1), 4), ((1, -1, -1, -1, 2), 8)]
)
def test_what_rounding_hides_grows_with_the_squared_weights(weights, squares):
    """Counts of whole items: each arm's mean is known to within step / n, a variance of its square / 12 (Sheppard)."""
    rng = np.random.default_rng(0)
    means = rng.permuted(np.tile(np.arange(20) < 10, (len(weights), 5, 1)), axis=2).astype(float)
    assert (means.mean(axis=2) == 0.5).all()  # the very same count in every run: no spread at all
    found = contrast([means], weights, "max", replicates=50)
    assert found.seed_variance == pytest.approx(squares * (1 / 20) ** 2 / 12 / 5)
