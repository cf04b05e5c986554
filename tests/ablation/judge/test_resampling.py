"""Clusters, their variance and its degrees of freedom, and what of a spread over seeds is noise of the items."""

import numpy as np
import pytest

from ablation.judge import resampling
from ablation.judge.resampling import (
    cluster_counts,
    correlation_within,
    draw_sums,
    draw_together,
    item_degrees,
    number_clusters,
    unfolding,
)
from ablation.judge.statistics import contrast


def test_clusters_are_drawn_with_replacement():
    counts = cluster_counts(5, 300, 4)
    assert counts.shape == (300, 5)
    assert (counts.sum(axis=1) == 0).all()
    assert counts.min() == -1
    assert counts.var() == pytest.approx(0.8, abs=0.1)  # n p (1 - p) with p = 1/5


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


def test_many_clusters_are_drawn_in_parts_and_alike(monkeypatch):
    values = np.random.default_rng(1).normal(size=(50, 2))
    whole = draw_sums(values, 300, 4)
    assert np.array_equal(whole, np.tensordot(cluster_counts(50, 300, 4), values, 1))
    monkeypatch.setattr(resampling, "_MOST_COUNTS", 8 * 50 * 7)  # 7 replicates at a time
    np.testing.assert_allclose(draw_sums(values, 300, 4), whole, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(draw_sums(values[:, 0], 300, 4), whole[:, 0], rtol=1e-12, atol=1e-12)
