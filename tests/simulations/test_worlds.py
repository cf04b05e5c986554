"""Worlds of known truth: what a study's runs are made of, true effects, and the bounds of rates."""

from dataclasses import replace

import numpy as np
import pytest

from tests.ablation.judge.studies import measurements, normal_study, variant_tree
from tests.simulations.tally import (
    Judged,
    Trial,
    design_effect,
    lower_bound,
    upper_bound,
)
from tests.simulations.worlds import MORE, PLAIN, acting_share, parts_of, worlds

TARGET = {"target": 0.5}
CHAIN = {"v0": None, "v1": "v0", "v2": "v1", "v3": "v1", "v4": "v2"}


def made(study, form, rounds, mde=0.05, *, items_only=False):
    return list(worlds(study, parts_of(study, items_only=items_only), form, rounds=rounds, mde=mde, seed=0))


def subset_means(study, variant):
    return np.array([[of.values.mean() for of in study.values[variant, s].values()] for s in study.seeds(variant)])


def test_bounds_are_those_of_clopper_and_pearson():
    assert lower_bound(1, 20, 0.95) == pytest.approx(1 - 0.95 ** (1 / 20))
    assert upper_bound(0, 14, 0.95) == pytest.approx(1 - 0.05 ** (1 / 14))
    assert (lower_bound(0, 5, 0.95), upper_bound(5, 5, 0.95)) == (0.0, 1.0)


def test_trials_in_groups_count_less_where_groups_differ():
    ones, zeros = [1.0] * 10, [0.0] * 10
    assert design_effect([ones, zeros] * 2) == pytest.approx(40 * 0.25 / 3 / 0.25)  # 3 degrees of freedom
    assert design_effect([[0.0, 1.0]] * 3) == design_effect([zeros, zeros]) == design_effect([[1.0], [0.0]]) == 1


@pytest.mark.parametrize("size", [1, 5])
def test_a_wild_null_has_no_effect_and_the_spreads_of_the_study(size):
    """Spreads over seeds, and of items that seeds share, are those that made the studies."""
    effects, found, wanted, of_items = [], [], [], []
    for number in range(12):
        rng = np.random.default_rng(number)
        clusters = rng.normal(0, 0.3, (10, 200 // size)).repeat(size, axis=1)
        shared, own = rng.normal(0, 0.2, 6), rng.normal(0, 0.05, (10, 6)) * np.array([1.0] * 9 + [3])[:, None]
        new, plain = rng.normal(0, 0.1, (10, 6, 200)), rng.random(200) + np.arange(10)[:, None] / 10
        values = plain[:, None] + clusters[:, None] + (shared + own)[:, :, None] + new
        named = {"all": {f"i{k:04d}": f"c{k // size}" for k in range(200)}}
        study = measurements({f"v{i}": {"all": of} for i, of in enumerate(values)}, variant_tree(10), clusters=named)
        wanted.append(own.var(axis=1, ddof=1) + 0.1**2 / 200)
        for world in made(study, "signs", 25):
            assert len(set(world.gains.values())) == 1
            runs = np.array([[world.study.values[f"v{i}", s]["all"].values for s in range(6)] for i in range(10)])
            difference = runs[1:] - runs[0]
            effects.append(difference.mean(axis=(1, 2)))
            found.append(difference.mean(axis=2).var(axis=1, ddof=1))
            of_items.append(difference.mean(axis=1).reshape(9, -1, size).mean(axis=2).var(axis=1, ddof=1))
    error = np.std(effects, axis=0) / np.sqrt(len(effects))
    assert (np.abs(np.mean(effects, axis=0)) <= 4 * error).all()  # of true differences of 0.1 to 0.9
    whole, spread = np.mean(wanted, axis=0), np.mean(found, axis=0)
    assert np.mean(spread[:-1]) == pytest.approx(np.mean(whole[:-1]) * 2, rel=0.3)
    assert np.mean(spread[:-1]) * 2 < spread[-1] < (whole[-1] + whole[0]) * 1.1  # it stays unstable
    assert np.mean(of_items) == pytest.approx(2 * (0.3**2 + 0.1**2 / 6 / size), rel=0.1)


@pytest.mark.parametrize("direction", ["max", "min", TARGET])
@pytest.mark.parametrize("form", ["signs", "planted", "across", "seeds", "rare"])
def test_true_gains_are_those_that_are_measured(form, direction):
    """Over many worlds each comparison's mean effect is what its truth says, at a target within noise of it too."""
    if form == "across" and direction != TARGET:
        return
    study = normal_study(variants=5, seeds=6, items=300, seed_sd=0.03, rate=0.52, direction=direction)
    parents = [variant.model_copy(update={"parent": CHAIN[variant.name]}) for variant in study.variants]
    study = replace(study, variants=parents)
    target = direction if isinstance(direction, dict) else None
    errors, sizes = [], []
    for world in made(study, form, 150):
        gains = {}
        for name in CHAIN:
            means = subset_means(world.study, name)
            gain = -np.abs(means - target["target"]) if target else means if direction == "max" else -means
            gains[name] = gain.mean()
        pairs = [(child, parent) for child, parent in CHAIN.items() if parent]
        truth = np.array([world.gains[child] - world.gains[parent] for child, parent in pairs])
        errors.append([gains[child] - gains[parent] for child, parent in pairs] - truth)
        sizes.append(np.abs(truth))
    spread = np.std(errors, axis=0) / np.sqrt(len(errors))
    if form != "across":  # there items on one side or the other make the distance, and with it the mean, larger
        assert (np.abs(np.mean(errors, axis=0)) <= 4 * spread + (0.002 if target else 0)).all()
    if form in ("signs", "across") and target:  # unequal spreads over seeds are unequal mean distances
        return
    wanted = {"seeds": {PLAIN * 0.02}, "planted": {0.02, 0.05}, "rare": {0.02}}.get(form, {0.0})
    assert all(min(abs(size - of) for of in wanted) < 1e-6 for size in np.ravel(sizes))


def test_a_change_acts_in_more_seeds_than_equivalent_leaves_open():
    plain, with_interims = normal_study().analysis, normal_study(interim_analyses=[3, 4, 6, 8]).analysis
    assert acting_share(plain, 5) == pytest.approx(1 - 0.05 ** (1 / 5) + MORE)  # 46%
    assert acting_share(with_interims, 8) == pytest.approx(
        1 - 0.05 ** (1 / 6) + MORE
    )  # the first interim analysis that may say it
    assert [acting_share(plain, seeds) for seeds in (1, 2, 3)] == [0.5 + MORE] * 3  # `rare`: it must not be said
    assert acting_share(with_interims, 2) == 0.5 + MORE
    for seeds in (5, 8, 20):  # the chance that none of so many shows it
        assert 0.03 < (1 - acting_share(plain, seeds)) ** seeds < 0.05


def judged(*comparisons):
    return tuple(Judged(truth, verdict, truth - 1, truth + 1) for truth, verdict in comparisons)


def test_what_counts_as_wrong():
    nan = float("nan")
    comparisons = judged((0.0, "better"), (0.02, "equivalent"), (-0.03, "worse"), (nan, "worse"), (0.05, "undecided"))
    trial = Trial("signs", (*comparisons, Judged(0.1, "better", 0.2, 0.3)))
    assert trial.direction(fdr=False) == 1
    assert trial.direction(fdr=True) == pytest.approx(1 / 3)
    assert trial.equivalent(0.02) == [True, False, False, False]
    assert trial.interval() == [False, False, False, False, True]
    assert Trial("signs", judged((0.01, "better"), (-0.01, "worse"), (nan, "better"))).direction(fdr=True) == 0
