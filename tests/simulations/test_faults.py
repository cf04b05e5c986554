"""Faults that are put into the judging are found in worlds of known truth, and nothing is found without them.

Run as a script (`python -m tests.simulations.test_faults [DATABASE STUDY]`) it prints what is found of each fault, and
then in 40 studies without one. Two of the faults, max-t over all comparisons as one and unpaired sides, do not make a
verdict wrong.
"""

import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ablation.judge import comparisons, correct, measure, measurements, significance, statistics
from ablation.judge.family import Family
from ablation.judge.measurements import read_measurements
from ablation.judge.statistics import Crossing
from ablation.store.database import Store
from tests.ablation.judge.studies import normal_study
from tests.simulations.tally import Size, evidence_of

pytestmark = pytest.mark.long

JUDGE, CONTRAST, PRIOR, OF = comparisons.judge_comparisons, measure.contrast_groups, measurements.seed_prior, Family.of
HALF, SQUARE = significance.half_width, significance.critical_square


def planned(**changes):
    """Judge by another plan than the study's."""

    def judge(study):
        made = {name: change(study.analysis) if callable(change) else change for name, change in changes.items()}
        return JUDGE(replace(study, analysis=study.analysis.model_copy(update=made)))

    return ("judge", judge)


def without_clusters(study):
    return JUDGE(replace(study, clusters={}, numbered={}))


def other_way_round(study):
    turned = {"better": "worse", "worse": "better"}
    comparisons = JUDGE(study)
    for comparison in comparisons:
        verdict, interim = comparison._basis
        vars(comparison)["_basis"] = turned.get(verdict, verdict), interim
    return comparisons


def with_noise(change):
    """Let `change(groups, estimate)` say which noise an estimate has."""

    def contrast(groups, *arguments):
        found = CONTRAST(groups, *arguments)
        return replace(found, noise=change(groups, found)) if found.seeds > 1 else found

    return contrast


def unpaired(groups, found):
    gains = np.concatenate([group.means.mean(axis=2) for group in groups])
    return replace(
        found.noise, seed_variance=gains.var(axis=1, ddof=1).sum() / found.seeds, seed_df=2 * found.seeds - 2
    )


def unguarded(*arguments):
    found = CONTRAST(*arguments)
    return replace(found, crossing=Crossing(1.0, 0.0, np.full(1, found.centre)))


def known_prior(gains, **design):
    found = PRIOR(gains, **design)
    if found is None:
        return None
    spread = dict.fromkeys(found.spread, found.variance)
    return replace(found, df=1e6, unstable=frozenset(), spread=spread)


def as_one(by_seed, by_item, *arguments):
    return OF(np.ones_like(by_seed), 0 * by_item, *arguments)


def as_they_are(p, *_):
    return np.asarray(p, dtype=float)


FAULTS: dict[str, Any] = {
    "z for t": [(significance, "student_isf", lambda df, probability: significance.normal_isf(probability))],
    "no correction": [
        (correct, "holm", as_they_are),
        (correct, "benjamini_hochberg", as_they_are),
        (Family, "adjusted", lambda self, p: as_they_are(p)),
    ],
    "max-t over all comparisons as one": [(Family, "of", as_one)],
    "the prior taken as known": [(measurements, "seed_prior", known_prior)],
    "unpaired": [(measure, "contrast_groups", with_noise(unpaired))],
    "seed variance dropped": [
        (measure, "contrast_groups", with_noise(lambda _, found: replace(found.noise, seed_variance=0.0))),
        (measurements, "seed_prior", lambda *_, **__: None),
    ],
    "item variance dropped": [
        (measure, "contrast_groups", with_noise(lambda _, found: replace(found.noise, item_variance=0.0)))
    ],
    "clusters ignored": [("judge", without_clusters)],
    "interim analyses ignored": [planned(interim_analyses=[])],
    "margin x 1.5": [planned(margin=lambda analysis: 1.5 * analysis.margin)],
    "signs": [("judge", other_way_round)],
    "position": [(measurements, "_item_faults", lambda study, runs: [])],
    "folding unguarded": [(measure, "contrast_groups", unguarded)],
    "`rare` not asked": [planned(rare=1.0)],
    "nothing unseen": [(statistics, "unseen", lambda *_: 0.0)],
    "20% too narrow": [
        (statistics, "half_width", lambda *noise: 0.8 * HALF(*noise)),
        (significance, "critical_square", lambda *noise, **sides: 0.64 * SQUARE(*noise, **sides)),
    ],
}

