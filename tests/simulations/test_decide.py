"""Comparisons decided per device-hour: seeds by predicted chance and price, against seeds to the smallest p first."""

import numpy as np

from ablation.judge.budget import Prices, choose, predict, seeds_wanted
from ablation.judge.comparisons import judge_comparisons
from ablation.judge.judged import DECIDED
from tests.ablation.judge.studies import measurements

INTERIMS = [3, 5, 10]
PARENTS = {"v0": None, "v1": "v0", "v2": "v0", "v3": "v0", "v4": "v0", "v5": "v1", "v6": "v1", "v7": "v5", "v8": "v5"}
PARENTS |= {"v9": "v8", "v10": "v8"}
UNITS = {name: frozenset({name}) for name in PARENTS}


def world(seed):
    """Ten seeds of each variant, 200 graded items, and what a seed costs; a third of the changes have no effect."""
    rng = np.random.default_rng(seed)
    means, pool, hours = {}, {}, {}
    ease = rng.normal(0, 0.1, 200)
    for name, parent in PARENTS.items():
        effect = rng.choice([0, 0, 0.02, 0.03, 0.05, 0.1]) * rng.choice([-1, 1])
        means[name] = 0.5 if parent is None else means[parent] + effect
        of_items = ease + rng.normal(0, 0.03, 200)
        pool[name] = means[name] + rng.normal(0, 0.012, (10, 1)) + of_items + rng.normal(0, 0.1, (10, 200))
        hours[name] = float(rng.choice([0.5, 1, 1, 2, 4]))
    return pool, hours


def smallest_p_first(comparisons, counts, hours, budget):
    """The next interim analysis of each undecided comparison, in the order of p, as far as the budget goes."""
    wanted, left = {}, budget
    for comparison in sorted(
        (comparison for comparison in comparisons if comparison.verdict == "undecided"),
        key=lambda comparison: comparison.p_adjusted,
    ):
        interim = next((interim for interim in INTERIMS if interim > comparison.seeds), 0)
        have = {name: max(counts[name], wanted.get(name, 0)) for name in (comparison.child, comparison.parent)}
        price = sum(max(interim - n, 0) * hours[name] for name, n in have.items())
        if price <= left:
            wanted |= {name: interim for name, n in have.items() if interim > n}
            left -= price
    return wanted


def spend(pool, hours, budget, by_chance):
    """Comparisons decided beyond those of the first interim analysis, and the device-hours that it took."""
    counts, spent, start = dict.fromkeys(PARENTS, 3), 0.0, None
    while True:
        values = {name: {"all": pool[name][:n]} for name, n in counts.items()}
        study = measurements(values, PARENTS, interim_analyses=INTERIMS, margin=0.025)
        comparisons = judge_comparisons(study)
        decided = sum(comparison.verdict in DECIDED for comparison in comparisons)
        start = decided if start is None else start
        if by_chance:
            taken = {(comparison.child, comparison.parent): comparison.seeds for comparison in comparisons}
            offers = choose(predict(study, comparisons), taken, counts, Prices(hours, UNITS), budget - spent)
            wanted = seeds_wanted(offers, counts)
        else:
            wanted = smallest_p_first(comparisons, counts, hours, budget - spent)
        if not wanted:
            return decided - start, spent
        spent += sum((n - counts[name]) * hours[name] for name, n in wanted.items())
        counts |= wanted


def test_chance_and_price_decide_more_per_device_hour_than_the_smallest_p():
    totals = {True: np.zeros(2), False: np.zeros(2)}
    for seed in range(6):
        pool, hours = world(seed)
        budget = 0.2 * 7 * sum(hours.values())  # a fifth of what ten seeds of everything would cost
        for by_chance in totals:
            decided, spent = spend(pool, hours, budget, by_chance)
            assert spent <= budget
            totals[by_chance] += decided, spent
    new, old = (decided / spent for decided, spent in totals.values())
    assert new > 1.3 * old
