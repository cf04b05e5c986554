"""The certificate: bounds by hand, worlds whose truth is known, splits, sealing, and what is certified."""

import hashlib
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import special, stats

from tests.tracker.judge.studies import let_judge, lineage, measurements, naive_edges, normal_study
from tracker.judge.certificate import pseudo
from tracker.judge.certificate.bounds import ENOUGH, design_effect, effective_units, lower_bound, upper_bound
from tracker.judge.certificate.certify import Size, certify, record
from tracker.judge.certificate.changes import change_items
from tracker.judge.certificate.noise import Noise, noise_of, seeds_share
from tracker.judge.certificate.planting import (
    MORE,
    PLAIN,
    Node,
    acting_share,
    draw_items,
    expected_gain,
    planted_trials,
)
from tracker.judge.certificate.pseudo import pseudo_study, usable, words
from tracker.judge.certificate.sealed import disjoint_edges, predict, seal_and_open, sealed_items, sealed_seeds
from tracker.judge.certificate.splits import arm_size, disjoint_splits, split_trials
from tracker.judge.certificate.tally import tally
from tracker.judge.certificate.trials import Level, Trial
from tracker.judge.edges import Edge
from tracker.judge.scope import DECIDED

ZERO = Level("zero", 0.0)


@pytest.fixture
def naive(monkeypatch):
    """Let a simple pipeline judge: fast, and with the faults of old."""
    let_judge(monkeypatch, naive_edges)


def keep(entry):
    """Forget what would be written."""


def test_bounds_are_those_of_clopper_and_pearson():
    assert lower_bound(1, 20) == pytest.approx(1 - 0.95 ** (1 / 20))
    assert upper_bound(0, 14) == pytest.approx(1 - 0.05 ** (1 / 14))
    for wrong, trials in ((3, 17), (9, 10), (0, 5), (5, 5)):
        exact = stats.binomtest(wrong, trials).proportion_ci(0.9, "exact")
        assert lower_bound(wrong, trials) == pytest.approx(exact.low)
        assert upper_bound(wrong, trials) == pytest.approx(exact.high)
    assert upper_bound(0, 0) == 1


def test_enough_splits_exclude_a_word_that_is_wrong_one_time_in_five():
    assert upper_bound(0, ENOUGH) < 0.2 <= upper_bound(0, ENOUGH - 1)


def test_trials_in_groups_count_less_where_groups_differ():
    assert design_effect([1, 0, 1, 0], [10, 10, 10, 10]) == pytest.approx(40 * 0.25 / 3 / 0.25)  # 3 degrees of freedom
    assert design_effect([0.5, 0.5, 0.5], [10, 10, 10]) == 1
    assert design_effect([0, 0], [5, 5]) == 1
    assert design_effect([1, 0, 0], [1, 1, 1]) == 1


def test_units_that_share_all_their_noise_are_one():
    assert effective_units(20, 1) == 1
    assert effective_units(20, 0) == 20
    assert effective_units(1, 0.5) == 1


def test_the_part_of_the_noise_that_seeds_share_is_found():
    alone = usable(normal_study(variants=40, seeds=8, items=400, seed_sd=0.05, seed=1))
    together = usable(normal_study(variants=40, seeds=8, items=400, seed_sd=0.0, shared_sd=0.1, seed=2))
    assert seeds_share(alone) < 0.1
    assert seeds_share(together) > 0.8


@pytest.mark.parametrize(("move", "volume"), [(0.02, 0.0), (-0.05, 0.1), (0.0, 0.3), (0.25, 0.9), (0.0, 5.0)])
def test_items_change_by_a_known_amount(move, volume):
    rng = np.random.default_rng(0)
    values = np.tile((np.arange(50) < 30).astype(float), (2, 1))
    mean = values.mean(axis=1)
    found = []
    for _ in range(4000):
        changed, after = change_items(
            values, mean, np.full(2, move), volume=volume, low=0.0, high=1.0, draw=rng.random((1, 50))
        )
        found.append(changed.mean(axis=1))
        assert after == pytest.approx(mean + move)
    assert np.mean(found) == pytest.approx(0.6 + move, abs=4 * np.std(found) / np.sqrt(4000))
    assert np.ptp(np.array(found), axis=1).max() == 0  # seeds share the change


