"""Items that are few, rarely differ, are graded or come in clusters, and few seeds: do intervals hold what they say?"""

from collections import Counter
from math import sqrt

import numpy as np
import pytest

from ablation.judge.significance import max_undetected_share
from ablation.judge.statistics import contrast
from tests.simulations.sizes import assert_shares, error, sized
from tests.simulations.test_coverage import TARGET, World

MARGIN_SIDE = 0.05  # chance, at most, that an effect at the margin is called equivalent


def false_equivalence(draw, margin, replicates, numbers=None, number=0):
    """Share of comparisons, their true effect just outside of the margin, whose interval lies within it."""
    rng, wrong = np.random.default_rng([1, number]), 0
    clusters = None if numbers is None else [numbers]
    for _ in range(replicates):
        child, parent = draw(rng)
        found = contrast([np.stack([child, parent])], (1, -1), "max", clusters=clusters, replicates=20)
        wrong += found.within(margin, MARGIN_SIDE)
    return wrong / replicates


def rare(items, share, seeds, values=(1.0,)):
    """Items of which a `share` falls to 0, in all seeds alike; the parent's values are drawn from `values`."""

    def draw(rng):
        parent = np.where(np.arange(items) % 10 == 0, 0.0, rng.choice(values, items))
        child = np.where(rng.random(items) < share / np.mean(values) / 0.9, 0.0, parent)
        return np.tile(child, (seeds, 1)), np.tile(parent, (seeds, 1))

    return draw


def graded(items, share, seeds, sd=0.02):
    """As `rare`, among values that are off by a little in every run."""

    def draw(rng):
        child, parent = rare(items, share, seeds)(rng)
        return child + rng.normal(0, sd, child.shape), parent + rng.normal(0, sd, parent.shape)

    return draw


def dusty(items, share, seeds):
    """As `rare`, and every value of the child is off by what floating point loses."""

    def draw(rng):
        child, parent = rare(items, share, seeds)(rng)
        return child + rng.normal(0, 1e-16, child.shape), parent

    return draw


def noisy(clusters, size, share, seeds, noise=0.02):
    """Clusters of which a `share` falls to 0, all items and seeds alike, among values that are flipped at random."""
    numbers = np.repeat(np.arange(clusters), size)

    def draw(rng):
        fallen = np.flatnonzero(rng.random(clusters) < share / (1 - 2 * noise))
        parent = np.ones((seeds, clusters * size))
        child = np.where(np.isin(numbers, fallen), 0.0, parent)
        flipped = rng.random((2, *parent.shape)) < noise
        return np.where(flipped[0], 1 - child, child), np.where(flipped[1], 1 - parent, parent)

    return draw, numbers


RARE = {
    "4-of-100": (rare(100, 0.04, 5), 0.04),
    "4-of-200": (rare(200, 0.02, 5), 0.02),
    "6-of-300": (rare(300, 0.02, 5), 0.02),
    "6-of-300-2-seeds": (rare(300, 0.02, 2), 0.02),
    "10-of-500": (rare(500, 0.02, 3), 0.02),
    "30-of-1500": (rare(1500, 0.02, 10), 0.02),
    "graded": (rare(300, 0.02, 5, tuple(np.arange(1, 11) / 10)), 0.02),
    "graded-noise": (graded(500, 0.01, 20), 0.01),
    "graded-noise-5-seeds": (graded(500, 0.01, 5), 0.01),
    "float-dust": (dusty(200, 0.025, 5), 0.025),
}


@sized(fast=40, slow=150, long=1000)
def test_rare_changes_are_called_equivalent_as_seldom_as_promised(replicates):
    found = {name: false_equivalence(*case, replicates, number=n) for n, (name, case) in enumerate(RARE.items())}
    assert_shares(found, replicates, high=MARGIN_SIDE)


