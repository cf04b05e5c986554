"""Error and power beside a crossed analysis of variance, where an answer is in the data: heavy tails, few clusters."""

import csv
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import stats

from ablation.judge.statistics import Estimate, contrast
from tests.simulations.sizes import assert_shares, sized

FILE = Path(__file__).parents[2] / "benchmarks/evidence/power.csv"

Draw = Callable[[np.random.Generator, int, int, float], tuple[np.ndarray, np.ndarray]]
"""(generator, seeds, items, effect): the values [seeds, items] of child and parent."""


def crossed(link: Callable[[np.ndarray], np.ndarray], item: float, noise: float) -> Draw:
    """Values of a latent scale on which items have an ease, each variant an effect of its own, and seeds vary."""

    def draw(rng, seeds, items, effect):
        ease = rng.normal(0, 1, items)
        own = (ease + shift + rng.normal(0, item, items) + rng.normal(0, 0.05, (seeds, 1)) for shift in (effect, 0.0))
        child, parent = (link(of + rng.normal(0, noise, (seeds, items))) for of in own)
        return child, parent

    return draw


def right(base: float) -> Callable[[np.ndarray], np.ndarray]:
    """Right in a share of the items."""
    return lambda latent: (latent / np.sqrt(1 + 0.25 + 1 + 0.0025) < stats.norm.ppf(base)).astype(float)


def of_clusters(sizes: np.ndarray) -> tuple[Draw, Callable[[int], np.ndarray]]:
    """Right or wrong items in clusters of such sizes, each of which a variant shifts as a whole."""

    def numbers(items):
        ends = np.cumsum(sizes / sizes.sum() * items).round().astype(int)
        return np.repeat(np.arange(len(sizes)), np.diff([0, *ends]))

    def draw(rng, seeds, items, effect):
        ease, of = rng.normal(0, 0.7, items), numbers(items)
        shifts = (shift + rng.normal(0, 0.25, len(sizes))[of] for shift in (effect, 0.0))
        own = [ease + shift + rng.normal(0, 0.3, items) + rng.normal(0, 0.05, (seeds, 1)) for shift in shifts]
        child, parent = ((each + rng.normal(0, 1, each.shape) > 0).astype(float) for each in own)
        return child, parent

    return draw, numbers


def pareto(rng, seeds, items, effect):
    scale = 1 + rng.pareto(2.5, items)
    child, parent = (scale * of for of in crossed(np.exp, 0.3, 0.3)(rng, seeds, items, effect))
    return child, parent


def dominating(rng, seeds, items, effect):
    """One item's values are as large as the root of the number of items."""
    weights = np.where(np.arange(items) == 0, 1.5 * np.sqrt(items), 1.0)
    child, parent = (weights * of for of in crossed(lambda latent: latent, 0.5, 0.7)(rng, seeds, items, 0.0))
    return child + effect, parent


def rare_loss(share: float) -> Draw:
    """A share of the items loses five standard deviations, and all others gain as much together: no difference."""

    def draw(rng, seeds, items, effect):
        ease, hit = rng.normal(0, 1, items), rng.random(items) < share
        child, parent = ease + rng.normal(0, 0.1, (2, seeds, items))
        return child - 5.0 * hit + 5.0 * share, parent

    return draw


def skewed_differences(rng, seeds, items, effect):
    """Items that differ log-normally, in the mean by nothing, in seeds that hardly vary."""
    child, parent = rng.normal(0, 1, items) + rng.normal(0, 0.05, (2, seeds, items))
    return child + rng.lognormal(0, 1, items) - np.exp(0.5), parent


