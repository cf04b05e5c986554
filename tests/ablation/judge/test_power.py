"""Power, detectable effects and seeds needed against closed forms and slow implementations."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import optimize, stats

from ablation.judge.design import Design
from ablation.judge.planning import split
from ablation.judge.power import minimal_detectable_effect, power, seeds_needed
from ablation.judge.resampling import number_clusters
from ablation.judge.significance import Noise, brentq
from ablation.judge.statistics import Group, contrast, contrast_groups


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
    weighed = 0.3 * quantiles * stats.t.isf(0.025, 4) + 0.1 * stats.norm.isf(0.025)
    critical = weighed / np.sqrt(0.3 * quantiles + 0.1)  # t is less than twice the normal quantile
    slow = np.mean([stats.norm.sf((c - 0.7) / 0.4**0.5) + stats.norm.cdf((-c - 0.7) / 0.4**0.5) for c in critical])
    assert power(0.7, Noise(0.3, 4, 0.1), 0.05) == pytest.approx(slow, rel=1e-12)


def test_one_seed_and_one_cluster_know_no_detectable_effect():
    values = [np.random.default_rng(0).integers(0, 2, (2, 1, 30)).astype(float)]
    numbers = contrast(values, (1, -1), "max", clusters=[np.zeros(30, int)])
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


def test_roots_are_those_of_scipy_bit_by_bit():
    rng = np.random.default_rng(0)
    for _ in range(300):
        scale, shift, bend = rng.lognormal(0, 3), rng.normal(), rng.choice([1, 3, 5])
        root = rng.normal()

        def curve(x, scale=scale, shift=shift, bend=bend, root=root):
            return float(np.tanh(scale * (x - root)) + abs(shift) * (x - root) ** bend)

        ends = root - rng.lognormal(0, 2), root + rng.lognormal(0, 2)
        for tolerance in ({"xtol": 2e-12}, {"xtol": 1e-15, "rtol": 1e-15}, {"xtol": 1e-3}):
            assert brentq(curve, *ends, **tolerance) == optimize.brentq(curve, *ends, **tolerance)
    with pytest.raises(ValueError, match="different signs"):
        brentq(lambda x: 1.0, 0.0, 1.0, xtol=1e-3)


def test_a_pilot_of_checkpoints_has_no_seeds_that_a_prior_could_add_to():
    values = np.random.default_rng(1).normal(size=(2, 1, 4, 50))
    groups = [Group([of], "max", number_clusters([50], None)) for of in values]
    for design, prior, df in ((Design(claim="checkpoints"), 0, 1), (Design(), 0, 3)):
        estimate = contrast_groups(groups, (1, -1), 0.95, design)
        pilot = split(SimpleNamespace(estimate=estimate, seeds=4, items=50, parent="a", child="b"))
        assert (pilot.prior_df, pilot.df) == (prior, df)
