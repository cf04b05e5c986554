"""Effects with known truth: what `explain` names, of all combinations, a fraction and groups."""

import re

import numpy as np
import pytest

from ablation.judge.explain import explain, explain_groups, next_cuts
from ablation.judge.factorial import design
from tests.ablation.judge.studies import measurements
from tests.simulations.sizes import assert_shares, sized

SEED_SD, ITEM_SD, SHARED_SD = 0.02, 0.2, 0.02  # of a run; of a run's item; of what a variant does to an item

TRUTHS = {
    "none": lambda run: 0.0,
    "sparse": lambda run: 0.08 * (1 in run),
    "dense": lambda run: 0.06 * len(run),
    "interacting": lambda run: 0.12 * ({0, 2} <= run),
}


def drawn(rng, runs, truth, seeds=5, items=100):
    """A study of runs {factors as in B: name}: graded items, noise of seeds, of items and of both."""
    ease, values = rng.normal(0.5, 0.1, items), {}
    for run, name in runs.items():
        shift = rng.normal(0, SEED_SD, (seeds, 1)) + rng.normal(0, SHARED_SD, items)
        values[name] = {"all": ease + truth(run) + shift + rng.normal(0, ITEM_SD, (seeds, items))}
    return measurements(values, dict.fromkeys(values), margin=1e-6)


def explained(rng, n, truth):
    runs = {run: "".join(map(str, sorted(run))) or "none" for run in design(n)}
    return explain(drawn(rng, runs, truth), runs, n)


def by_groups(rng, n, truth):
    """Halve groups until nothing is left to be tested; the runs of earlier rounds stay as they are."""
    every = {frozenset(range(cut)): str(cut) for cut in range(n + 1)}
    study, cuts = drawn(rng, every, truth), {0, n}
    while True:
        found = explain_groups(study, {cut: str(cut) for cut in cuts}, n)
        if not (more := next_cuts(found)):
            return found, len(cuts)
        cuts |= set(more)


def named(found):
    """The single factors that are shown."""
    return {factor for part in found.parts if part.shown and len(part.sets[0]) == 1 for factor in part.sets[0]}


@sized(fast=5, slow=15, long=60)
def test_factors_are_named_as_they_are(replicates):
    right, false, covered = {}, {}, {}
    for n in (3, 7) if replicates > 5 else (3,):
        rng, letters, words = np.random.default_rng(n), "abcdefg"[:n], {}
        expected = {"none": set(), "sparse": {1}, "dense": set(range(n)), "interacting": {0, 2}}
        for name, truth in TRUTHS.items():
            every = [explained(rng, n, truth) for _ in range(replicates)]
            right[f"{name} of {n}"] = np.mean([named(found) == expected[name] for found in every])
            false[f"{name} of {n}"] = np.mean([bool(named(found) - expected[name]) for found in every])
            false[f"{name} of {n}, joint"] = np.mean(
                [
                    any(p.shown and len(p.sets[0]) > 1 and frozenset({0, 2}) not in p.sets for p in found.joint)
                    for found in every
                ]
            )
            if name == "sparse":
                parts = [found.parts[1] for found in every]
                covered[f"of {n}"] = np.mean([part.low <= 0.08 <= part.high for part in parts])
            last = next((found for found in reversed(every) if named(found) == expected[name]), every[-1])
            words[name] = last.in_words(letters)  # rates of what is wrong are held below
        neither = "neither the combined change nor any single change has a significant effect; "
        assert words["none"].startswith(neither)
        detect = "detect the whole effect with 80% power if the true effect is [-+.0-9e]+, as measured$"
        assert re.search(f"; (even 1,000 seeds would not|[0-9]+ seeds would) {detect}", words["none"])
        assert words["sparse"].startswith("b (")
        assert "carries the effect" in words["sparse"]
        assert words["dense"].startswith("the effect is spread over ")
        assert re.search("a and c( or [a-g] and [a-g])* do more together than separately", words["interacting"])
    assert_shares(false, replicates, high=0.05)
    assert_shares(right, replicates, low=0.85)
    assert_shares(covered, replicates, low=0.95)


@sized(slow=15, long=60)
def test_groups_find_the_few_of_many(replicates):
    rng, right, false, spread, runs = np.random.default_rng(5), 0, 0, 0, []
    for _ in range(replicates):
        found, count = by_groups(rng, 20, lambda run: 0.12 * (3 in run) + 0.12 * (16 in run))
        right += named(found) == {3, 16}
        false += bool(named(found) - {3, 16})
        runs.append(count)
        nothing, count = by_groups(rng, 20, TRUTHS["none"])
        false += bool(named(nothing))
        dense, _ = by_groups(rng, 20, lambda run: 0.01 * len(run))
        spread += "the effect is spread" in dense.in_words([*"abcdefghijklmnopqrst"])
    assert_shares({"right": right / replicates, "spread": spread / replicates}, replicates, low=0.85)
    assert_shares({"false": false / 2 / replicates}, 2 * replicates, high=0.05)
    assert np.mean(runs) <= 12  # of the 21 that one at a time takes


def test_shares_add_up_and_an_interaction_is_shared_equally():
    """Without noise the Shapley values of 0.12 (a and c together) are 0.06 each, and of all combinations exactly so."""
    rng = np.random.default_rng(0)
    for n in (2, 3, 4, 8):
        runs = {run: "".join(map(str, sorted(run))) or "none" for run in design(n)}
        values = {name: {"all": np.full((3, 40), 0.3 + 0.12 * ({0, 1} <= run))} for run, name in runs.items()}
        for array in values.values():
            array["all"] += rng.normal(0, 1e-6, (3, 40))
        found = explain(measurements(values, dict.fromkeys(values)), runs, n)
        assert [part.effect for part in found.parts] == pytest.approx([0.06, 0.06, *[0.0] * (n - 2)], abs=1e-4)
        assert sum(part.share for part in found.parts) == pytest.approx(1)


def test_a_share_allows_for_items_that_none_of_these_is_like():
    """A factor that changes one item of a hundred changes none of 50 in 6 of 10 studies; its share is not 0 then."""
    rng, runs = np.random.default_rng(2), {run: "".join(map(str, sorted(run))) or "none" for run in design(2)}
    before, noise = rng.random(50) < 0.5, lambda: rng.random((5, 50)) < 0.005
    values = {name: {"all": np.where(np.arange(50) < 15, 1 in run, before) ^ noise()} for run, name in runs.items()}
    rare = explain(measurements(values, dict.fromkeys(values)), runs, 2).parts[0]
    assert rare.share == pytest.approx(0, abs=0.02)
    assert rare.share_low < 0 < 0.01 / 0.31 < rare.share_high
