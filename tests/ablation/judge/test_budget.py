"""Which comparisons get seeds within a budget, and the chance that more seeds decide one: by hand and by simulation."""

from dataclasses import replace
from math import inf, nan

import numpy as np
import pandas as pd
import pytest

from ablation.judge.budget import (
    LEAST_CHANCE,
    Observed,
    Prices,
    Rule,
    choose,
    decided_at,
    effect_variance,
    level_left,
    predict,
    seeds_wanted,
    table,
)
from ablation.judge.comparisons import judge_comparisons
from ablation.judge.correct import Correction
from ablation.judge.measurements import Problem
from ablation.judge.significance import Noise, half_width, interim_weights, p_value
from tests.ablation.judge.studies import normal_study

HOURS = {"warm": 1.0} | dict.fromkeys("rabc", 1.0)
FAN = Prices(HOURS, {name: frozenset({"warm", name}) for name in "rabc"})
THREE = dict.fromkeys("rabc", 3)


def comparisons(**chances):
    """Comparisons of children of r after three seeds: child = {interim analysis: chance}."""
    return {(child, "r"): by_interim for child, by_interim in chances.items()}


def offers(chances, hours, prices=FAN, counts=THREE, seeds=3):
    return choose(chances, dict.fromkeys(chances, seeds), counts, prices, hours)


def test_prices_are_means_of_the_seeds_that_ran_and_shared_stages_are_one():
    rows = [("r", "warm", "w0", 2.0), ("r", "train", "r0", 3.0), ("a", "warm", "w0", 2.0), ("a", "train", "a0", 4.0)]
    rows += [("r", "warm", "w1", 4.0), ("r", "train", "r1", 0.0)]  # only r has a second seed; it was not trained
    prices = Prices.from_stages(pd.DataFrame(rows, columns=["variant", "stage", "key", "hours"]))
    assert prices.hours == {"w0": 3.0, "r0": 3.0, "a0": 4.0}
    assert prices.units == {"r": {"w0", "r0"}, "a": {"w0", "a0"}}
    paid = prices.paid({"r": 2, "a": 1})
    assert paid == {"w0": 2, "r0": 2, "a0": 1}
    assert prices.missing(("a", "r"), 2, paid) == 4.0  # the warm start of seed 1 is there
    assert prices.missing(("a", "r"), 3, paid) == 3.0 + 3.0 + 2 * 4.0


def test_a_parent_and_a_shared_stage_are_paid_once():
    chances = comparisons(a={5: 0.6}, b={5: 0.3}, c={5: 0.1})
    found = offers(chances, 100.0)
    # two seeds of warm, r and a; then b alone, then c alone
    assert [(o.child, o.hours, o.chosen) for o in found] == [("a", 6.0, True), ("b", 2.0, True), ("c", 2.0, True)]
    assert [o.per_hour for o in found] == pytest.approx([0.1, 0.15, 0.05])


def test_what_does_not_fit_is_left_out_and_what_still_fits_is_not():
    prices = Prices(HOURS | {"b": 3.0}, FAN.units)
    chosen = offers(comparisons(a={5: 0.6}, b={5: 0.6}, c={5: 0.1}), 9.0, prices)
    assert [(o.child, o.why_not) for o in chosen] == [("a", ""), ("c", ""), ("b", "beyond the budget")]
    assert sum(o.hours for o in chosen if o.chosen) == 8.0
    assert not any(o.chosen for o in offers(comparisons(a={5: 0.6}), 5.999))


def test_an_interim_analysis_further_on_is_reserved_and_the_next_one_is_taken():
    chosen = offers(comparisons(a={5: 0.0, 10: 0.7}), 21.0)
    [offer] = chosen
    assert (offer.interim, offer.next_interim, offer.hours) == (10, 5, 21.0)
    assert seeds_wanted(chosen, THREE) == {"a": 5, "r": 5}
    assert "up to 5 seeds first" in table(chosen)
    [too_dear] = offers(comparisons(a={5: 0.0, 10: 0.7}), 20.0)
    assert not too_dear.chosen