ITEMS: dict[str, Draw] = {
    "log-normal": crossed(np.exp, 0.3, 0.3),
    "normal": crossed(lambda latent: latent, 0.5, 0.7),
    "half right": crossed(right(0.5), 0.5, 1.0),
    "2% right": crossed(right(0.02), 0.5, 1.0),
    "Pareto": pareto,
    "one item": dominating,
}
CLUSTERS = {
    "5 clusters": of_clusters(np.ones(5)),
    "50 clusters": of_clusters(np.ones(50)),
    "unequal clusters": of_clusters(np.array([8.0, 4, 2, 1, 1])),
}
FEW = {f"{count} clusters": of_clusters(np.ones(count)) for count in (2, 3, 4, 6, 8)}
DESIGNS = {name: (draw, None) for name, draw in ITEMS.items()} | CLUSTERS | FEW


def judged(name: str, rng: np.random.Generator, seeds: int, items: int, effect: float) -> Estimate:
    draw, numbers = DESIGNS[name]
    clusters = None if numbers is None else [numbers(items)]
    return contrast([np.stack(draw(rng, seeds, items, effect))], (1, -1), "max", clusters=clusters, replicates=20)


def analysed(name: str, rng: np.random.Generator, seeds: int, items: int, effect: float) -> float:
    """p of the crossed analysis of variance of seeds and items, or clusters' means, after Satterthwaite."""
    draw, numbers = DESIGNS[name]
    child, parent = draw(rng, seeds, items, effect)
    table = child - parent
    if numbers is not None:
        of = numbers(items)
        table = np.stack([table[:, of == each].mean(axis=1) for each in range(of.max() + 1)], axis=1)
    rows, columns = table.shape
    by_seed, by_item = table.mean(axis=1), table.mean(axis=0)
    left = table - by_seed[:, None] - by_item + table.mean()
    squares = by_seed.var(ddof=1) / rows, by_item.var(ddof=1) / columns, (left**2).sum() / (rows - 1) / (columns - 1)
    parts = np.array([squares[0], squares[1], -squares[2] / rows / columns])
    df = np.array([rows - 1, columns - 1, (rows - 1) * (columns - 1)])
    variance = max(parts.sum(), parts[0])
    return float(2 * stats.t.sf(abs(table.mean()) / np.sqrt(variance), variance**2 / (parts**2 / df).sum()))


def shares(name: str, seeds: int, items: int, effect: float, replicates: int) -> tuple[float, float]:
    """How often the product and the analysis of variance decide, of the same studies."""
    ours, theirs = (np.random.default_rng([seeds, items, sum(name.encode())]) for _ in range(2))
    found = [
        (judged(name, ours, seeds, items, effect).p <= 0.05, analysed(name, theirs, seeds, items, effect) <= 0.05)
        for _ in range(replicates)
    ]
    share, other = np.mean(found, axis=0)
    return float(share), float(other)


def effect_of(name: str, seeds: int, items: int, errors: float) -> float:
    """The latent effect that is so many standard errors of the difference, from 60 studies."""
    rng = np.random.default_rng(9)
    spread = np.std([judged(name, rng, seeds, items, 0.0).effect for _ in range(60)])
    slope = np.mean([judged(name, rng, seeds, items, 0.2).effect for _ in range(60)]) / 0.2
    return float(errors * spread / abs(slope)) * (1 if slope > 0 else -1)


@sized(fast=20, slow=100, long=2000)
def test_error_where_nothing_differs(replicates):
    found = {
        f"{name}, {items} items, {seeds} seeds": shares(name, seeds, items, 0.0, replicates)[0]
        for name in DESIGNS
        for items in ((50,) if replicates < 100 else (50, 400))
        for seeds in ((5,) if replicates < 100 else (3, 5, 10))
    }
    assert_shares(found, replicates, high=0.05)


@sized(slow=40, long=500)
def test_power_beside_the_analysis_of_variance(replicates):
    """At least 80% of its power with three seeds, 90% with more, on average over the designs."""
    sizes = (50,) if replicates < 100 else (50, 400)
    for seeds, least in ((3, 0.8), (5, 0.9), (10, 0.9)):
        pairs = [
            shares(name, seeds, items, effect_of(name, seeds, items, 5.0 if seeds == 3 else 4.0), replicates)
            for name in (*ITEMS, *CLUSTERS)
            for items in sizes
        ]
        ours, theirs = np.mean(pairs, axis=0)
        assert ours >= least * theirs - 3 * np.sqrt(0.25 / replicates / len(pairs)), pairs