def test_whole_clusters_are_drawn():
    clusters = [np.repeat(np.arange(10), 3), np.repeat(np.arange(5, 15), 2)]
    places, names = draw_items(clusters, np.random.default_rng(0))
    assert [len(found) for found in places] == [30, 20]
    for of, place, name in zip(clusters, places, names, strict=True):
        for drawn in np.unique(name)[:-1]:  # the last may be cut
            members = of[place[name == drawn]]
            assert len(set(members)) == 1
            assert sorted(place[name == drawn]) == np.flatnonzero(of == members[0]).tolist()
    shared = set(names[0]) & set(names[1])
    assert all(set(clusters[0][places[0][names[0] == c]]) == set(clusters[1][places[1][names[1] == c]]) for c in shared)


def test_gain_at_a_target_is_the_mean_distance_over_seeds():
    study = normal_study(direction={"target": 0.5})
    rng = np.random.default_rng(0)
    for mean, spread in ((0.52, 0.03), (0.5, 0.1), (0.4, 0.01)):
        brute = -np.abs(mean - 0.5 + spread * rng.standard_normal(400_000)).mean()
        node = Node([np.zeros((2, 1))], [np.full(2, mean)], spread)
        assert expected_gain(study, node) == pytest.approx(brute, abs=3e-4)


def test_noise_of_the_edges_is_measured():
    rng = np.random.default_rng(3)
    base = (rng.random((6, 20_000)) < 0.6).astype(float)
    hit = rng.random(20_000) < 0.1  # changed in every seed; and new in every run: another tenth
    child = np.where(hit, 1 - base, base)
    child = np.where(rng.random(child.shape) < 0.1, 1 - child, child)
    shift = rng.normal(0, 0.03, 6)
    child = np.where(rng.random(child.shape) < np.abs(shift[:, None]), (shift[:, None] > 0).astype(float), child)
    study = measurements({"v0": {"all": base}, "v1": {"all": child}}, lineage(2))
    noise = noise_of(study, usable(study))
    assert noise.common + noise.fresh == pytest.approx((child != base).mean(), abs=0.005)
    assert 0.005 < noise.shift < 0.06


def test_a_split_child_has_other_seeds_than_its_parent(monkeypatch):
    seen = []
    monkeypatch.setattr(pseudo, "judge_edges", lambda study, **_: seen.append(study) or [])
    parents = lineage(6, "chain") | {"v5": "v1"}
    rng = np.random.default_rng(0)
    study = measurements({name: {"all": rng.random((5, 30))} for name in parents}, parents)
    runs = usable(study)
    assert (arm_size(runs), disjoint_splits(runs, 2)) == (2, 6)
    assert len(list(split_trials(study, runs, (ZERO,), 3, 0))) == 18
    for made in seen:
        assert [(variant.name, variant.parent) for variant in made.variants] == list(parents.items())
        [source] = {
            name
            for name in parents
            if any(np.array_equal(made.values["v0", 0]["all"], row) for row in runs.values[name][1][0])
        }
        rows = {row.tobytes(): place for place, row in enumerate(runs.values[source][1][0])}
        taken = {n: [rows[made.values[n, s]["all"].to_numpy().tobytes()] for s in (0, 1)] for n in parents}
        assert all(not set(taken[child]) & set(taken[parent]) for child, parent in parents.items() if parent)


def test_arms_are_as_large_as_leaves_enough_splits():
    many = usable(normal_study(variants=60, seeds=8, items=100, seed_sd=0.03))
    few = usable(normal_study(variants=4, seeds=8, items=100, seed_sd=0.03))
    assert (arm_size(many), arm_size(few)) == (4, 2)


def test_runs_that_did_not_end_well_are_left_out():
    study = normal_study(variants=3)
    broken = replace(
        study, states=study.states | {("v1", 2): ("failed", "x")}, aborted={("v2", 0): "NaN"}, duplicates={("v2", 1)}
    )
    runs = usable(broken)
    assert [runs.values[name][0] for name in ("v0", "v1", "v2")] == [[0, 1, 2, 3, 4], [0, 1, 3, 4], [2, 3, 4]]


