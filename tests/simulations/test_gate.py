"""How often the gate passes a change, and a guardrail holds, that is worse by its margin, or without an effect."""

from math import sqrt

import numpy as np
from scipy import stats

from ablation.config.study_schema import Guardrail
from ablation.judge.comparisons import judge_comparisons
from ablation.judge.gate import answers, as_guardrail, guard
from tests.ablation.judge.studies import measurements, variant_tree
from tests.simulations.sizes import assert_shares, sized
from tests.simulations.test_family import World

EASE = 0.8
MARGIN = 0.05


def of_items(rng, *, variants=2, seeds=5, items=500, effect=0.0, rate=0.6, **analysis):
    """Items of 0 and 1 of different ease, a little seed noise, and a fan of comparisons that all have one effect."""
    ease, values = rng.normal(0, EASE, items), {}
    for name, parent in variant_tree(variants).items():
        level = stats.norm.ppf(rate + (effect if parent else 0.0))
        shift = level * sqrt(1 + EASE**2) + rng.normal(0, 0.02, (seeds, 1))
        values[name] = {"all": shift + ease + rng.standard_normal((seeds, items)) > 0}
    return measurements(values, variant_tree(variants), margin=MARGIN, **analysis)


def of_lost_items(rng, *, items, share):
    """A parent that is right throughout, and a child that loses a share of all items, in every seed."""
    lost = rng.uniform(size=items) < share
    values = {"v0": {"all": np.ones((5, items))}, "v1": {"all": np.tile(~lost, (5, 1))}}
    return measurements(values, variant_tree(2), margin=MARGIN)


def of_seeds(rng, *, world, effect, **analysis):
    """Runs of one item: seed noise only. Margin and effect in standard errors of a stable comparison."""
    unit = sqrt(2 / world.seeds)
    gains = world.draw(rng)
    gains[1:] += effect * unit
    values = {f"v{n}": {"all": row[:, None]} for n, row in enumerate(gains)}
    return measurements(values, variant_tree(world.variants), margin=8 * unit, **analysis)


def passed(make, replicates, *, every=False, **world):
    """Share of studies of which any comparison passes, or share of the comparisons that do."""
    rng, shares = np.random.default_rng(31), []
    for _ in range(replicates):
        study = make(rng, **world)
        comparisons = judge_comparisons(study)
        found = [answer.outcome == "passed" for answer in answers(study, comparisons, "not-worse", comparisons)]
        shares.append(np.mean(found) if every else any(found))
    return float(np.mean(shares))


STAR = World(8, 5, "star")
SCENARIOS = {
    "one comparison": (of_items, {"effect": -MARGIN}),
    "three seeds": (of_items, {"effect": -MARGIN, "seeds": 3, "rare": 0.65}),
    "six comparisons": (of_items, {"effect": -MARGIN, "variants": 7}),
    "few items": (of_items, {"effect": -MARGIN, "items": 25}),
    "at a target": (of_items, {"effect": MARGIN, "rate": 0.5, "direction": {"target": 0.5}}),
    "away from it": (of_items, {"effect": MARGIN, "direction": {"target": 0.5}}),
    "lost items": (of_lost_items, {"share": MARGIN, "items": 100}),
    "moderated": (of_seeds, {"world": STAR, "effect": -8}),
    "unstable": (of_seeds, {"world": World(8, 5, "star", "one unstable"), "effect": -8}),
    "holm": (of_seeds, {"world": STAR, "effect": -8, "correction": "holm"}),
    "interim analyses": (of_seeds, {"world": World(8, 8, "star"), "effect": -8, "interim_analyses": [5, 8]}),
}


@sized(fast=8, slow=25, long=400)
def test_a_change_that_is_worse_by_the_margin_passes_in_at_most_5_percent(replicates):
    found = {name: passed(make, replicates, **world) for name, (make, world) in SCENARIOS.items()}
    assert_shares(found, replicates, high=0.05)


def test_a_change_without_effect_mostly_passes():
    """As the margin leaves it room: without this a gate that never opens would hold its promise."""
    assert passed(of_items, 40, every=True) > 0.8
    assert passed(of_seeds, 15, every=True, world=STAR, effect=0.0) > 0.95


def guarded(make, rng, rails, world):
    """The same runs' values of several guardrails, each of which loses its margin, or what `world` says."""
    found = [make(rng, **world) for _ in range(rails)]
    plans = [Guardrail(metric="hit", direction=s.analysis.direction, margin=s.analysis.margin) for s in found]
    return guard([as_guardrail(study, plan, rails) for study, plan in zip(found, plans, strict=True)]).values()


def held(make, replicates, *, every=False, rails=2, **world):
    """Share of studies of which any guardrail holds on any comparison, or share of the guardrails that do."""
    rng, shares = np.random.default_rng(41), []
    for _ in range(replicates):
        found = [rail.verdict == "holds" for of in guarded(make, rng, rails, world) for rail in of]
        shares.append(np.mean(found) if every else any(found))
    return float(np.mean(shares))


GUARDRAILS = {
    "two guardrails": (of_items, {"effect": -MARGIN, "seeds": 8}),
    "five comparisons": (of_items, {"effect": -MARGIN, "seeds": 8, "variants": 6}),
    "few items": (of_items, {"effect": -MARGIN, "seeds": 8, "items": 25}),
    "one, lost items": (of_lost_items, {"share": MARGIN, "items": 100, "rails": 1}),
    "moderated": (of_seeds, {"world": STAR, "effect": -8, "rare": 0.65}),
}


@sized(fast=6, slow=25, long=400)
def test_a_guardrail_that_is_broken_by_its_margin_holds_in_at_most_5_percent(replicates):
    found = {name: held(make, replicates, **world) for name, (make, world) in GUARDRAILS.items()}
    assert_shares(found, replicates, high=0.05)


def test_guardrails_of_a_change_without_effect_mostly_hold():
    assert held(of_items, 30, every=True, seeds=8) > 0.8
