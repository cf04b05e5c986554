"""How often guardrails are said to hold that do not, and how often they are where nothing is lost."""

import numpy as np

from ablation.config.study_schema import Guardrail
from ablation.judge.gate import as_guardrail, guard
from tests.simulations.sizes import assert_shares, sized
from tests.simulations.test_gate import MARGIN, STAR, of_items, of_lost_items, of_seeds


def studies(make, rng, rails, world):
    """The same runs' values of several guardrails, each of which loses its margin, or what `world` says."""
    found = [make(rng, **world) for _ in range(rails)]
    plans = [Guardrail(metric="hit", direction=s.analysis.direction, margin=s.analysis.margin) for s in found]
    return [as_guardrail(study, plan, rails) for study, plan in zip(found, plans, strict=True)]


def held(make, replicates, *, every=False, rails=2, **world):
    """Share of studies of which any guardrail holds on any comparison, or share of the guardrails that do."""
    rng, shares = np.random.default_rng(41), []
    for _ in range(replicates):
        guarded = guard(studies(make, rng, rails, world)).values()
        verdicts = [rail.verdict == "holds" for of_comparison in guarded for rail in of_comparison]
        shares.append(np.mean(verdicts) if every else any(verdicts))
    return float(np.mean(shares))


SCENARIOS = {
    "two guardrails": (of_items, {"effect": -MARGIN, "seeds": 8}),
    "five comparisons": (of_items, {"effect": -MARGIN, "seeds": 8, "variants": 6}),
    "few items": (of_items, {"effect": -MARGIN, "seeds": 8, "items": 25}),
    "one, lost items": (of_lost_items, {"share": MARGIN, "items": 100, "rails": 1}),
    "moderated": (of_seeds, {"world": STAR, "effect": -8, "rare": 0.65}),
}


@sized(fast=6, slow=25, long=400)
def test_a_guardrail_that_is_broken_by_its_margin_holds_in_at_most_5_percent(replicates):
    found = {name: held(make, replicates, **world) for name, (make, world) in SCENARIOS.items()}
    assert_shares(found, replicates, high=0.05)


def test_guardrails_of_a_change_without_effect_mostly_hold():
    assert held(of_items, 30, every=True, seeds=8) > 0.8