@pytest.mark.parametrize(
    ("form", "direction"),
    [("items", "max"), ("items", {"target": 0.2}), ("clusters", "max"), ("seeds", "min"), ("rare", "max")],
)
def test_planted_effects_are_those_that_are_measured(form, direction, monkeypatch):
    """Over many worlds the mean effect of the planted edges is what the truth says."""
    parents = {"v1": "v0", "v2": "v1", "v3": "v2"}
    study = normal_study(variants=4, seeds=6, items=300, size=5, shape="chain", direction=direction)
    made = []

    def gain(study, name):
        means = np.array([study.values[name, seed]["all"].mean() for seed in range(6)])
        if isinstance(direction, dict):  # far from the target: no seed crosses it
            return -np.abs(means - direction["target"]).mean()
        return means.mean() if direction == "max" else -means.mean()

    def judge(study):
        made.append([gain(study, child) - gain(study, parent) for child, parent in parents.items()])
        return dict.fromkeys(parents, "undecided")

    monkeypatch.setattr("tracker.judge.certificate.trials.words", judge)
    noise, level = Noise(0.02, 0.2, 0.01), Level("mde", 0.03)
    trials = list(planted_trials(study, usable(study), noise, form, level, rounds=60, seed=1))
    truths = np.array([[truth for truth, _ in trial.edges] for trial in trials])
    assert np.abs(truths) == pytest.approx(PLAIN * 0.03 if form == "seeds" else 0.03)
    errors = (np.array(made) - truths).ravel()
    assert abs(errors.mean()) <= 4 * errors.std() / np.sqrt(errors.size)
    assert errors.std() > 0


def test_a_change_acts_in_more_seeds_than_equivalent_leaves_open():
    plain, looked = normal_study().analysis, normal_study(looks=[3, 4, 6, 8]).analysis
    assert acting_share(plain, 5) == pytest.approx(1 - 0.05 ** (1 / 5) + MORE)  # 46%
    assert acting_share(looked, 8) == pytest.approx(1 - 0.05 ** (1 / 6) + MORE)  # the first look that may say it
    assert [acting_share(plain, seeds) for seeds in (1, 2, 3)] == [0.5 + MORE] * 3  # `rare`: it must not be said
    assert acting_share(looked, 2) == 0.5 + MORE
    for seeds in (5, 8, 20):  # the chance that none of so many shows it
        assert 0.03 < (1 - acting_share(plain, seeds)) ** seeds < 0.05


def test_nothing_is_planted_where_verdicts_speak_of_these_items_alone():
    """Planted effects are of items that are drawn anew, and two clusters stand for no others."""
    single = {"items", "seeds", "rare"}
    for size, planted in ((100, set()), (10, single | {"clusters"}), (1, single)):
        study = normal_study(variants=3, seeds=4, items=200, size=size)
        found = certify(study, lambda _: None, Size(zero=1, edges=2, mde=0))
        assert {e.kind for e in found.evidence} & {"items", "clusters", "seeds", "rare"} == planted


def test_equivalent_promises_its_share_of_seeds_at_alpha():
    analysis = normal_study().analysis
    trials = [Trial(form, "margin", "u", ((0.02, "equivalent"),), 0.02) for form in ("items", "seeds", "splits")]
    promised = {
        found.kind: found.promise for found in tally(trials, analysis, splits=1.0, arm=5) if found.word == "equivalent"
    }
    assert promised == {"items": 0.025, "seeds": 0.05, "splits": 0.025}


def test_all_lower_bounds_of_a_word_together_err_in_a_twentieth(monkeypatch):
    let_judge(monkeypatch, partial(naive_edges, holm=False, items=False))
    found = certify(normal_study(seeds=4), keep, Size(zero=3, edges=10, mde=0, forms=("items",))).evidence
    assert "sealed" in {e.kind for e in found}
    judged = [e for e in found if e.word in ("better or worse", "interval")]
    wrong = [e for e in judged if 0 < e.rate < 1]
    # What each bound may err in, from the bound itself.
    errs = [special.betainc(e.rate * e.effective, e.effective * (1 - e.rate) + 1, e.lower) for e in wrong]
    assert 0 < len(judged) * max(errs) <= 0.05 * (1 + 1e-6)


def test_what_counts_as_wrong():
    edges = ((0.0, "better"), (0.02, "equivalent"), (-0.03, "worse"), (None, "worse"), (0.05, "undecided"))
    trial = Trial("items", "zero", "u", edges, 0.02)
    assert trial.false_direction()
    assert trial.falsely_equivalent() == [True, False, False]
    assert trial.right("worse") == [True]
    assert trial.right("better") == [False, False]
    assert Trial("items", "zero", "u", ((0.01, "better"), (-0.01, "worse")), 0.02).false_direction() is False
    assert Trial("items", "zero", "u", ((None, "better"),), 0.02).false_direction() is None


