"""Which edges get seeds within a budget: by hand, and what holds for any study."""

import numpy as np
import pandas as pd
import pytest

from ablation.judge.budget import LEAST_CHANCE, Prices, choose, seeds_wanted, table

HOURS = {"warm": 1.0} | dict.fromkeys("rabc", 1.0)
FAN = Prices(HOURS, {name: frozenset({"warm", name}) for name in "rabc"})
THREE = dict.fromkeys("rabc", 3)


def edges(**chances):
    """Edges of children of r after three seeds: child = {look: chance}."""
    return {(child, "r"): by_look for child, by_look in chances.items()}


def offers(chances, hours, prices=FAN, counts=THREE, seeds=3):
    return choose(chances, dict.fromkeys(chances, seeds), counts, prices, hours)


def test_prices_are_means_of_the_seeds_that_ran_and_shared_stages_are_one():
    rows = [("r", "warm", "w0", 2.0), ("r", "train", "r0", 3.0), ("a", "warm", "w0", 2.0), ("a", "train", "a0", 4.0)]
    rows += [("r", "warm", "w1", 4.0), ("r", "train", "r1", 0.0)]  # only r has a second seed; it was not trained
    prices = Prices.of_stages(pd.DataFrame(rows, columns=["variant", "stage", "key", "hours"]))
    assert prices.hours == {"w0": 3.0, "r0": 3.0, "a0": 4.0}
    assert prices.units == {"r": {"w0", "r0"}, "a": {"w0", "a0"}}
    paid = prices.paid({"r": 2, "a": 1})
    assert paid == {"w0": 2, "r0": 2, "a0": 1}
    assert prices.missing(("a", "r"), 2, paid) == 4.0  # the warm start of seed 1 is there
    assert prices.missing(("a", "r"), 3, paid) == 3.0 + 3.0 + 2 * 4.0


def test_a_parent_and_a_shared_stage_are_paid_once():
    chances = edges(a={5: 0.6}, b={5: 0.3}, c={5: 0.1})
    first, second, third = offers(chances, 100.0)
    # two seeds of warm, r and a; then b alone, then c alone
    assert [(o.child, o.hours, o.chosen) for o in (first, second, third)] == [
        ("a", 6.0, True),
        ("b", 2.0, True),
        ("c", 2.0, True),
    ]
    assert [o.per_hour for o in (first, second, third)] == pytest.approx([0.1, 0.15, 0.05])


def test_what_does_not_fit_is_left_out_and_what_still_fits_is_not():
    prices = Prices(HOURS | {"b": 3.0}, FAN.units)
    chosen = offers(edges(a={5: 0.6}, b={5: 0.6}, c={5: 0.1}), 9.0, prices)
    assert [(o.child, o.chosen, o.why_not) for o in chosen] == [
        ("a", True, ""),
        ("c", True, ""),
        ("b", False, "beyond the budget"),
    ]
    assert sum(o.hours for o in chosen if o.chosen) == 8.0
    assert not any(o.chosen for o in offers(edges(a={5: 0.6}), 5.999))


def test_a_look_further_on_is_reserved_and_the_next_one_is_taken():
    chosen = offers(edges(a={5: 0.0, 10: 0.7}), 21.0)
    [offer] = chosen
    assert (offer.look, offer.next_look, offer.hours) == (10, 5, 21.0)
    assert seeds_wanted(chosen, THREE) == {"a": 5, "r": 5}
    assert "by way of 5 seeds" in table(chosen)
    [too_dear] = offers(edges(a={5: 0.0, 10: 0.7}), 20.0)
    assert not too_dear.chosen


def test_an_edge_whose_runs_others_pay_for_is_free():
    prices = Prices(HOURS, {**FAN.units, "b": frozenset({"warm", "a"})})  # b is a with another name
    first, second = offers(edges(a={5: 0.4}, b={5: 0.02}), 100.0, prices)
    assert (second.child, second.hours, second.chosen) == ("b", 0.0, True)
    assert "free" in table([first, second])


def test_edges_that_more_seeds_do_not_decide_are_never_chosen():
    found = offers(edges(a={}, b={5: 0.0, 10: LEAST_CHANCE / 2}, c={5: 0.5}), 1e9)
    assert [(o.child, o.why_not) for o in found] == [
        ("c", ""),
        ("b", "more seeds do not decide it"),
        ("a", "no look left"),
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
        pair: {look: float(rng.choice([0, 0.001, rng.uniform()])) for look in (5, 10) if look > taken[pair]}
        for pair in pairs
    }
    hours = float(rng.uniform(0, 120))
    found = choose(chances, taken, counts, prices, hours)
    assert {(o.child, o.parent) for o in found} == {*pairs}
    assert found == choose(chances, taken, counts, prices, hours)

    there = {(unit, n) for name in names for unit in units[name] for n in range(counts[name])}

    def cost(look, pair):
        new = {(unit, n) for name in pair for unit in units[name] for n in range(look)} - there
        return sum(prices.hours[unit] for unit, _ in new), new

    spent = 0.0
    waiting = dict(chances)
    for offer in (o for o in found if o.chosen):
        rates = [
            chance / price if (price := cost(look, pair)[0]) else np.inf
            for pair, by_look in waiting.items()
            for look, chance in by_look.items()
            if chance >= LEAST_CHANCE and cost(look, pair)[0] <= hours - spent + 1e-9
        ]
        assert offer.chance == chances[offer.child, offer.parent][offer.look] >= LEAST_CHANCE
        assert offer.per_hour == pytest.approx(max(rates))
        price, new = cost(offer.look, (offer.child, offer.parent))
        assert offer.hours == pytest.approx(price)
        spent, there = spent + price, there | new
        del waiting[offer.child, offer.parent]
    assert spent <= hours + 1e-9
    wanted = seeds_wanted(found, counts)
    assert all(counts[name] < n <= 10 for name, n in wanted.items())
