"""Effects and intervals against hand computation and slow independent implementations."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from ablation.judge.design import Design
from ablation.judge.resampling import number_clusters
from ablation.judge.significance import Noise
from ablation.judge.statistics import Group, contrast, contrast_groups

TARGET = {"target": 0.5}


def crossed(seed: int = 0, seeds: int = 4, items: int = 60, seed_sd: float = 0.1, item_sd: float = 0.3) -> np.ndarray:
    """Values [2, seeds, items]: the child's differences have a seed effect, an item effect and a residual."""
    rng = np.random.default_rng(seed)
    parent = rng.normal(0, 1, (1, items)) + rng.normal(0, 0.2, (seeds, items))
    child = parent + rng.normal(0, seed_sd, (seeds, 1)) + rng.normal(0, item_sd, (1, items))
    return np.stack([child + rng.normal(0, 0.2, (seeds, items)), parent])


def test_statistic_of_a_run_is_the_mean_of_distances_of_subset_means():
    first = np.array([[[1, 1, 1, 0]]], float)  # mean 0.75, distance 0.25
    second = np.array([[[0, 1]]], float)  # mean 0.5, distance 0: distances of single items would be 0.5
    assert contrast([first, second], (1,), TARGET).effect == pytest.approx(-0.125)


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
    assert plain.noise.seed_variance == pytest.approx((0.03125 + 0.25**2 / 6) / 2)  # and the rounding to quarters


def test_two_stages_agree_with_a_slow_bootstrap_and_with_the_formula():
    values = crossed()
    numbers = contrast([values], (1, -1), "max", replicates=4000)
    difference = values[0] - values[1]
    seeds, items = difference.shape
    rng = np.random.default_rng(1)
    by_seed = [difference[rng.integers(0, seeds, seeds)].mean() for _ in range(20000)]
    assert numbers.noise.seed_variance == pytest.approx(np.var(by_seed) * seeds / (seeds - 1), rel=0.05)
    by_item = np.array([difference[:, rng.integers(0, items, items)].mean(axis=1) for _ in range(4000)])
    slow = np.cov(by_item.T, ddof=0)[~np.eye(seeds, dtype=bool)].mean() * items / (items - 1)
    assert numbers.noise.item_variance == pytest.approx(slow, rel=0.1)
    formula = np.cov(difference)[~np.eye(seeds, dtype=bool)].mean() / items
    assert numbers.noise.item_variance == pytest.approx(formula, rel=0.1)


def test_one_seed_knows_item_noise_only():
    numbers = contrast([crossed(seeds=1)], (1, -1), "max")
    assert np.isnan(numbers.p)
    assert np.isnan(numbers.noise.seed_variance)
    assert numbers.noise.item_variance > 0
    by_item = stats.t.ppf(0.975, 59) * np.sqrt(numbers.noise.item_variance)
    hidden = -np.log(0.025) * numbers.noise.unseen
    assert numbers.high - numbers.low == pytest.approx(2 * np.hypot(by_item, hidden), rel=1e-9)


def test_not_finite_values_are_refused():
    values = crossed()
    values[0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="must be finite"):
        contrast([values], (1, -1), "max")


def test_clusters_of_items_that_move_together_widen_the_interval():
    values = crossed(items=60)
    clusters = np.arange(60) // 6
    together = values.copy()
    together[0] = values[1] + (values[0] - values[1]).mean(axis=1, keepdims=True)
    together[0] += np.random.default_rng(1).normal(0, 0.3, 10)[clusters]
    one, other = (contrast([together], (1, -1), "max", clusters=c) for c in (None, [clusters]))
    assert other.noise.item_variance > 3 * one.noise.item_variance
    assert np.var(other.item_draws) == pytest.approx(other.noise.item_variance, rel=0.1)
    assert other.noise.item_df == pytest.approx(9)
    assert not other.items_only


@pytest.mark.parametrize("count", [2, 3, 5, 15])
@pytest.mark.parametrize("right_or_wrong", [False, True])
def test_few_clusters_meet_students_t_of_their_means(count, right_or_wrong):
    """Where seeds add nothing, p is that of a t test over clusters, whatever their number; none needs an exact flip."""
    rng, clusters = np.random.default_rng(count), np.repeat(np.arange(count), 12)
    difference = np.where(rng.random(12 * count) < 0.5 + rng.normal(0, 0.15, count)[clusters], 1.0, 0.0)
    if not right_or_wrong:
        difference += rng.normal(0, 0.5, 12 * count)
    child = np.tile(difference, (4, 1))
    child[1:, 1:3] += [[1e-7, -1e-7]] if not right_or_wrong else 0.0  # else they would be one run
    numbers = contrast([np.stack([child, 0 * child])], (1, -1), "max", clusters=[clusters])
    by_hand = stats.ttest_1samp(difference.reshape(count, 12).mean(axis=1), 0).pvalue
    assert (numbers.noise.item_df, numbers.exact_p) == (pytest.approx(count - 1), 0)
    alone = replace(numbers.noise, seed_variance=0.0, unseen=0.0)
    assert replace(numbers, noise=alone).p == pytest.approx(by_hand, rel=1e-6)


def test_one_cluster_shows_no_noise_so_an_effect_is_one_on_these_items():
    numbers = contrast([crossed(items=60)], (1, -1), "max", clusters=[np.zeros(60, int)])
    assert numbers.items_only
    assert (numbers.noise.item_variance, numbers.noise.unseen) == (0, 0)
    assert np.isnan(numbers.item_p)
    assert not numbers.item_draws.any()


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


