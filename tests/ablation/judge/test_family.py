"""The largest |t| of a family against numerical integration, and its correction against Holm's."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from ablation.judge.correct import ways_up
from ablation.judge.family import DRAWS, Family, covariances
from ablation.judge.moderation import SeedPrior
from ablation.judge.significance import GroupNoise, Noise, holm

PRIOR = SeedPrior(1.0, 4.0, frozenset(), {name: 1.0 for name in "abcdef"})
THREE = (0, 1, 2)
NOISE = Noise(2 / 3, 6, 0.0)
ERROR = 4 * np.sqrt(0.05 * 0.95 / DRAWS)


def member(child, parent, runs, noise, draws):
    """A comparison, of which the family asks no more than this."""
    estimate = SimpleNamespace(noise=noise, item_draws=draws)
    return SimpleNamespace(pair=(child, parent), interims=(SimpleNamespace(runs=runs, estimate=estimate),))


def members(*pairs, seeds=THREE, noise=NOISE, draws=None):
    draws = np.zeros((len(pairs), 50)) if draws is None else draws
    return [
        member(child, parent, (seeds, seeds), noise, draw) for (child, parent), draw in zip(pairs, draws, strict=True)
    ]


def test_comparisons_share_the_noise_of_their_runs():
    by_seed, by_item = covariances(members(("b", "a"), ("c", "a"), ("d", "c"), ("f", "e")), PRIOR)
    half = np.array([[2, 1, 0, 0], [1, 2, -1, 0], [0, -1, 2, 0], [0, 0, 0, 2]]) / 3
    assert by_seed == pytest.approx(half)
    assert by_item == pytest.approx(np.zeros((4, 4)))


MANY = tuple(range(12))
UNEQUAL = Noise.independent([GroupNoise(1 / 3, 2, 3), GroupNoise(1 / 12, 11, 12)])
FEWER_LAST = [member(child, "a", (THREE, runs), UNEQUAL, np.zeros(50)) for child, runs in (("b", MANY), ("c", THREE))]


@pytest.mark.parametrize(
    ("of", "prior", "correlation"),
    [
        # An unstable parent makes its comparisons go together.
        (
            members(("b", "a"), ("c", "a")),
            SeedPrior(1.0, 4.0, frozenset("a"), {"a": 25.0, "b": 1.0, "c": 1.0}),
            25 / 26,
        ),
        # Comparisons with other seeds share what both saw.
        (
            [*members(("b", "a")), member("c", "a", (tuple(range(6)),) * 2, Noise(1 / 3, 9, 0.0), np.zeros(50))],
            PRIOR,
            1 / 4,
        ),
        # Of independent runs a parent with many correlates its comparisons less.
        ([member(child, "a", (THREE, MANY), UNEQUAL, np.zeros(50)) for child in "bc"], PRIOR, 1 / 5),
        # One of the two stands at an earlier interim analysis, where the parent has three of its runs.
        ([*FEWER_LAST], PRIOR, 1 / 12 / np.sqrt(5 / 12 * 2 / 3)),
        ([*FEWER_LAST[::-1]], PRIOR, 1 / 12 / np.sqrt(5 / 12 * 2 / 3)),
    ],
)
def test_how_much_two_comparisons_share(of, prior, correlation):
    by_seed, _ = covariances(of, prior)
    assert by_seed[0, 1] / by_seed[0, 0] == pytest.approx(correlation)


def test_items_tell_their_own_correlation():
    shared = np.random.default_rng(0).standard_normal(4000)
    draws = np.stack([shared, shared, -shared])
    noise = Noise(0.0, 6, 0.04)
    _, by_item = covariances(members(("b", "a"), ("c", "a"), ("d", "a"), noise=noise, draws=draws), PRIOR)
    assert by_item == pytest.approx(0.04 * np.array([[1, 1, -1], [1, 1, -1], [-1, -1, 1]]))


def dunnett(critical, count, df):
    """P(any of `count` |t| with one common correlation of 1/2 and independent denominators is above `critical`)."""
    ratios = stats.chi2.ppf((np.arange(200) + 0.5) / 200, df) / df if np.isfinite(df) else np.ones(1)

    def inside(common):
        bound, shift = critical * np.sqrt(ratios) * np.sqrt(2), common
        each = np.mean(stats.norm.cdf(bound - shift) - stats.norm.cdf(-bound - shift))
        return stats.norm.pdf(common) * each**count

    return 1 - integrate.quad(inside, -8, 8)[0]


@pytest.mark.parametrize(("count", "df"), [(2, 6.0), (8, 6.0), (8, 1e6), (20, 4.0)])
def test_adjusted_p_is_that_of_the_largest_t(count, df):
    family = Family(np.full((count, count), 0.5) + np.eye(count) / 2, np.full(count, df))
    critical = -stats.t.ppf(0.05 / count / 2, df) * 0.9
    p = [2 * stats.t.sf(critical, df)] + [1.0] * (count - 1)
    assert family.adjusted(p)[0] == pytest.approx(dunnett(critical, count, df if df < 1e5 else np.inf), abs=ERROR)


def test_equal_comparisons_count_once_and_independent_ones_as_sidak():
    same = Family(np.ones((5, 5)), np.full(5, 1e6))
    assert same.adjusted([0.04] * 5) == pytest.approx(0.04, abs=ERROR)
    apart = Family(np.eye(5), np.full(5, 5.0))
    assert apart.adjusted([0.02, 1, 1, 1, 1])[0] == pytest.approx(1 - 0.98**5, abs=ERROR)
    assert apart.level(0.05) == pytest.approx(1 - 0.95 ** (1 / 5), abs=ERROR / 5)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 8))
def test_never_above_holm_nor_below_the_p_itself(seed, count):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((count, 3))
    covariance = root @ root.T + 0.1 * np.eye(count)
    spread = np.sqrt(np.diag(covariance))
    family = Family(covariance / np.outer(spread, spread), rng.choice([2.0, 5.0, 40.0], count))
    p = rng.uniform(size=count) ** 3
    adjusted = family.adjusted(p)
    assert (adjusted <= holm(p) + 1e-12).all()
    assert (adjusted >= p).all()
    assert (np.diff(adjusted[np.argsort(p)]) >= 0).all()
    assert 0.05 / count <= family.level(0.05) <= 0.05
    assert (Family(family.correlation, family.df).adjusted(p) == adjusted).all()  # from a fixed seed


def test_steps_down_through_the_comparisons_that_are_left():
    """The second of two is tested alone once the first is out; NaN does not count."""
    family = Family(np.eye(3), np.full(3, 1e6))
    adjusted = family.adjusted([1e-12, 0.04, float("nan")])
    assert adjusted[0] == pytest.approx(2e-12)
    assert adjusted[1] == pytest.approx(0.04, abs=ERROR)
    assert np.isnan(adjusted[2])


def test_interim_analyses_each_spend_their_share():
    family = Family(np.eye(2), np.full(2, 1e6), (0.4, 0.6))
    alone = [1 - (1 - 0.03 * share) ** 2 for share in (0.4, 0.6)]
    assert family.adjusted([0.03, 1.0])[0] == pytest.approx(sum(alone), abs=ERROR)


def test_ways_up_are_the_comparisons_to_each_ancestor():
    parents = {"a": None, "b": "a", "c": "b", "d": "a"}
    comparisons = [("b", "a"), ("c", "b"), ("d", "a")]
    assert ways_up(parents, comparisons) == {"a": [], "b": [0], "c": [1, 0], "d": [2]}
    assert ways_up(parents, comparisons[1:]) == {"a": [], "b": [], "c": [0], "d": [1]}
