"""Simulated edges whose seeds are few and not alike: changes that act in some seeds only, and skewed seed effects.

What S seeds did not show cannot be excluded: the tests hold what is said of it, and that it is no more than is known.
"""

import numpy as np
import pytest

from ablation.config.study_schema import Analysis
from ablation.judge.significance import enough, share_otherwise
from ablation.judge.statistics import contrast
from tests.simulations.test_coverage import TARGET, World, error

MARGIN = 0.03
PLAN = Analysis(value="hit", protocol="edited", subsets=["all"], direction="max", margin=MARGIN)


def edge(rng, shifts, *, items=1000, noise=0.005):
    """Estimate of a child whose rate is shifted by so much in each seed; a share of the values is flipped at random."""
    ease = rng.random(items)
    parent = np.tile(ease < 0.6, (len(shifts), 1))
    child = np.stack([ease < 0.6 + shift for shift in shifts])
    flipped = rng.random((2, *parent.shape)) < noise
    values = np.where(flipped, 1.0 - np.stack([child, parent]), np.stack([child, parent]))
    return contrast([values], (1, -1), "max", replicates=20)


def word(numbers):
    inside = numbers.within(MARGIN, numbers.noise, PLAN.alpha)
    return "equivalent" if inside and enough(numbers.seeds, PLAN) else "undecided"


def equivalent(share, seeds, replicates, *, size=-0.3):
    """How often a change that acts in a share of the seeds only is called equivalent."""
    rng = np.random.default_rng(21)
    words = [word(edge(rng, np.where(rng.random(seeds) < share, size, 0.0))) for _ in range(replicates)]
    return words.count("equivalent") / replicates


@pytest.mark.parametrize("seeds", [2, 3])
def test_two_or_three_seeds_call_nothing_equivalent(seeds):
    assert equivalent(0.3, seeds, 60) == 0


def test_five_seeds_call_idle_changes_equivalent():
    assert equivalent(0.0, 5, 100) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [5, 10, 20])
def test_what_is_said_of_the_seeds_is_wrong_in_5_percent(seeds):
    """`in at least 55% of seeds`: of changes that act in 45% of them, 5% are called equivalent, and fewer of more."""
    share = share_otherwise(seeds, PLAN.alpha)
    assert equivalent(share, seeds, 300) <= 0.05 + error(0.05, 300)


def skewed(seeds, replicates):
    """Share of edges without an effect on average, their seeds' effects lognormal, that are called worse, or better."""
    rng, worse, better = np.random.default_rng(22), 0, 0
    for _ in range(replicates):
        found = edge(rng, 0.05 * (rng.lognormal(0, 1, seeds) - np.exp(0.5)))
        worse += found.p <= 0.05 and found.effect < 0
        better += found.p <= 0.05 and found.effect > 0
    return worse / replicates, better / replicates


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_skewed_seeds_err_on_the_side_of_most_seeds(seeds):
    """A known limit, held where it is: Student's t of few skewed effects errs in up to 18%, on one side."""
    worse, better = skewed(seeds, 400)
    assert worse <= 0.15 + error(0.15, 400)
    assert better <= 0.025 + error(0.025, 400)


@pytest.mark.slow
def test_opposite_sides_of_the_target_err_as_promised_at_small_levels():
    """Both arms are 0.03 from the target; before, 1.1% erred at the level 0.005, five times the level at 0.001."""
    world, replicates = World((0.47, 0.53), 8, TARGET, item=0.9, variant=0.02, items=(800,)), 800
    rng = np.random.default_rng(4)
    p = np.array([contrast(world.draw(rng), (1, -1), TARGET, replicates=1000).p for _ in range(replicates)])
    for level in (0.05, 0.01, 0.005):
        assert np.mean(p <= level) <= 1.6 * level + error(level, replicates), level
