"""Worlds of known truth: what a study's runs are made of, true effects, and the bounds of rates."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from ablation.judge import comparisons
from tests.ablation.judge.studies import lineage, measurements, normal_study
from tests.simulations.tally import (
    Judged,
    Size,
    Trial,
    design_effect,
    effective_trials,
    evidence_of,
    judge,
    lower_bound,
    tally,
    upper_bound,
)
from tests.simulations.worlds import LARGE, MORE, PLAIN, acting_share, parts_of, worlds

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


def test_few_groups_count_less_by_students_t():
    """Rates of groups vary by a beta distribution: the upper bound misses in 14% of cases without the ratio."""
    rng, analysis, missed = np.random.default_rng(1), normal_study().analysis, 0
    for _ in range(600):
        words = np.where(rng.random((5, 20)) < rng.beta(0.47, 1.87, (5, 1)), "equivalent", "undecided")
        trials = [Trial("rare", judged(*((1.0, word) for word in group))) for group in words]
        missed += tally(trials, analysis)[0].upper < 0.47 / (0.47 + 1.87)
    assert missed / 600 <= 0.085
    assert effective_trials([[1.0], [0.0], [1.0]], 0.95) == pytest.approx(3)
    t = 1.66039 / 2.13185  # of 99 and 4 degrees of freedom
    assert effective_trials([[1.0] * 20, *[[0.0] * 20] * 4], 0.95) == pytest.approx(5 * 0.8 * t**2, rel=1e-4)


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
        study = measurements({f"v{i}": {"all": of} for i, of in enumerate(values)}, lineage(10), clusters=named)
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


def test_worlds_draw_whole_clusters_alike_in_every_subset():
    rng = np.random.default_rng(0)
    values = {f"v{i}": {"a": rng.random((3, 40)), "b": rng.random((3, 20))} for i in range(3)}
    named = {"a": {f"i{k:04d}": f"c{k // 4}" for k in range(40)}, "b": {f"i{k:04d}": f"c{k // 2}" for k in range(20)}}
    study = measurements(values, lineage(3), clusters=named)
    parts = parts_of(study, items_only=False)
    nothing = {name: [0 * of for of in getattr(parts, name)] for name in ("base", "shared", "own", "shifts")}
    plain = replace(parts, **nothing, items=[np.ones_like(of) for of in parts.items])
    drawn = []
    for world in worlds(study, plain, "signs", rounds=5, mde=0.1, seed=0):
        for of in world.study.values.values():
            a, b = of["a"].values.reshape(10, 4), of["b"].values.reshape(10, 2)
            assert (a == b[:, :1]).all()
            drawn.append(a[:, 0])
    assert set(np.ravel(drawn)) == {-1.0, 1.0}
    assert abs(np.mean(drawn)) < 0.4


def test_verdicts_on_these_items_alone_get_no_noise_of_items():
    study = normal_study(variants=4, items=40, size=20)
    [world] = made(study, "signs", 1, items_only=True)
    rows = [np.mean([world.study.values[v, s]["all"].values for s in range(5)], axis=0) for v in ("v0", "v1")]
    assert parts_of(study, items_only=True).items[0].any() == 0
    assert rows[0].shape == (40,)
    found = evidence_of(study, Size(lineages=2, comparisons=2))
    assert {e.form for e in found} == {"signs", "planted", "seeds", "unpaired"}


def test_runs_that_did_not_end_well_are_left_out():
    study = normal_study(variants=3)
    broken = replace(
        study,
        states=study.states | {("v1", 2): ("failed", "x")},
        aborted={("v2", 0): "NaN"},
        duplicates={("v2", 1)},
        no_shares={("v0", 3): "an item whose samples are not right or wrong"},
    )
    assert parts_of(broken, items_only=False).runs == {"v0": [0, 1, 2, 4], "v1": [0, 1, 3, 4], "v2": [2, 3, 4]}
    [world] = made(broken, "signs", 1)
    assert set(world.study.values) == set(broken.values) - {("v0", 3), ("v1", 2), ("v2", 0), ("v2", 1)}
    assert parts_of(normal_study(seeds=1), items_only=False) is None


def test_runs_that_cannot_be_paired_get_no_word():
    study = normal_study(variants=4, direction="min")
    for world in made(study, "unpaired", 3):
        assert {comparison.detail for comparison in comparisons.judge_comparisons(world.study)} == {"invalid"}
        lost = subset_means(world.study, "v1").mean() - subset_means(world.study, "v0").mean()
        assert lost == pytest.approx(LARGE * 0.02, rel=0.1)
        assert judge("unpaired", world).comparisons == ()


def test_a_change_acts_in_more_seeds_than_equivalent_leaves_open():
    plain, looked = normal_study().analysis, normal_study(looks=[3, 4, 6, 8]).analysis
    assert acting_share(plain, 5) == pytest.approx(1 - 0.05 ** (1 / 5) + MORE)  # 46%
    assert acting_share(looked, 8) == pytest.approx(1 - 0.05 ** (1 / 6) + MORE)  # the first look that may say it
    assert [acting_share(plain, seeds) for seeds in (1, 2, 3)] == [0.5 + MORE] * 3  # `rare`: it must not be said
    assert acting_share(looked, 2) == 0.5 + MORE
    for seeds in (5, 8, 20):  # the chance that none of so many shows it
        assert 0.03 < (1 - acting_share(plain, seeds)) ** seeds < 0.05


def judged(*comparisons):
    return tuple(Judged(truth, word, truth - 1, truth + 1) for truth, word in comparisons)


def test_what_counts_as_wrong():
    nan = float("nan")
    comparisons = judged((0.0, "better"), (0.02, "equivalent"), (-0.03, "worse"), (nan, "worse"), (0.05, "undecided"))
    trial = Trial("signs", (*comparisons, Judged(0.1, "better", 0.2, 0.3)))
    assert trial.direction(per_word=False) == 1
    assert trial.direction(per_word=True) == pytest.approx(1 / 3)
    assert trial.equivalent(0.02) == [True, False, False, False]
    assert trial.interval() == [False, False, False, False, True]
    assert Trial("signs", judged((0.01, "better"), (-0.01, "worse"), (nan, "better"))).direction(per_word=True) == 0


def test_words_stand_at_the_first_look_that_decides(monkeypatch):
    def at(study, **_):
        detail = {3: "undecided", 4: "equivalent", 6: "better"}[len(study.seeds("v0"))]
        return [SimpleNamespace(child="v1", parent="v0", pair=("v1", "v0"), detail=detail, low=0.0, high=0.0)]

    monkeypatch.setattr(comparisons, "judge_comparisons", at)
    [world] = made(normal_study(variants=2, seeds=6, looks=[3, 4, 6, 8]), "signs", 1)
    assert [comparison.word for comparison in judge("signs", world).comparisons] == ["equivalent"]


def test_other_pairs_than_parent_and_child_are_judged_as_the_plan_compares_them():
    listed = [["v3", "v0"], ["v1", "v2"], ["v3", "v1"]]
    for compared, count in (("root", 3), (listed, 3)):
        study = normal_study(variants=4, seeds=4, items=60, shape="chain", comparisons=compared)
        found = evidence_of(study, Size(lineages=2, comparisons=3))
        assert {e.trials for e in found if e.word == "interval"} == {2 * count}
        [world] = made(study, "planted", 1)
        gains = np.array(list(world.gains.values()))
        assert np.ptp(gains) > 0.01