@sized(slow=150, long=600)
def test_clusters_that_rarely_change_among_noise_are_a_limit_that_the_page_states(replicates):
    """Their spread is all that tells of them: 10 to 12% (docs/explanation/statistics.md, Limits), and no more."""
    found = {}
    for number, (clusters, size, share) in enumerate([(60, 5, 0.06), (100, 5, 0.04), (40, 10, 0.1)]):
        draw, numbers = noisy(clusters, size, share, 5)
        found[f"{clusters} of {size}"] = false_equivalence(draw, share, replicates, numbers, number)
    assert_shares(found, replicates, high=0.12)


def clustered(clusters, size, seeds, *, item=0.3, uneven=False, rng):
    """Differences 0/1 minus 0/1, whose latent ease each cluster shares, beside each item; and the clusters' numbers."""
    sizes = (
        np.full(clusters, size) if not uneven else np.maximum(1, (size * rng.lognormal(0, 0.7, clusters)).astype(int))
    )
    numbers = np.repeat(np.arange(clusters), sizes)
    total = len(numbers)
    shared = rng.standard_normal(clusters)[numbers]
    own = rng.standard_normal((2, clusters))[:, numbers] * sqrt(item)  # what a term makes of each variant
    rest = rng.standard_normal((2, seeds, total)) * sqrt(0.7 - item)
    latent = shared * sqrt(0.3) + own[:, None] + rest
    return (latent < 0.3).astype(float), numbers


def clustered_coverage(clusters, size, seeds, replicates, *, uneven=False, known=True):
    rng, inside = np.random.default_rng([5, clusters, seeds, uneven]), 0
    for _ in range(replicates):
        values, numbers = clustered(clusters, size, seeds, uneven=uneven, rng=rng)
        numbers = [numbers] if known else None
        found = contrast([values], (1, -1), "max", clusters=numbers, replicates=20)
        inside += found.low <= 0 <= found.high
    return inside / replicates


@sized(fast=15, slow=60, long=600)
def test_intervals_of_clustered_items_cover(replicates):
    even, uneven = (
        {
            f"{size}-{seeds}": clustered_coverage(*size, seeds, replicates, uneven=uneven)
            for size in ((6, 40), (20, 10), (60, 5))
            for seeds in (2, 5, 10)
        }
        for uneven in (False, True)
    )
    assert_shares(even, replicates, 0.93, 0.985)
    assert_shares(uneven, replicates, 0.93)  # few uneven clusters have hardly any degrees of freedom


def mixture_found(replicates, *, known):
    """Items each drawn by itself from 132 kinds with an effect each: coverage of the kinds' mean, and mean width."""
    rng, inside, width = np.random.default_rng(11), 0, 0.0
    shares = rng.dirichlet(np.full(132, 2.0))
    effects = rng.normal(0, 0.3, 132)
    for _ in range(replicates):
        kinds = rng.choice(132, 300, p=shares)
        difference = effects[kinds] + rng.normal(0, 0.2, (3, 300))
        values = np.stack([difference, np.zeros_like(difference)])
        found = contrast([values], (1, -1), "max", clusters=[kinds] if known else None, replicates=20)
        inside += found.low <= shares @ effects <= found.high
        width += (found.high - found.low) / replicates
    return inside / replicates, width


@pytest.mark.slow
def test_items_that_are_drawn_one_by_one_are_no_clusters_whatever_they_share():
    """Kinds of items, all of which any test set has in the same shares: an item's noise is its own."""
    coverage, width = mixture_found(400, known=False)
    assert 0.93 - error(0.93, 400) <= coverage <= 0.98 + error(0.98, 400)
    wide, wider = mixture_found(400, known=True)
    assert wide > coverage
    assert wider > 1.3 * width


@sized(fast=60, slow=200, long=600)
def test_few_items_meet_students_t(replicates):
    rng, missed = np.random.default_rng(7), Counter()
    for items in (5, 8, 20):
        for _ in range(replicates):
            difference = rng.normal(0, 1, items)[None] + rng.normal(0, 1e-3, (3, items))
            found = contrast([np.stack([difference, np.zeros_like(difference)])], (1, -1), "max", replicates=20)
            missed[f"{items}"] += (not found.low <= 0 <= found.high) / replicates
    assert_shares(missed, replicates, high=0.05)


