"""Whole studies with known truth: is any comparison falsely better or worse, and how many true effects are found?

Runs have seed noise only, in a single item: the verdicts then speak about that item, and nothing but the seeds is
random. `judge_comparisons` does all: variances, interim analyses, correction, verdict. Bounds allow for three standard
errors.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
import pytest

from ablation.judge.comparisons import Comparison, judge_comparisons
from ablation.judge.measurements import Measurements
from tests.ablation.judge.studies import measurements
from tests.simulations.sizes import assert_shares, error, sized


@dataclass(frozen=True)
class World:
    """What generates the runs of one study: the tree, and how much each variant's runs spread over seeds."""

    variants: int
    seeds: int
    tree: str = "binary"
    spread: str = "equal"
    shape: str = "normal"
    effect: float = 0.0  # of every comparison, up and down in turns, in standard errors of a stable one
    every: int = 1  # or of every so many

    @property
    def parents(self) -> list[int | None]:
        above = {"star": lambda n: 0, "chain": lambda n: n - 1, "binary": lambda n: (n - 1) // 2}[self.tree]
        return [None, *(above(n) for n in range(1, self.variants))]

    def spreads(self, rng: np.random.Generator) -> np.ndarray:
        sd = np.ones(self.variants)
        if self.spread.startswith("lognormal"):
            sd = np.exp(float(self.spread.split()[1]) * rng.standard_normal(self.variants))
        unstable = {"one unstable": 1, "two unstable": 2, "half unstable": self.variants // 2}.get(self.spread, 0)
        sd[rng.permutation(self.variants)[:unstable]] = 5 if unstable < 3 else 3
        if self.spread == "unstable root":
            sd[0] = 5
        return sd

    def means(self) -> np.ndarray:
        step = self.effect * sqrt(2 / self.seeds)
        means = np.zeros(self.variants)
        for number, parent in enumerate(self.parents[1:], 1):
            means[number] = means[parent] + (step if number % 2 else -step) * (number % self.every == 0)
        return means

    def effect_of(self, comparison: Comparison) -> float:
        """The true effect of a comparison."""
        means = self.means()
        return means[int(comparison.child[1:])] - means[int(comparison.parent[1:])]

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Gains [variants, seeds]; what a seed does to all variants is twice as large as their own noise."""
        shape = (self.variants, self.seeds)
        drawn = {
            "normal": rng.standard_normal,
            "skewed": lambda size: rng.exponential(1, size) - 1,
            "heavy": lambda size: rng.standard_t(3, size),
            "collapse": lambda size: rng.standard_normal(size) - 10 * (rng.random(size) < 0.2),
        }
        noise = drawn[self.shape](shape)
        return self.means()[:, None] + self.spreads(rng)[:, None] * noise + 2 * rng.standard_normal(self.seeds)

    def measure(self, gains: np.ndarray, **analysis) -> Measurements:
        parents = {f"v{n}": None if parent is None else f"v{parent}" for n, parent in enumerate(self.parents)}
        values = {f"v{n}": {"all": row[:, None]} for n, row in enumerate(gains)}
        return measurements(values, parents, margin=1e-6, **analysis)


VERDICTS = {"better": 1, "worse": -1}


def false_verdicts(world: World, replicates: int, number: int, **analysis) -> float:
    """Share of false verdicts among those found, mean over studies; without any effect, that of studies with a verdict.

    With an effect, only every third comparison has one.
    """
    rng, shares = np.random.default_rng([21, number]), []
    for _ in range(replicates):
        comparisons = judge_comparisons(world.measure(world.draw(rng), **analysis))
        verdicts = [(VERDICTS.get(found.verdict, 0), np.sign(world.effect_of(found))) for found in comparisons]
        wrong = sum(bool(verdict) and verdict != sign for verdict, sign in verdicts)
        shares.append(wrong / max(sum(bool(verdict) for verdict, _ in verdicts), 1))
    return float(np.mean(shares))


def power(world: World, replicates: int, **analysis) -> float:
    """Share of the comparisons, all of which have an effect, that get the right verdict."""
    rng = np.random.default_rng(22)
    right = []
    for _ in range(replicates):
        comparisons = judge_comparisons(world.measure(world.draw(rng), **analysis))
        right += [VERDICTS.get(found.verdict, 0) == np.sign(world.effect_of(found)) for found in comparisons]
    return float(np.mean(right))


@pytest.mark.slow
def test_three_seeds_find_what_their_own_variances_do_not():
    """Fifteen comparisons, effects of seven standard errors."""
    world = World(16, 3, effect=7)
    own, moderated = power(world, 25, variance="own", correction="holm"), power(world, 25)
    assert own < 0.3
    assert moderated > 0.93


_INTERIMS = {"interim_analyses": [3, 5, 8]}
_FDR = {"error": "fdr"}
SCENARIOS = [  # with those of tests/simulations/test_items.py, RARE
    *((World(16, seeds, spread=f"lognormal {sigma}"), {}) for seeds in (3, 5) for sigma in (0.0, 0.5, 1.0)),
    *((World(16, n, spread=f"{which} unstable"), {}) for n in (3, 5) for which in ("one", "two", "half")),
    *((World(16, seeds, "star", "unstable root"), {}) for seeds in (3, 5)),
    *((World(16, seeds, shape=shape), {}) for seeds in (3, 5) for shape in ("collapse", "skewed", "heavy")),
    *((World(variants, seeds, spread="one unstable"), {}) for variants in (5, 8) for seeds in (3, 5)),
    *((World(8, seeds, spread="lognormal 1"), {}) for seeds in (3, 4, 5)),
    (World(16, 4, spread="one unstable"), {}),
    (World(16, 10, shape="collapse"), {}),
    (World(8, 2), {}),
    (World(8, 20, "chain", "lognormal 0.5"), {}),
    (World(8, 8, spread="lognormal 1"), _INTERIMS),
    (World(8, 8, spread="one unstable"), _INTERIMS),
    (World(8, 8, shape="collapse"), _INTERIMS),
    (World(16, 3, spread="lognormal 0.5", effect=6, every=3), _FDR),
    (World(16, 5, spread="lognormal 1", effect=5, every=3), _FDR),
    (World(16, 5, "star", "unstable root", effect=5, every=3), _FDR),
    (World(16, 5, "star"), _FDR),
    (World(24, 5, "chain", "lognormal 0.5", effect=5, every=3), _FDR),
    (World(8, 8, "chain", effect=4, every=3), _INTERIMS | _FDR),
]


@sized(fast=3, slow=15, long=300)
def test_false_verdicts_are_at_most_6_percent(replicates):
    found = {f"{n}: {case}": false_verdicts(case[0], replicates, n, **case[1]) for n, case in enumerate(SCENARIOS)}
    assert_shares(found, replicates, high=0.06)


@pytest.mark.slow
@pytest.mark.rest
def test_intervals_of_all_comparisons_and_all_paths_hold_at_once():
    """The root's distance from all others included; each may miss in 5% of the studies."""
    world, rng, replicates = World(12, 5, effect=2), np.random.default_rng(23), 120
    missed = np.zeros(2)
    for _ in range(replicates):
        comparisons = judge_comparisons(world.measure(world.draw(rng)))
        true = [(found, world.effect_of(found), world.means()[int(found.child[1:])]) for found in comparisons]
        missed[0] += any(not found.joint_low <= effect <= found.joint_high for found, effect, _ in true)
        missed[1] += any(not found.root_low <= from_root <= found.root_high for found, _, from_root in true)
    assert (missed / replicates <= 0.05 + error(0.05, replicates)).all()
