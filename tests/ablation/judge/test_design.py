"""Runs that share nothing, and checkpoints: against hand computation, scipy, and each other."""

import itertools

import numpy as np
import pytest
from scipy import stats

from ablation.judge.budget import predict
from ablation.judge.comparisons import judge_comparisons
from ablation.judge.design import Design
from ablation.judge.explain import explain
from ablation.judge.planning import split
from ablation.judge.resampling import number_clusters
from ablation.judge.significance import flip_p, sign_flip
from ablation.judge.statistics import Group, contrast_groups
from tests.ablation.judge.studies import measurements

INDEPENDENT, CHECKPOINTS = Design("independent"), Design("independent", "checkpoints")


def groups(*groups, clusters=None, direction="max", samples=1):
    """Groups of values [runs, items], child first."""
    of_items = number_clusters([groups[0].shape[1]], None if clusters is None else [clusters])
    return [Group([np.asarray(group, float)[None]], direction, of_items, samples=samples) for group in groups]


def difference(child, parent, design=INDEPENDENT, **options):
    return contrast_groups(groups(child, parent, **options), (1, -1), design=design)


def graded(runs, items=40, seed=0, effect=0.0, spread=0.3):
    rng = np.random.default_rng([seed, runs])
    ease = np.random.default_rng(7).normal(0, 1, items)
    return ease + effect + rng.normal(0, spread, (runs, 1)) + rng.normal(0, 0.5, (runs, items))


@pytest.mark.parametrize("seeds", [2, 5, 9])
def test_runs_of_one_value_get_the_test_of_welch(seeds):
    child, parent = (graded(seeds, items=1, seed=seed, effect=effect) for seed, effect in ((1, 0.4), (2, 0)))
    found = difference(child, 3 * parent)
    known = stats.ttest_ind(child[:, 0], 3 * parent[:, 0], equal_var=False)
    assert found.p == pytest.approx(known.pvalue, rel=1e-6)
    assert found.noise.seed_df == pytest.approx(known.df)
    assert (found.low, found.high) == pytest.approx(tuple(known.confidence_interval()))


@pytest.mark.parametrize(("more", "fewer"), [(8, 3), (8, 2), (16, 8)])
def test_the_formulas_by_hand(more, fewer):
    """As docs/explanation/statistics.md states them, with loops over pairs of runs."""
    child, parent = graded(more, seed=1, effect=0.2), graded(fewer, seed=2)
    found, items = difference(child, parent), child.shape[1]
    parts, v, own = [], [], []
    for group in (child, parent):
        away = (group - group.mean(axis=1, keepdims=True)) / items / np.sqrt(1 - 1 / items)
        runs = range(len(group))
        parts.append(away)
        own.append(np.mean([away[a] @ away[b] for a, b in itertools.permutations(runs, 2)]))
        step = np.diff(np.sort(np.concatenate([child, parent], axis=None))).min() / items
        v.append((group.mean(axis=1).var(ddof=1) + step**2 / 12) / len(group))
    across = parts[0].mean(axis=0) - parts[1].mean(axis=0)
    cross = np.mean([a @ b for a in parts[0] for b in parts[1]])
    by_item = max(0.0, own[0] + own[1] - 2 * cross)
    assert found.effect == pytest.approx(child.mean() - parent.mean())
    assert found.noise.item_variance == pytest.approx(by_item)
    assert found.noise.residual == pytest.approx(across @ across - by_item)
    df = sum(v) ** 2 / (v[0] ** 2 / (more - 1) + v[1] ** 2 / (fewer - 1))
    df = min(df, 2 * (fewer - 1))
    assert (found.noise.seed_variance, found.noise.seed_df) == pytest.approx((sum(v), df))

    def critical(p):
        seeds = sum(v) * stats.t.isf(p / 2, df) ** 2
        if fewer == 2:
            seeds = v[0] * stats.t.isf(p / 2, more - 1) ** 2 + v[1] * stats.t.isf(p / 2, 1) ** 2
        t, z = stats.t.isf(p / 2, items - 1), stats.norm.isf(p / 2)
        hidden = found.verdict_noise.hidden(p)
        added = hidden**2 + found.noise.residual * (t**2 - z**2)
        of_seeds = np.sqrt(seeds / sum(v))
        power = 1 + np.clip(np.log(of_seeds / t / 2) / np.log(5 / 2), 0, 1)
        total = sum(v) + by_item
        return total * ((sum(v) * of_seeds**power + by_item * t**power) / total) ** (2 / power) + added

    assert critical(found.p) == pytest.approx(found.effect**2)


def test_one_run_against_many_is_a_prediction():
    """The lone run is taken to vary as the others do."""
    past = graded(7, items=1)
    new = past.mean() - 1.0
    found = difference(np.array([[new]]), past)
    t = (new - past.mean()) / (past.std(ddof=1) * np.sqrt(1 + 1 / 7))
    assert found.p == pytest.approx(2 * stats.t.sf(abs(t), 6))
    assert found.noise.seed_df == 6


# Checkpoints


@pytest.mark.parametrize(("items", "gain"), [(6, 0.5), (50, 0.2), (400, 0.1), (1319, 0.2)])
def test_right_or_wrong_items_of_two_checkpoints_get_the_exact_test_of_mcnemar(items, gain):
    ease = np.random.default_rng(items).uniform(size=items)
    parent, child = ((np.random.default_rng(n).uniform(size=items) < ease + more) for n, more in ((1, 0), (2, gain)))
    better, worse = int((child & ~parent).sum()), int((parent & ~child).sum())
    found = difference(child[None], parent[None], CHECKPOINTS)
    assert found.p == pytest.approx(stats.binomtest(better, better + worse).pvalue, rel=1e-9)