@pytest.mark.slow
def test_few_clusters_hold_where_their_variance_is_a_small_difference():
    """Before what is subtracted counted by the normal quantile, 7.6% missed, and 2.9% were found at 1%."""
    rng, replicates, errors = np.random.default_rng(7), 1000, np.zeros(2)
    numbers = np.repeat(np.arange(5), 20)
    for _ in range(replicates):
        difference = rng.normal(0, sqrt(2 / 20 / 20), 5)[numbers] + rng.normal(0, 1, (20, 100))
        values = np.stack([difference, np.zeros_like(difference)])
        found = contrast([values], (1, -1), "max", clusters=[numbers], replicates=20)
        errors += [not found.low <= 0 <= found.high, found.p <= 0.01]
    assert (errors / replicates <= [0.06, 0.01 + error(0.01, replicates)]).all()


# Seeds that are few and not alike: changes that act in some seeds, and skewed effects of seeds.

MARGIN = 0.03
ALPHA = 0.05


def comparison(rng, shifts, *, items=1000, noise=0.005):
    """Estimate of a child whose rate is shifted by so much in each seed; a share of the values is flipped at random."""
    ease = rng.random(items)
    parent = np.tile(ease < 0.6, (len(shifts), 1))
    child = np.stack([ease < 0.6 + shift for shift in shifts])
    flipped = rng.random((2, *parent.shape)) < noise
    values = np.where(flipped, 1.0 - np.stack([child, parent]), np.stack([child, parent]))
    return contrast([values], (1, -1), "max", replicates=20)


def equivalent(share, seeds, replicates):
    """How often a change that acts in a share of the seeds only lies within the margin, as far as these seeds tell."""
    rng, found = np.random.default_rng(21), 0
    for _ in range(replicates):
        numbers = comparison(rng, np.where(rng.random(seeds) < share, -0.3, 0.0))
        found += numbers.within(MARGIN, ALPHA)
    return found / replicates


@sized(slow=100, long=300)
def test_what_is_said_of_the_seeds_is_wrong_in_5_percent(replicates):
    """`in at least 55% of seeds`: of changes that act in 45% of them, 5% are called equivalent, and fewer of more."""
    shares = {str(seeds): equivalent(max_undetected_share(seeds, ALPHA), seeds, replicates) for seeds in (5, 10, 20)}
    assert_shares(shares, replicates, high=0.05)


def skewed(seeds, replicates):
    """Share of comparisons without a mean effect, their seeds' effects lognormal, that are called worse, or better."""
    rng, worse, better = np.random.default_rng(22), 0, 0
    for _ in range(replicates):
        found = comparison(rng, 0.05 * (rng.lognormal(0, 1, seeds) - np.exp(0.5)))
        worse += found.p <= 0.05 and found.effect < 0
        better += found.p <= 0.05 and found.effect > 0
    return worse / replicates, better / replicates


@sized(slow=100, long=400)
def test_skewed_seeds_err_on_the_side_of_most_seeds(replicates):
    """A known limit, held where it is: Student's t of few skewed effects errs in up to 16%, on one side."""
    found = {str(seeds): skewed(seeds, replicates) for seeds in (2, 3, 5, 10)}
    assert_shares({seeds: worse for seeds, (worse, _) in found.items()}, replicates, high=0.15)
    assert_shares({seeds: better for seeds, (_, better) in found.items()}, replicates, high=0.025)


@sized(slow=250, long=800)
def test_opposite_sides_of_the_target_err_as_promised_at_small_levels(replicates):
    """Both groups are 0.03 from the target."""
    world = World((0.47, 0.53), 8, TARGET, item=0.9, variant=0.02, items=(800,))
    rng = np.random.default_rng(4)
    p = np.array([contrast(world.draw(rng), (1, -1), TARGET, replicates=1000).p for _ in range(replicates)])
    for level in (0.05, 0.01, 0.005):
        assert np.mean(p <= level) <= 1.6 * level + error(level, replicates), level
