"""Simulated comparisons whose seeds are few and not alike: changes that act in some seeds, and skewed seed effects.

What S seeds did not show cannot be excluded: the tests hold what is said of it, and that it is no more than is known.
"""

import numpy as np

from ablation.judge.significance import max_undetected_share
from ablation.judge.statistics import contrast
from tests.simulations.sizes import assert_shares, error, sized
from tests.simulations.test_coverage import TARGET, World

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
        found += numbers.within(MARGIN, numbers.noise, ALPHA)
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
    """A known limit, held where it is: Student's t of few skewed effects errs in up to 18%, on one side."""
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