def test_many_splits_of_few_seeds_are_few_trials():
    analysis = normal_study().analysis
    trials = [Trial("splits", "zero", f"v{i % 6}", ((0.0, "undecided"),), 0.02) for i in range(600)]
    [found] = tally(trials, analysis, splits=6.0, arm=3)
    assert (found.trials, found.effective) == (600, 6.0)
    assert found.upper == pytest.approx(1 - 0.05 ** (1 / 6))


def test_splits_in_which_no_word_could_be_said_certify_nothing(monkeypatch):
    """Arms of two: below the first look, without moderated variances, and too few for `equivalent`."""

    def judge(study, **_):  # what the pipeline says of such arms
        return [Edge("s", v.parent, v.name, detail="undecided") for v in study.variants if v.parent]

    let_judge(monkeypatch, judge)
    study = normal_study(variants=20, seeds=5, items=100, looks=[3, 5, 10])
    found = certify(study, keep, Size(zero=0, edges=20, mde=0, forms=()))
    assert (found.arm, found.splits >= ENOUGH) == (2, True)
    assert {(word.word, word.status) for word in found.words} == {(w, "uncertified") for w in DECIDED}
    better, _, equivalent = (word.why for word in found.words)
    assert better == "5 seeds cannot be split into two arms of 3: 6 seeds of 14 variants could"
    assert equivalent == "5 seeds cannot be split into two arms of 5: 10 seeds of 14 variants could"
    assert {word.status for word in record([found]).words} == {"uncertified"}


@pytest.mark.parametrize(
    ("plan", "better", "equivalent"),
    [
        ({}, 3, 5),
        ({"variance": "own"}, 2, 5),
        ({"variance": "own", "looks": [4, 8], "rare": 0.65}, 4, 4),
        ({"variance": "own", "rare": 0.8}, 2, 2),
    ],
)
def test_arms_from_which_on_a_split_tells(plan, better, equivalent):
    analysis = normal_study(**plan).analysis
    trials = [Trial("splits", level, f"v{i}", ((0.02, "worse"),), 0.02) for i in range(20) for level in ("zero", "x")]
    for word, least in (("better or worse", better), ("equivalent", equivalent)):
        for arm in range(2, 7):
            [found] = [e for e in tally(trials, analysis, 20.0, arm) if e.word == word]
            assert found.kind == ("splits" if arm >= least else "small splits")


PAIRS = [["v3", "v0"], ["v1", "v2"], ["v3", "v1"], ["v2", "v1"]]


def test_what_is_compared_is_the_lineage_of_pseudo_studies(monkeypatch):
    judged = []
    real = pseudo.judge_edges
    monkeypatch.setattr(pseudo, "judge_edges", lambda study, **how: judged.append(study) or real(study, **how))
    for edges, parents in (
        ("root", {"v0": None, "v1": "v0", "v2": "v0", "v3": "v0"}),
        (PAIRS[:3], {"v0": None, "v1": "v2", "v2": None, "v3": "v0"}),
    ):
        study = normal_study(variants=4, seeds=4, items=60, shape="chain", edges=edges)
        assert pseudo.as_lineage(study).analysis.margin == study.analysis.margin
        judged.clear()
        certify(study, keep, Size(zero=1, edges=2, mde=0, forms=("items",)))
        assert judged
        for made in judged:
            assert {variant.name: variant.parent for variant in made.variants} == parents
            assert {(e.child, e.parent) for e in real(made)} == {(c, p) for c, p in parents.items() if p}
    study = replace(study, analysis=study.analysis.model_copy(update={"edges": PAIRS}))  # a circle, which no file has
    assert [v.parent for v in pseudo.as_lineage(study).variants if v.name in ("v1", "v2")].count(None) == 1


def test_two_pairs_of_one_child_are_sealed_apart():
    kept = []
    study = normal_study(variants=4, seeds=6, edges=PAIRS[:3])
    seal_and_open(study, usable(study), kept.append)
    assert set(kept[1]["opened"]) == set(kept[0]["commitments"]) == {"v3 after v0", "v1", "v3 after v1"}