STUDIES = {
    "plain": partial(normal_study, variants=13, seeds=10, items=200, seed_sd=0.02),
    "unequal spreads": partial(normal_study, variants=13, items=300, seed_sd=0.02, unequal=1.5),
    "clusters": partial(normal_study, variants=9, items=400, size=10, together=0.3),
    "interim analyses": partial(
        normal_study, variants=2, seeds=12, items=100, seed_sd=0.05, interim_analyses=[*range(3, 13)], variance="own"
    ),
    "near a target": partial(normal_study, variants=6, rate=0.55, ease_sd=3.0, direction={"target": 0.5}),
    "quiet": partial(normal_study, variants=9, items=500, seed_sd=0.001, ease_sd=8.0),
    "few items": partial(normal_study, variants=9, items=100, rate=0.9),
    "own variances": partial(normal_study, variants=9, seeds=3, items=200, seed_sd=0.03, variance="own"),
}


@contextmanager
def faulty(fault):
    with pytest.MonkeyPatch.context() as patch:
        for what in FAULTS.get(fault, ()):
            if what[0] == "judge":
                patch.setattr(comparisons, "judge_comparisons", what[1])
            else:
                patch.setattr(*what)
        significance.p_value.cache_clear()
        try:
            yield
        finally:
            significance.p_value.cache_clear()


def found(study, fault, size=None):
    """What is found wrong: evidence whose lower bound is above the promise, the worst first."""
    with faulty(fault):
        evidence = evidence_of(study, size or Size())
    return sorted((e for e in evidence if e.lower > e.promise), key=lambda e: e.promise - e.lower)


IN = {  # where a fault is found in a short time: study, form, number of lineages (comparisons, where there is no noise)
    "z for t": ("own variances", "signs", 60),
    "no correction": ("own variances", "signs", 120),
    "seed variance dropped": ("plain", "signs", 30),
    "item variance dropped": ("clusters", "signs", 100),
    "clusters ignored": ("clusters", "planted", 200),
    "interim analyses ignored": ("interim analyses", "signs", 200),
    "margin x 1.5": ("quiet", "planted", 50),
    "signs": ("plain", "planted", 10),
    "position": ("quiet", "unpaired", 40),
    "folding unguarded": ("near a target", "across", 100),
    "`rare` not asked": ("own variances", "seeds", 400),
    "nothing unseen": ("few items", "rare", 400),
    "20% too narrow": ("unequal spreads", "signs", 200),
}


def size_of(form, number):
    return Size(trees=number, comparisons=number, forms=(form,))


@pytest.mark.parametrize("fault", IN)
def test_a_fault_is_found(fault):
    study, form, number = IN[fault]
    assert found(STUDIES[study](), fault, size_of(form, number))


@pytest.mark.parametrize("study", ["own variances", "quiet", "few items", "interim analyses"])
def test_the_pipeline_passes_without_a_fault(study):
    assert not found(STUDIES[study](), "none", Size(trees=60, comparisons=200))


def show(name, study, fault):
    wrong = [
        f"{e.verdict} ({e.form}) {e.rate:.1%}, at least {e.lower:.1%}, promised {e.promise:.1%}"
        for e in found(study, fault)
    ]
    print(fault, name, *wrong[:1] or ["not found"], sep=" | ", flush=True)


if __name__ == "__main__":  # [DATABASE STUDY]: every fault in a study of a database, else each in a study made for it
    if sys.argv[1:]:
        with Store(Path(sys.argv[1])) as store:
            measured = read_measurements(store, sys.argv[2])
        for one in ("none", *FAULTS):
            show(sys.argv[2], measured, one)
    else:
        for one in FAULTS:
            made = IN[one][0] if one in IN else "unequal spreads"
            show(made, STUDIES[made](), one)
        for seed, made in product(range(1, 6), STUDIES):
            show(f"{made}, seed {seed}", STUDIES[made](seed=seed), "none")