@sized(slow=300, long=2000)
def test_rare_losses_and_skewed_differences_hold_their_level(replicates):
    """Of values without bounds. Of 50 items, none of 2% may be drawn, and no test holds its level without allowing."""
    worlds = {f"2% of {items}": (rare_loss(0.02), items) for items in (50, 200, 500)}
    worlds |= {f"10% of {items}": (rare_loss(0.1), items) for items in (50, 200)}
    worlds |= {f"log-normal differences of {items}": (skewed_differences, items) for items in (50, 200)}

    def error(draw, items):
        rng = np.random.default_rng(items)
        estimates = (contrast([np.stack(draw(rng, 5, items, 0.0))], (1, -1), "max") for _ in range(replicates))
        return float(np.mean([estimate.p <= 0.05 for estimate in estimates]))

    assert_shares({name: error(*world) for name, world in worlds.items()}, replicates, high=0.055)


@sized(slow=100, long=1000)
def test_rare_losses_of_a_small_subset_hold_their_level_beside_a_large_one(replicates):
    """The small subset has half of the weight, and the number of all items says nothing about what it left unseen."""
    rng, found = np.random.default_rng(0), []
    for _ in range(replicates):
        subsets = [np.stack(rare_loss(share)(rng, 5, items, 0.0)) for items, share in ((190, 0.0), (10, 0.03))]
        found.append(contrast(subsets, (1, -1), "max").p <= 0.05)
    assert_shares({"190 and 10 items": float(np.mean(found))}, replicates, high=0.05)


@sized(slow=100, long=1000)
def test_power_where_all_items_gain_a_little(replicates):
    """A twentieth of the values' spread, in each of 200 items: 0.3% while a change counted by the values' range."""

    def gaining(scale):
        rng = np.random.default_rng(1)
        latent = (rng.normal(0, 1, 200) + rng.normal(0, 0.1, (2, 5, 200)) for _ in range(replicates))
        estimates = (contrast([scale(each + np.array([0.05, 0])[:, None, None])], (1, -1), "max") for each in latent)
        return float(np.mean([estimate.p <= 0.05 for estimate in estimates]))

    assert_shares({"normal": gaining(np.asarray), "log-normal": gaining(np.exp)}, replicates, low=0.95)


@sized(slow=100, long=1000)
def test_the_logarithms_of_log_normal_values_show_more(replicates):
    """Log ratios of 4 standard errors of the mean difference."""
    draw, name = ITEMS["log-normal"], "log-normal"
    effect, found = effect_of(name, 5, 50, 4.0), []
    rng = np.random.default_rng(2)
    for _ in range(replicates):
        values = np.stack(draw(rng, 5, 50, effect))
        found.append([contrast([each], (1, -1), "max").p <= 0.05 for each in (values, np.log(values))])
    plain, logarithms = np.mean(found, axis=0)
    assert logarithms > plain + 0.05, (plain, logarithms)


def main() -> None:
    """Write benchmarks/evidence/power.csv: shares of 300 studies with an effect and of 300 without."""
    with FILE.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("values", "seeds", "items", "power", "power of ANOVA", "error", "error of ANOVA"))
        for name, seeds, items in itertools.product((*ITEMS, *CLUSTERS), (3, 5, 10), (50, 400, 1319)):
            effect = effect_of(name, seeds, items, 5.0 if seeds == 3 else 4.0)
            found = (*shares(name, seeds, items, effect, 300), *shares(name, seeds, items, 0.0, 300))
            rows.writerow((name, seeds, items, *(f"{share:.3f}" for share in found)))
            file.flush()


if __name__ == "__main__":
    main()