def test_a_comparison_whose_runs_others_pay_for_is_free():
    prices = Prices(HOURS, {**FAN.units, "b": frozenset({"warm", "a"})})  # b is a with another name
    first, second = offers(comparisons(a={5: 0.4}, b={5: 0.02}), 100.0, prices)
    assert (second.child, second.hours, second.chosen) == ("b", 0.0, True)
    assert "free" in table([first, second])


def test_comparisons_that_more_seeds_do_not_decide_are_never_chosen():
    found = offers(comparisons(a={}, b={5: 0.0, 10: LEAST_CHANCE / 2}, c={5: 0.5}), 1e9)
    assert [(o.child, o.why_not) for o in found] == [
        ("c", ""),
        ("b", "more seeds cannot decide it"),
        ("a", "no interim analysis left"),
    ]
    assert seeds_wanted(found, THREE) == {"c": 5, "r": 5}
    assert offers({}, 1.0) == []


@pytest.mark.parametrize("seed", range(8))
def test_any_choice_keeps_the_budget_and_is_the_best_first(seed):
    rng = np.random.default_rng(seed)
    names = [f"v{i}" for i in range(8)]
    units = {name: frozenset({f"own {name}", f"shared {rng.integers(3)}"}) for name in names}
    prices = Prices({unit: float(rng.uniform(0.1, 5)) for held in units.values() for unit in sorted(held)}, units)
    counts = {name: int(rng.choice([3, 5])) for name in names}
    pairs = [(names[i], names[int(rng.integers(i))]) for i in range(1, 8)]
    taken = {pair: min(counts[name] for name in pair) for pair in pairs}
    chances = {
        pair: {interim: float(rng.choice([0, 0.001, rng.uniform()])) for interim in (5, 10) if interim > taken[pair]}
        for pair in pairs
    }
    hours = float(rng.uniform(0, 120))
    found = choose(chances, taken, counts, prices, hours)
    assert {(o.child, o.parent) for o in found} == {*pairs}
    assert found == choose(chances, taken, counts, prices, hours)

    there = {(unit, n) for name in names for unit in units[name] for n in range(counts[name])}

    def cost(interim, pair):
        new = {(unit, n) for name in pair for unit in units[name] for n in range(interim)} - there
        return sum(prices.hours[unit] for unit, _ in new), new

    spent = 0.0
    waiting = dict(chances)
    for offer in (o for o in found if o.chosen):
        rates = [
            chance / price if (price := cost(interim, pair)[0]) else np.inf
            for pair, by_interim in waiting.items()
            for interim, chance in by_interim.items()
            if chance >= LEAST_CHANCE and cost(interim, pair)[0] <= hours - spent + 1e-9
        ]
        assert offer.chance == chances[offer.child, offer.parent][offer.interim] >= LEAST_CHANCE
        assert offer.per_hour == pytest.approx(max(rates))
        price, new = cost(offer.interim, (offer.child, offer.parent))
        assert offer.hours == pytest.approx(price)
        spent, there = spent + price, there | new
        del waiting[offer.child, offer.parent]
    assert spent <= hours + 1e-9
    wanted = seeds_wanted(found, counts)
    assert all(counts[name] < n <= 10 for name, n in wanted.items())


FOUR = Observed(0.02, Noise(1e-4, inf, 0.0), 4)  # a known spread of 0.02 from seed to seed


def test_significance_by_hand():
    # Shrunk by 3e-4 / (3e-4 + 1e-4) = 3/4: the mean over 16 seeds is expected at .02 (1/4 + 3/4 * 3/4) = .01625, with
    # the standard deviation 3/4 sqrt(3/4 * 1e-4 + 1e-4 * 4/12) = .0078062; significant beyond 1.96 * .005 = .0097998.
    # Phi(.82627) + Phi(-3.3370) = .79567 + .00042
    assert decided_at(FOUR, Rule(16, 0.05, nan, 0.05), 3e-4) == pytest.approx(0.79609, abs=2e-5)


def test_an_unknown_variance_counts_against_a_comparison_that_a_known_one_would_decide():
    clear = replace(FOUR, centre=0.04)
    rule = Rule(8, 0.05, nan, 0.05)
    chances = [decided_at(replace(clear, noise=Noise(1e-4, df, 0.0)), rule, 1e-3) for df in (2.0, 5.0, 50.0, inf)]
    assert chances == sorted(chances)
    assert chances[2] == pytest.approx(chances[3], abs=0.02)


