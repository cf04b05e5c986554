"""Clusters, their variance and its degrees of freedom, and what of a spread over seeds is noise of the items."""

from itertools import pairwise

import numpy as np
import pytest

from ablation.judge.resampling import (
    correlation_within,
    draw_together,
    item_degrees,
    number_clusters,
    unfolding,
    variation_shown,
)
from ablation.judge.statistics import contrast


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
    assert found.noise.item_variance == pytest.approx(variance, rel=1e-9)
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


def test_unfolding_tells_residual_noise_from_spread():
    rng = np.random.default_rng(3)
    items, seeds = 4000, 200
    noisy = (rng.random((1, seeds, items)) < 0.5).astype(float)
    assert unfolding([noisy], noisy.mean(axis=2)[..., None])[0, 0] < 0.4
    spread = noisy + rng.normal(0, 0.2, (1, seeds, 1))
    assert unfolding([spread], spread.mean(axis=2)[..., None])[0, 0] > 0.95
    single = spread[:, :, :1]  # tells nothing of its noise
    assert unfolding([single], single.mean(axis=2)[..., None]).tolist() == [[1.0]]
    same = np.repeat((rng.random((1, 1, items)) < 0.5).astype(float), 3, axis=1)
    together = draw_together(same.mean(axis=2)[..., None], unfolding([same], same.mean(axis=2)[..., None]))
    assert np.ptp(together) == 0


def agreeing(*sizes, seeds=2):
    """The same 0/1 values in both groups, one array [2, seeds, items] per size."""
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
    assert dusty.high == pytest.approx(exact.high, rel=0.01)  # groups that differ are rounded to tenths, too


@pytest.mark.parametrize(
    ("differences", "shown"),
    [
        ([1.0, -1, 1, -1, 1, -1, 1, -1, 1, -1], 1.0),  # common, even
        ([1.0, 1, 1, 1, 1, 1, 1, 1, 1, 1], 1.0),
        ([0.0] * 10, 0.0),
        ([1.0] + [0] * 9, 0.0),  # one in ten
        ([1.0] * 4 + [0] * 6, 1 / 3),  # 0.4 of the items: a third of the way from 0.35 to 0.5
        ([1.0] * 9 + [60], (9 + 60) ** 2 / 10 / (9 + 3600)),  # one carries them: participation 0.132
    ],
)
def test_differences_show_how_much_items_vary_where_they_are_common_and_even(differences, shown):
    """The values 0 and 1, each five times, lie 0.5 from their median; those that count as one change are 0.1 apart."""
    values, difference = np.tile([0.0, 1.0], 5)[None, None], np.array(differences)
    if shown not in (0.0, 1.0, 1 / 3):
        shown = (shown - 0.08) / (0.15 - 0.08)
    assert variation_shown([[values, values]], [difference]) == pytest.approx(shown)
    assert variation_shown([[values, values]] * 2, [difference, np.zeros(10)]) == 0.0  # of the worst subset


def test_an_outlier_among_the_values_hides_no_differences():
    values = np.arange(100.0)[None, None]
    larger = values.copy()
    larger[..., -1] = 1e4
    differences = np.full(100, 30.0)
    assert variation_shown([[values, larger]], [differences]) == 1.0
    skewed = np.exp(np.linspace(0, 4, 100)) + 0.1 * np.arange(3)[:, None]
    found = contrast([np.stack([skewed * np.where(np.arange(100) % 2, 1.5, 0.7), skewed])], (1, -1), "max")
    assert (found.unseen_share, found.verdict_noise.unseen) == (0.0, 0.0)
    assert found.noise.unseen > 0  # equivalent, not worse and the interval allow for it all the same


@pytest.mark.parametrize(
    ("sizes", "share"), [([100], 1.0), ([150], 0.5), ([200], 0.0), ([190, 10], 1.0), ([400, 150], 0.5)]
)
def test_small_differences_of_many_items_show_it_too_and_a_small_subset_does_not(sizes, share):
    """The smallest subset counts, because each weighs as much as the others. Hall's test is asked of recipes, too."""
    rng = np.random.default_rng(0)
    ease = [rng.normal(0, 1, (1, 5, size)) for size in sizes]
    values = [np.concatenate([each + 0.05 + rng.normal(0, 0.2, each.shape), each]) for each in ease]
    found = contrast(values, (1, -1), "max")
    assert found.unseen_share == pytest.approx(share)
    assert 0 < found.skewed_p < found.p
