"""Error and power of the declared designs: runs that share nothing, two checkpoints, right or wrong items."""

import numpy as np
import pytest

from ablation.judge.design import Design
from ablation.judge.resampling import number_clusters
from ablation.judge.statistics import Group, contrast_groups
from tests.simulations.sizes import assert_shares, error, sized

PAIRED, INDEPENDENT = Design(), Design("independent")
CHECKPOINTS = Design("independent", "checkpoints")


def significant(design, groups, clusters=None):
    """Whether p is at most 0.05; groups: (child, parent), both [runs, items]."""
    of_items = number_clusters([groups[0].shape[1]], clusters)
    groups = [Group([group[None]], "max", of_items, replicates=20) for group in groups]
    return contrast_groups(groups, (1, -1), design=design).p <= 0.05


def share(design, draw, replicates, clusters=None):
    """The share of simulated studies in which p is at most 0.05; draw: the groups."""
    rng = np.random.default_rng(0)
    return np.mean([significant(design, draw(rng), clusters) for _ in range(replicates)])


def one_value(child, parent, spreads=(1, 1), effect=0.0):
    return lambda rng: (rng.normal(effect, spreads[0], (child, 1)), rng.normal(0, spreads[1], (parent, 1)))


def of_items(child, parent, items, changed, seed_sd=0.05):
    """Right or wrong items of different ease; `changed`: how much the child's ease of an item differs, at mean 0."""

    def draw(rng):
        ease = rng.normal(0.0, 0.8, items)
        groups = ((child, rng.normal(0, changed, items)), (parent, 0.0))
        latent = (
            ease + own + rng.normal(0, seed_sd, (runs, 1)) + rng.standard_normal((runs, items)) for runs, own in groups
        )
        return tuple((group > 0).astype(float) for group in latent)

    return draw


@sized(fast=150, long=4000)
@pytest.mark.parametrize(
    ("child", "parent", "most"),
    [(2, 2, 0.05), (3, 3, 0.057), (5, 5, 0.052), (8, 2, 0.05), (8, 3, 0.064), (20, 4, 0.059), (5, 1, 0.055)],
)
def test_error_of_runs_that_share_nothing(child, parent, most, replicates):
    """Of one value each, also where one group is three times as noisy; a lone run is taken to vary as the others."""
    ratios = ((1, 1),) if parent == 1 else ((1, 1), (1, 3), (3, 1))
    found = {str(of): share(INDEPENDENT, one_value(child, parent, of), replicates) for of in ratios}
    assert_shares(found, replicates, high=most)


KNOWN = {3: (0.36, 0.46, 0.24), 5: (0.57, 0.66, 0.21), 10: (0.70, 0.74, 0.13), 20: (0.75, 0.77, 0.08)}
"""Power of pairing and of two samples, and how often two orders of pairs disagree, by runs each.

Of runs that share nothing, for an effect that a test of known variance finds in 80%.
"""


@sized(slow=300, long=4000)
def test_pairing_runs_that_share_nothing_costs_power_and_hangs_on_their_order(replicates):
    rng, apart = np.random.default_rng(0), {}
    for runs, known in KNOWN.items():
        effect, found = 2.8 * np.sqrt(2 / runs), []
        for _ in range(replicates):
            child, parent = rng.normal(effect, 1, (runs, 1)), rng.normal(0, 1, (runs, 1))
            groups = ((PAIRED, child), (INDEPENDENT, child), (PAIRED, rng.permutation(child)))
            found.append([significant(design, (of, parent)) for design, of in groups])
        paired, independent, again = np.array(found).T
        measured = (paired.mean(), independent.mean(), (paired != again).mean())
        apart |= {
            (runs, name): (at, of)
            for name, at, of in zip(("paired", "independent", "orders disagree"), measured, known, strict=True)
        }
    wrong = {of: found for of, found in apart.items() if abs(found[0] - found[1]) > error(found[1], replicates) + 0.01}
    assert not wrong


@sized(fast=40, long=1000)
def test_error_over_items_of_runs_that_share_nothing(replicates):
    worlds = [(3, 3, 0.0), (3, 3, 0.5), (8, 3, 0.5), (5, 5, 0.5), (1, 8, 0.3)]
    found = {str(world): share(INDEPENDENT, of_items(*world[:2], 100, world[2]), replicates) for world in worlds}
    assert_shares(found, replicates, high=0.05)


@sized(fast=100, long=3000)
def test_error_of_two_checkpoints(replicates):
    """Of right or wrong items, of means of four epochs over clusters that change together, and of skewed losses."""

    def epochs(clusters, size):
        def draw(rng):
            ease = rng.uniform(0.3, 0.7, clusters * size)
            moved = np.clip(ease + np.repeat(rng.normal(0, 0.15, clusters), size), 0, 1)
            return tuple(rng.binomial(4, chance)[None] / 4 for chance in (moved, ease))

        return share(CHECKPOINTS, draw, replicates, [np.arange(clusters * size) // size])

    worlds = {f"{items} items": of_items(1, 1, items, 0.5, seed_sd=0) for items in (50, 400)}  # else the runs differ
    found = {name: share(CHECKPOINTS, world, replicates) for name, world in worlds.items()}
    assert_shares(found, replicates, high=0.047)
    assert_shares({f"{count} clusters": epochs(count, 6) for count in (8, 30)}, replicates, high=0.055)


@sized(slow=150, long=1000)
def test_error_of_skewed_losses_of_two_checkpoints(replicates):
    """Differences of mean 0 with a long tail: 10% by Student's t and flips."""

    def draw(rng):
        return rng.lognormal(0, 1, (1, 50)) - np.exp(0.5), np.zeros((1, 50))

    assert_shares({"lognormal": share(CHECKPOINTS, draw, replicates)}, replicates, high=0.057)


@sized(slow=100, long=1000)
def test_power_where_few_items_can_change(replicates):
    """At floor and ceiling, where an allowance for what went unseen left 15 to 45%; without an effect no error."""

    def world(items, base, gain):
        def draw(rng):
            level, moved = rng.uniform(size=(5, items)), base + gain + rng.normal(0, 0.003, (5, 1))
            return (rng.uniform(size=(5, items)) < np.clip(moved, 0, 1)).astype(float), (level < base).astype(float)

        return share(PAIRED, draw, replicates)

    assert_shares({"floor": world(50, 0.02, 0.1), "ceiling": world(200, 0.98, -0.03)}, replicates, low=0.6)
    assert_shares({"none": world(200, 0.98, 0.0), "half": world(100, 0.5, 0.0)}, replicates, high=0.05)