def test_the_chance_is_that_of_seeds_drawn_later():
    rng = np.random.default_rng(3)
    seeds, later, tau, sd, rule = 4, 8, 0.02, 0.03, Rule(8, 0.05, 0.03, 0.05)
    chances, outcomes = [], []
    for _ in range(500):
        draws = rng.normal(0, tau) + rng.normal(0, sd, later)
        first = Observed(draws[:seeds].mean(), Noise(draws[:seeds].var(ddof=1) / seeds, seeds - 1, 0.0), seeds)
        chances.append(decided_at(first, rule, tau**2))
        noise = Noise(draws.var(ddof=1) / later, later - 1, 0.0)
        inside = abs(draws.mean()) + half_width(noise, rule.interval_level) <= rule.margin
        outcomes.append(inside or p_value(draws.mean(), noise) <= rule.level)
    predicted, happened = np.array(chances), np.array(outcomes)
    assert predicted.mean() == pytest.approx(happened.mean(), abs=0.06)  # three standard errors
    likely = predicted > np.quantile(predicted, 0.75)
    assert predicted[likely].mean() == pytest.approx(happened[likely].mean(), abs=0.12)
    assert happened[likely].mean() > happened[~likely].mean() + 0.15


def test_only_undecided_comparisons_have_chances_and_only_at_later_interim_analyses():
    study = normal_study(seeds=5, interim_analyses=[3, 5, 8, 10], margin=0.001)
    comparisons = judge_comparisons(study)
    undecided = [(found.child, found.parent) for found in comparisons if found.verdict == "undecided"]
    comparisons[0] = replace(comparisons[0], factors=("lr", "loss"))
    comparisons[1] = replace(comparisons[1], problem=Problem("a run failed"))
    chances = predict(study, comparisons)
    assert [*chances] == undecided[2:]
    assert all([*by_interim] == [8, 10] for by_interim in chances.values())
    assert all(0 <= chance <= 1 for by_interim in chances.values() for chance in by_interim.values())


def test_seeds_between_two_interim_analyses_count_with_the_variance_that_the_next_will_use():
    study = normal_study(seeds=4, interim_analyses=[3, 5, 8], margin=0.001)
    comparisons = judge_comparisons(study)
    assert any(found.variance == "moderated" for found in comparisons)
    known = {(of.child, of.parent): Observed(of.estimate.centre, of.noise, 4, unseen_share=0.0) for of in comparisons}
    spread, share = effect_variance([*known.values()]), interim_weights([3, 5, 8])[8]
    rule = Rule(8, level_left(study, comparisons) * share, 0.001, 0.05 * share)
    for comparison, chances in predict(study, comparisons).items():
        assert chances[8] == decided_at(known[comparison], rule, spread)


def test_the_level_left_steps_down_and_counts_comparisons_before_their_first_interim_analysis():
    study = normal_study(seeds=5, correction="holm", interim_analyses=[5, 10])
    comparisons = judge_comparisons(study)  # five
    assert level_left(study, comparisons) == pytest.approx(0.05 / 5)
    vars(comparisons[0])["p_adjusted"] = 0.001
    assert level_left(study, comparisons) == pytest.approx(0.05 / 4)
    fewer = normal_study(seeds=3, correction="holm", interim_analyses=[5, 10])
    assert level_left(fewer, judge_comparisons(fewer)) == pytest.approx(0.05 / 5)
    assert Correction.of(study, comparisons).level == pytest.approx(0.05 / 5)


def test_with_fdr_each_verdict_found_leaves_more_to_the_next():
    study = normal_study(seeds=5, error="fdr", interim_analyses=[5, 10])
    comparisons = judge_comparisons(study)
    assert level_left(study, comparisons) == Correction.of(study, comparisons).level == pytest.approx(0.05 / 5)
    vars(comparisons[0])["p_adjusted"] = 0.001
    assert level_left(study, comparisons) == pytest.approx(0.05 * 2 / 5)