def to_target(*rates):
    """A child that gets these rates of 400 items right in its four seeds, against a constant 0.8; the target is 0.5."""
    order = np.random.default_rng(6).permutation(400)
    child, parent = (np.stack([order < 400 * rate for rate in of]) for of in (rates, [0.8] * 4))
    return contrast([np.stack([child, parent]).astype(float)], (1, -1), TARGET)


def test_seeds_on_both_sides_of_the_target_vary_by_the_larger_reading():
    """Folded, distances of 0.1, 0.1, 0.1, 0.3; unfolded, the means."""
    numbers = to_target(0.4, 0.6, 0.4, 0.8)
    assert numbers.per_seed == pytest.approx((0.2, 0.2, 0.2, 0.0))
    expected = np.var([0.4, 0.6, 0.4, 0.8], ddof=1) + 1 / 400**2 / 6
    assert numbers.noise.seed_variance == pytest.approx(expected / 4)


def test_a_far_parent_does_not_add_its_distance_to_the_seed_variance():
    """The child's seeds lie on both sides of the target within 0.02; the parent is 0.3 away."""
    assert to_target(0.48, 0.52, 0.49, 0.51).noise.seed_variance < 0.02**2


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


def test_no_verdict_contradicts_the_effect_that_is_shown():
    """Noise around the target reads as distance: freed of it the child is better, as the table shows it is worse."""
    rng, seeds, items = np.random.default_rng(4), 12, 400
    child = (rng.random((seeds, items)) < 0.5).astype(float)
    parent = np.tile((np.arange(items) < 0.515 * items).astype(float), (seeds, 1))
    found = contrast([np.stack([child, parent])], (1, -1), {"target": 0.5}, replicates=300)
    assert found.effect < 0 < found.centre
    assert found.p == 1.0
    assert found.low <= min(0.0, found.effect)
    assert found.high >= max(0.0, found.centre)
    sure = replace(found, noise=Noise(1e-12, 11, 1e-12), crossing=None)
    assert sure.p == 1.0
    assert replace(sure, effect=sure.centre).p < 1e-6


@pytest.mark.parametrize("effect", [0.1, -0.1])
def test_the_interval_of_a_found_effect_ends_at_0_where_what_went_unseen_would_carry_it_beyond(effect):
    """Of counts the p does not ask for what went unseen, and the interval's width does."""
    found = contrast([crossed()], (1, -1), "max", replicates=50)
    noise = Noise(1e-4, 3, 1e-4, unseen=0.1)
    counted = replace(found, effect=effect, centre=effect, noise=noise, counts=True, units=(effect,) * 40, skewed_p=0.0)
    assert counted.p < 0.05
    assert 0.0 in counted.interval(0.05)
    seen = replace(counted, noise=replace(noise, unseen=0.0))
    assert seen.interval(0.05)[effect < 0] == pytest.approx(effect, abs=0.05)


@pytest.mark.parametrize(
    ("weights", "squares"), [((1,), 1), ((1, -1), 2), ((1, -1, -1, 1), 4), ((1, -1, -1, -1, 2), 8)]
)
def test_what_rounding_hides_grows_with_the_squared_weights(weights, squares):
    """Counts of whole items: a group's mean is known to within step / n, a variance of its square / 12 (Sheppard)."""
    rng = np.random.default_rng(0)
    means = rng.permuted(np.tile(np.arange(20) < 10, (len(weights), 5, 1)), axis=2).astype(float)
    assert (means.mean(axis=2) == 0.5).all()  # the very same count in every run: no spread at all
    found = contrast([means], weights, "max", replicates=50)
    assert found.noise.seed_variance == pytest.approx(squares * (1 / 20) ** 2 / 12 / 5)


def test_runs_of_one_value_get_the_paired_t_test():
    """The smallest gap between runs is not a rounding step: it made [0.0006, 0.0394], p = .047, of these."""
    parent, child = [0.70, 0.75, 0.80], [0.721, 0.770, 0.819]
    found = contrast([np.array([child, parent])[:, :, None]], (1, -1), "max")
    expected = stats.ttest_rel(child, parent)
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))


@pytest.mark.parametrize("seeds", [1, 4])
def test_few_items_of_0_and_1_get_mcnemars_exact_test(seeds):
    """Six of ten items better and none worse: t gave .0077, and .031 is the least that six signs can."""
    values = np.zeros((2, seeds, 10))
    values[0, :, :6] = 1
    found = contrast([values], (1, -1), "max")
    expected = stats.binomtest(6, 6).pvalue
    assert (found.item_p if seeds == 1 else found.p) == pytest.approx(expected) == 2 / 2**6
    many = contrast([np.tile(values, 3)], (1, -1), "max")
    assert (many.item_p if seeds == 1 else many.p) < 1e-4


def test_items_of_0_and_100_are_right_or_wrong_as_those_of_0_and_1():
    rng = np.random.default_rng(3)
    values = [(rng.random((1, 60)) < level).astype(float) for level in (0.8, 0.55)]
    for design in (Design(claim="checkpoints"), Design()):
        found = []
        for scale in (1.0, 100.0):
            clusters = number_clusters([60], None)
            groups = [Group([scale * of[None]], "max", clusters) for of in values]
            found.append(contrast_groups(groups, (1, -1), 0.95, design))
        assert found[1].counts
        assert found[1].mcnemar == found[0].mcnemar
        assert found[1].effect == pytest.approx(100 * found[0].effect)
        assert found[1].p == pytest.approx(found[0].p, nan_ok=True)
    graded = Group([100 * rng.random((1, 1, 60))], "max", number_clusters([60], None))
    assert not graded.counts
