"""Of the plans that promise 80%, how many decide: a pilot, the plan made of it, and a study of that size."""

from dataclasses import replace

import numpy as np

from ablation.judge.comparisons import judge_comparisons
from ablation.judge.correct import Correction
from ablation.judge.planning import MOST_SEEDS, fewest_seeds, sampling_variance, split
from tests.ablation.judge.studies import measurements, variant_tree
from tests.simulations.sizes import assert_shares, sized

SEED_SD, ITEM_SD, SHARED_SD = 0.02, 0.2, 0.05  # of a run; of a run's item; of what a variant does to an item


def drawn(rng, *, seeds, items, effect, variants=2, **analysis):
    """A fan of comparisons, the first of which has the effect: graded items, noise of seeds, of items and of both."""
    values, ease = {}, rng.normal(0.5, 0.1, items)
    for name in variant_tree(variants):
        shift = rng.normal(0, SEED_SD, (seeds, 1)) + rng.normal(0, SHARED_SD, items)
        values[name] = {"all": ease + shift + rng.normal(0, ITEM_SD, (seeds, items)) + effect * (name == "v1")}
    return measurements(values, variant_tree(variants), margin=1e-6, **analysis)


def sampled(rng, *, seeds, items, effect, samples):
    """A comparison of right and wrong samples, with means of items; what a seed changes, it changes for good."""
    values, rate = {}, rng.uniform(0.2, 0.8, items)
    for name in variant_tree(2):
        shift = rng.normal(0, SEED_SD, (seeds, 1)) + rng.normal(0, SHARED_SD, (seeds, items))
        chance = np.clip(rate + shift + effect * (name == "v1"), 0, 1)
        values[name] = {"all": rng.binomial(samples, chance) / samples}
    return replace(measurements(values, variant_tree(2), margin=1e-6), samples=dict.fromkeys(values, samples))


def deciding_with_more_samples(replicates, *, seeds, items, effect, samples, planned):
    """Share of the plans of more samples than the pilot's whose study finds the effect."""
    rng, found = np.random.default_rng(43), []
    for _ in range(replicates):
        pilot = sampled(rng, seeds=seeds, items=items, effect=effect, samples=samples)
        [comparison] = judge_comparisons(pilot)
        told = split(comparison).evaluated(samples, 1, sampling_variance(pilot, comparison), 0.0).at(planned, 1)
        count = fewest_seeds(told, effect, items, lambda _: 0.05, 0.8) or MOST_SEEDS
        study = sampled(rng, seeds=count, items=items, effect=effect, samples=planned)
        found.append(judge_comparisons(study)[0].detail == "better")
    return float(np.mean(found))


def deciding(replicates, *, pilot_seeds, pilot_items, items, effect, **world):
    """Share of the plans whose study finds the effect."""
    rng, found = np.random.default_rng(41), []
    for _ in range(replicates):
        pilot = drawn(rng, seeds=pilot_seeds, items=pilot_items, effect=effect, **world)
        comparisons = judge_comparisons(pilot)
        level = Correction.of(pilot, comparisons).level
        planned = fewest_seeds(split(comparisons[0]), effect, items, lambda _, level=level: level, 0.8) or MOST_SEEDS
        study = drawn(rng, seeds=planned, items=items, effect=effect, **world)
        found.append(judge_comparisons(study)[0].detail == "better")
    return float(np.mean(found))


SCENARIOS = {  # the share that decided, of 150 plans
    "five seeds": {"pilot_seeds": 5, "effect": 0.03},  # 85%
    "three seeds": {"pilot_seeds": 3, "effect": 0.04},  # 81%
    "ten seeds": {"pilot_seeds": 10, "effect": 0.03},  # 83%
    "more items in the pilot": {"pilot_seeds": 5, "effect": 0.03, "pilot_items": 400},  # 80%
}


SAMPLES = {
    f"{samples} samples, then {planned}": {"samples": samples, "planned": planned}
    for samples, planned in ((2, 8), (8, 2))
}


@sized(slow=30, long=150)
def test_of_plans_that_promise_80_percent_75_to_88_decide(replicates):
    plain = {"pilot_items": 200, "items": 200}
    found = {name: deciding(replicates, **(plain | world)) for name, world in SCENARIOS.items()}
    more = {"seeds": 5, "items": 100, "effect": 0.03}
    found |= {name: deciding_with_more_samples(replicates, **more, **world) for name, world in SAMPLES.items()}
    assert 0.75 <= np.mean([*found.values()]) <= 0.88, found
    assert_shares(found, replicates, 0.8, 0.83)
