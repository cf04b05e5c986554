"""Effects, intervals, p-values and power against hand computation and slow independent implementations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tracker.judge.power import minimal_detectable_effect, power, seeds_needed
from tracker.judge.resampling import draw_together, item_counts, shared_variance, unfolding
from tracker.judge.significance import Noise, half_width, holm, p_value, sign_flip
from tracker.judge.statistics import contrast, gain, run_statistics, unseen

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
    assert -1e-4 < numbers.low <= 0 <= numbers.high < 1e-4  # continuous values: next to no room for the unseen


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
    # The smallest step between values of the two arms enters as their resolution, and is another one.
    assert other.high - other.low == pytest.approx(one.high - one.low, abs=1e-6)


def test_same_seed_same_numbers_and_another_seed_others():
    values = crossed()
    assert contrast([values], (1, -1), "max") == contrast([values], (1, -1), "max")
    assert contrast([values], (1, -1), "max").low != contrast([values], (1, -1), "max", seed=1).low


def test_one_seed_knows_item_noise_only():
    numbers = contrast([crossed(seeds=1)], (1, -1), "max")
    assert np.isnan(numbers.p)
    assert np.isnan(numbers.seed_variance)
    assert numbers.item_variance > 0
    assert numbers.high - numbers.low == pytest.approx(2 * 1.959964 * np.sqrt(numbers.item_variance), rel=1e-5)


def test_not_finite_values_are_refused():
    values = crossed()
    values[0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        contrast([values], (1, -1), "max")


def test_item_counts_draw_with_replacement():
    first, second = item_counts((5, 7), 300, 4)
    assert first.shape == (300, 5)
    assert (first.sum(axis=1) == 5).all()
    assert (second.sum(axis=1) == 7).all()
    assert first.var() == pytest.approx(0.8, abs=0.1)  # n p (1 - p) with p = 1/5


def test_shared_variance_is_the_covariance_between_seeds():
    draws = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 0.0]])
    assert shared_variance(draws) == 0.0  # covariance -2/3, cut at 0
    assert shared_variance(np.array([[1.0, 2.0], [3.0, 6.0]])) == pytest.approx(2.0)
    assert shared_variance(np.array([[1.0], [3.0]])) == pytest.approx(1.0)


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


def test_seeds_needed_is_the_first_number_that_suffices():
    needed = seeds_needed(1.0, Noise(0.5, 3, 0.01), 4, 0.05)
    assert power(1.0, Noise(2.0 / needed, needed - 1, 0.01), 0.05) >= 0.8
    assert power(1.0, Noise(2.0 / (needed - 1), needed - 2, 0.01), 0.05) < 0.8
    assert seeds_needed(-1.0, Noise(0.5, 3, 0.01), 4, 0.05) == needed
    assert seeds_needed(0.1, Noise(0.5, 3, 1.0), 4, 0.05) is None  # item noise alone hides it
    assert seeds_needed(1.0, Noise(float("nan"), 0, 0.01), 1, 0.05) is None


def test_items_that_all_agree_leave_room_for_what_was_not_seen():
    """Rule of three by hand: 0 of 29 differ, so below 3.689 / 29 = 0.1272 do; a third in a mean of three."""
    generator = np.random.default_rng(5)
    run = [generator.integers(0, 2, (1, 2, n)).astype(float) for n in (60, 60, 29)]
    same = [np.concatenate([subset, subset]) for subset in run]
    estimate = contrast(same, (1, -1), {"target": 0.5})
    assert estimate.effect == 0
    assert estimate.high == pytest.approx(-np.log(0.025) / 29 / 3) == pytest.approx(0.0424, abs=1e-4)
    assert estimate.low == -estimate.high
    assert estimate.p == 1
    same[0][0, 0, 0] = 1 - same[0][0, 0, 0]  # one item differs: its own variance takes over
    assert unseen(same, 0.05) == 0