def test_clusters_are_the_units_and_epochs_are_averaged():
    rng = np.random.default_rng(0)
    clusters = np.arange(60) // 5
    shared = np.repeat(rng.normal(0, 1, 12), 5)
    parent, child = rng.normal(0, 1, 60), rng.normal(0, 1, 60) + shared
    found = difference(child[None], parent[None], CHECKPOINTS, clusters=clusters)
    units = (child - parent).reshape(12, 5).mean(axis=1)
    t = stats.ttest_1samp(units, 0).pvalue  # equal clusters: CR2 is the t test of their means
    assert found.noise.item_df == pytest.approx(11)
    assert found.p >= max(t, flip_p(units)) - 1e-9
    several = difference(np.stack([child, child + 0.1]), parent[None], CHECKPOINTS, clusters=clusters)
    alone = difference((child + 0.05)[None], parent[None], CHECKPOINTS, clusters=clusters)
    assert (several.effect, several.noise.item_variance) == pytest.approx((alone.effect, alone.noise.item_variance))


def test_skewed_values_without_bounds_need_a_test_that_allows_for_it():
    """Lognormal losses whose mean is right by a few large ones: t and flips call it, Hall's test does not."""
    rng = np.random.default_rng(4)
    worst = 0
    for _ in range(20):
        loss = rng.lognormal(0, 1.5, 50) - np.exp(1.5**2 / 2)
        found = difference(loss[None], np.zeros((1, 50)), CHECKPOINTS)
        t = stats.ttest_1samp(loss, 0).pvalue
        assert found.p >= t - 1e-9
        worst = max(worst, found.skewed_p / t)
    assert worst > 1.5


# Sign flips


@pytest.mark.parametrize("count", [3, 12, 16])
def test_flips_are_counted_up_to_sixteen_units(count):
    units = np.random.default_rng(count).normal(0.3, 1, count)
    assert flip_p(units) == pytest.approx(sign_flip(units))
    assert flip_p([*units, 0.0, 0.0]) == flip_p(units)


def test_flips_of_units_that_all_agree_but_for_a_small_one_do_not_overflow():
    """Four flips of 2^80 are as far out, and the approximation errs on the safe side."""
    units = np.array([*np.exp(np.random.default_rng(0).normal(0, 1, 79)), -1e-6])
    with np.errstate(over="raise"):
        assert 4 / 2**80 <= flip_p(units) < 1e-20


def test_flips_of_many_units_of_any_size_follow_their_tail():
    rng = np.random.default_rng(1)
    for mean in (0.02, 0.1, 0.16):
        units = rng.standard_t(4, 1000) * 0.8 + mean
        drawn = np.abs(rng.choice((1.0, -1.0), (40_000, 1000)) @ units) >= abs(units.sum())
        error = np.sqrt(max(drawn.mean(), 1e-4) / 40_000)
        assert flip_p(units) == pytest.approx(drawn.mean(), abs=4 * error)


RUNS = {"base": 8, "a": 5, "b": 5, "ab": 5}


def everything(values, **plan):
    """All that is said of a study whose groups have unequal numbers of independent runs."""
    parents = {"base": None, "a": "base", "b": "base", "ab": "a"}
    study = measurements({name: {"all": of} for name, of in values.items()}, parents, seeds="independent", **plan)
    found = judge_comparisons(study)
    names = ("effect", "p", "p_adjusted", "low", "high", "joint_low", "joint_high", "root_low", "mde", "seeds_needed")
    numbers = [getattr(comparison, name) or 0 for comparison in found for name in names]
    numbers += [chance for by_interim in predict(study, found).values() for chance in by_interim.values()]
    numbers += [value for of in map(split, found) for value in (of.variance, of.df, of.power(0.1, 10, 40, 0.05))]
    told = explain(study, {frozenset(): "base", frozenset({0}): "a", frozenset({1}): "b", frozenset({0, 1}): "ab"}, 2)
    for part in (told.total, *told.parts, *told.joint):
        numbers += [part.effect, part.low, part.high, part.p, part.seeds_needed or 0]
    return np.nan_to_num(numbers), [comparison.verdict for comparison in found], found, told


@pytest.mark.parametrize(
    "plan",
    [
        {},
        {"correction": "holm"},
        {"error": "fdr"},
        {"interim_analyses": [5, 8], "variance": "own"},
        {"claim": "checkpoints"},
    ],
)
def test_unequal_numbers_of_runs_are_used_whole_in_any_order(plan):
    """By verdicts and interim analyses, the family's corrections, the chances that `add-seeds` goes by, plan, explain.

    Of interim analyses the prior of noise rests on the runs that were added first, so only own variances have no order.
    """
    values = {name: graded(runs, seed=len(name), effect=0.1 * len(name)) for name, runs in RUNS.items()}
    numbers, verdicts, found, told = everything(values, **plan)
    mean = {name: of.mean() for name, of in values.items()}
    assert [of.effect for of in found] == pytest.approx([mean[of.child] - mean[of.parent] for of in found])
    assert told.total.effect == pytest.approx(mean["ab"] - mean["base"])
    for seed in range(3):
        rng = np.random.default_rng(seed)
        again, permuted, *_ = everything({name: rng.permutation(of) for name, of in values.items()}, **plan)
        assert again == pytest.approx(numbers)
        assert permuted == verdicts
