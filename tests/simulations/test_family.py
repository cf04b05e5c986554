"""Whole studies with known truth: is any edge falsely better or worse, and how many true effects are found?

Runs have seed noise only, in a single item: the verdicts then speak about that item, and nothing but the seeds is
random. `judge_edges` does all: variances, looks, correction, word. Bounds allow for three standard errors.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
import pytest

from tests.simulations.test_coverage import error
from tests.tracker.judge.studies import measurements
from tracker.judge.edges import judge_edges
from tracker.judge.measurements import Measurements
from tracker.judge.paths import add_paths


@dataclass(frozen=True)
class World:
    """What generates the runs of one study: the tree, and how much each variant's runs spread over seeds."""

    variants: int
    seeds: int
    tree: str = "binary"
    spread: str = "equal"
    shape: str = "normal"
    effect: float = 0.0  # of every edge, up and down in turns, in standard errors of a stable one

    @property
    def parents(self) -> list[int | None]:
        above = {"star": lambda n: 0, "chain": lambda n: n - 1, "binary": lambda n: (n - 1) // 2}[self.tree]
        return [None, *(above(n) for n in range(1, self.variants))]

    def spreads(self, rng: np.random.Generator) -> np.ndarray:
        sd = np.exp(0.5 * rng.standard_normal(self.variants)) if self.spread == "lognormal" else np.ones(self.variants)
        if self.spread == "one unstable":
            sd[rng.integers(self.variants)] = 5
        if self.spread == "unstable root":
            sd[0] = 5
        return sd

    def means(self) -> np.ndarray:
        step = self.effect * sqrt(2 / self.seeds)
        means = np.zeros(self.variants)
        for number, parent in enumerate(self.parents[1:], 1):
            means[number] = means[parent] + (step if number % 2 else -step)
        return means

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Gains [variants, seeds]; what a seed does to all variants is twice as large as their own noise."""
        shape = (self.variants, self.seeds)
        noise = rng.standard_normal(shape) if self.shape == "normal" else rng.exponential(1, shape) - 1
        return self.means()[:, None] + self.spreads(rng)[:, None] * noise + 2 * rng.standard_normal(self.seeds)

    def measure(self, gains: np.ndarray, **analysis) -> Measurements:
        parents = {f"v{n}": None if parent is None else f"v{parent}" for n, parent in enumerate(self.parents)}
        values = {f"v{n}": {"all": row[:, None]} for n, row in enumerate(gains)}
        return measurements(values, parents, margin=1e-6, **analysis)


def false_words(world: World, replicates: int, **analysis) -> float:
    """Share of studies without any true effect in which an edge is better or worse."""
    rng = np.random.default_rng(21)
    wrong = 0
    for _ in range(replicates):
        edges = judge_edges(world.measure(world.draw(rng), **analysis))
        wrong += any(edge.verdict in ("better", "worse") for edge in edges)
    return wrong / replicates


def power(world: World, replicates: int, **analysis) -> float:
    """Share of the edges, all of which have an effect, that get the right word."""
    rng = np.random.default_rng(22)
    found = []
    for _ in range(replicates):
        edges = judge_edges(world.measure(world.draw(rng), **analysis))
        found += [edge.verdict == ("better" if int(edge.child[1:]) % 2 else "worse") for edge in edges]
    return float(np.mean(found))


def test_no_false_words_fast():
    assert false_words(World(8, 3), 25) <= 0.06 + error(0.06, 25)


@pytest.mark.slow
def test_three_seeds_find_what_their_own_variances_do_not():
    """Fifteen edges, effects of seven standard errors."""
    world = World(16, 3, effect=7)
    own, moderated = power(world, 25, variance="own", correction="holm"), power(world, 25)
    assert own < 0.3
    assert moderated > 0.93


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "replicates"),
    [
        (World(6, 3, spread="one unstable"), 300),
        (World(16, 3, spread="lognormal"), 200),
        (World(16, 3, spread="one unstable"), 200),
        (World(16, 3, "star", "unstable root"), 300),
        (World(16, 3, shape="skewed"), 100),
        (World(41, 3, spread="lognormal"), 50),
        (World(8, 2), 100),
        (World(8, 5, spread="lognormal"), 150),
        (World(8, 5, "star", "unstable root"), 150),
        (World(8, 20, "chain", "lognormal"), 100),
    ],
)
def test_false_words_are_at_most_6_percent(world, replicates):
    assert false_words(world, replicates) <= 0.06 + error(0.06, replicates)


@pytest.mark.slow
@pytest.mark.parametrize("spread", ["equal", "lognormal", "one unstable"])
def test_false_words_with_looks_are_at_most_6_percent(spread):
    world = World(8, 8, spread=spread)
    assert false_words(world, 100, looks=[3, 5, 8]) <= 0.06 + error(0.06, 100)


@pytest.mark.slow
def test_intervals_of_all_edges_and_all_paths_hold_at_once():
    """The root's distance from all others included; each may miss in 5% of the studies."""
    world, rng, replicates = World(12, 5, effect=2), np.random.default_rng(23), 120
    means, missed = world.means(), np.zeros(2)
    for _ in range(replicates):
        study = world.measure(world.draw(rng))
        edges = judge_edges(study)
        add_paths(study, edges)
        at = [(edge, means[int(edge.child[1:])], means[int(edge.parent[1:])]) for edge in edges]
        missed[0] += any(not edge.joint_low <= own - above <= edge.joint_high for edge, own, above in at)
        missed[1] += any(not edge.root_low <= own <= edge.root_high for edge, own, _ in at)
    assert (missed / replicates <= 0.05 + error(0.05, replicates)).all()