def test_words_stand_at_the_first_look_that_decides(monkeypatch):
    def judge(study, *, planning):
        seeds = len(study.seeds("v0"))
        edge = Edge("s", "v0", "v1")
        edge.detail = {3: "undecided", 4: "equivalent", 6: "better"}[seeds]
        return [edge]

    monkeypatch.setattr(pseudo, "judge_edges", judge)
    assert words(normal_study(variants=2, seeds=6, looks=[3, 4, 6, 8])) == {"v1": "equivalent"}


def test_a_prediction_does_not_read_the_pool():
    study = normal_study(variants=4, seeds=6)
    runs = usable(study)
    seeds, items = sealed_seeds(study, runs), sealed_items(study, runs)
    assert seeds == [4, 5]
    assert 40 < items[0].sum() < 95
    rng = np.random.default_rng(0)
    spoilt = {
        run: {"all": (found["all"] * 0 + rng.random(200)).where(items[0] | (run[1] in seeds), found["all"])}
        for run, found in study.values.items()
    }
    other = replace(study, values=spoilt)
    assert any(not spoilt[run]["all"].equals(study.values[run]["all"]) for run in spoilt)
    assert predict(study, runs, seeds, items) == predict(other, usable(other), seeds, items)


def test_sealed_clusters_are_whole():
    study = normal_study(size=10)
    [mask] = sealed_items(study, usable(study))
    assert {tuple(block) for block in mask.reshape(-1, 10).tolist()} == {(True,) * 10, (False,) * 10}


def test_predictions_are_committed_before_the_pool_is_opened():
    kept = []
    study = normal_study(variants=4, seeds=6)
    sealed = seal_and_open(study, usable(study), lambda entry: kept.append(json.loads(json.dumps(entry))))
    before, after = kept
    assert "opened" not in before
    assert after["commitments"] == before["commitments"]
    for child, found in after["opened"].items():
        text = json.dumps([child, found["low"], found["high"], found["nonce"]])
        assert before["commitments"][child] == hashlib.sha256(text.encode()).hexdigest()
    assert sealed.inside == sum(f["low"] <= f["effect"] <= f["high"] for f in after["opened"].values())
    assert sealed.effective == 1  # three children of one parent


def test_two_seeds_can_neither_be_sealed_nor_split(naive):
    found = certify(normal_study(seeds=2), keep, Size(zero=2, edges=10))
    assert found.sealed is None
    assert (found.arm, found.splits) == (0, 0)
    assert {word.status for word in found.words} <= {"uncertified", "uncalibrated"}
    assert "2 seeds cannot be split into two arms of 3: 6 seeds" in found.words[0].why


def test_predicted_intervals_hold_for_normal_data(naive):
    inside = edges = 0
    for seed in range(100):
        study = normal_study(variants=3, seeds=5, items=120, seed_sd=0.01 * (seed % 4), seed=seed)
        sealed = seal_and_open(study, usable(study), keep)
        inside, edges = inside + sealed.inside, edges + sealed.edges
    assert inside / edges >= 0.93


def test_disjoint_edges_share_no_variant():
    class P:
        def __init__(self, child, parent):
            self.child, self.parent = child, parent

    assert disjoint_edges([P("b", "a"), P("c", "b"), P("d", "c"), P("e", "d")]) == 2
    assert disjoint_edges([P("b", "a"), P("c", "a"), P("d", "a")]) == 1


def test_the_record_adds_the_studies_up(naive):
    one = certify(normal_study(seed=1), keep, Size(zero=4, edges=40))
    two = certify(normal_study(seed=2, variants=9), keep, Size(zero=4, edges=40))
    both = record([one, two])
    for found in both.record:
        of = [e for e in (*one.evidence, *two.evidence) if (e.word, e.kind) == (found.word, found.kind)]
        assert found.trials == sum(e.trials for e in of)
        assert found.effective == pytest.approx(sum(e.effective for e in of))


def test_a_pseudo_study_is_the_study_with_other_values():
    study = normal_study(variants=3, size=10)
    runs = usable(study)
    made = pseudo_study(study, runs.values, runs.items)
    assert [e.effect for e in naive_edges(made)] == [e.effect for e in naive_edges(study)]
    assert made.clusters == study.clusters
    assert made.analysis == study.analysis
