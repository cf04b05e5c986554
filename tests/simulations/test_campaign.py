"""Campaigns with a known truth, decided by the referee's own code: what it claims, what is false, what is gained.

    python -m tests.simulations.test_campaign [campaigns, default 400]     # rows of docs/how-to/campaigns.md

The unit is the standard deviation of one run. A trial changes the champion; its true gain is drawn from a mixture: 65%
harm it by |N(0, 2)|, a share `real` gains U(0.7, 3), the rest N(0, 0.15); with `real` None nothing changes anything.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ablation.campaign.policy import Referee, Rules
from tests.simulations.sizes import assert_shares, sized


@dataclass(frozen=True)
class World:
    """What a campaign meets.

    Attributes:
        real: share of trials that help, or None where nothing does anything.
        runs: of the campaign.
        tails: degrees of freedom of the noise, in units of its sd; 0: normal.
        spread: half of all variants have noise that is larger by this factor.
        drift: of all values over the campaign, in sd.
        correlation: of the noise of two runs with one seed.
        copies: share of trials that are the champion's code under another name.
        stops: whether the proposer asks for a verification at its first provisional step, and stops when ahead.
        sd: of the noise; 0: a deterministic command.
    """

    real: float | None = None
    runs: int = 600
    tails: int = 0
    spread: float = 1.0
    drift: float = 0.0
    correlation: float = 0.0
    copies: float = 0.0
    stops: bool = False
    sd: float = 1.0


WORLDS = {
    "nothing helps": World(),
    "2% help": World(0.02),
    "6% help": World(0.06),
    "nothing helps, drift up": World(drift=1),
    "2% help, drift up": World(0.02, drift=1),
    "6% help, drift down": World(0.06, drift=-1),
    "nothing helps, heavy tails": World(tails=3),
    "2% help, heavy tails": World(0.02, tails=3),
    "nothing helps, noise differs": World(spread=3),
    "2% help, noise differs": World(0.02, spread=3),
    "6% help, noise differs": World(0.06, spread=3),
    "nothing helps, paired": World(correlation=0.6),
    "2% help, paired": World(0.02, correlation=0.6),
    "6% help, paired": World(0.06, correlation=0.6),
    "2% help, resubmits": World(0.02, copies=0.8),
    "nothing helps, stops when ahead": World(stops=True),
    "2% help, stops when ahead": World(0.02, stops=True),
    "nothing helps, 100 runs": World(runs=100),
    "6% help, 100 runs": World(0.06, runs=100),
    "nothing helps, deterministic": World(sd=0),
    "6% help, deterministic": World(0.06, sd=0),
}


def true_gain(world: World, rng: np.random.Generator) -> float:
    if world.real is None or rng.random() < world.copies:
        return 0.0
    kind = rng.random()
    if kind < 0.65:
        return -abs(rng.normal(0, 2))
    return rng.normal(0, 0.15) if kind < 1 - world.real else rng.uniform(0.7, 3)


class Bench:
    """Makes the runs that a referee asks for."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self.world, self.rng, self.used = world, rng, 0
        self.truth, self.scale = {"base": 0.0}, {"base": 1.0}
        self.seeds: dict[int, float] = {}

    def add(self, name: str, value: float) -> None:
        self.truth[name] = value
        self.scale[name] = self.world.spread if self.rng.random() < 0.5 else 1.0

    def run(self, name: str, seed: int) -> float:
        world, draw = self.world, self.rng.standard_normal
        own = self.rng.standard_t(world.tails) / np.sqrt(world.tails / (world.tails - 2)) if world.tails else draw()
        if world.correlation:
            shared = self.seeds.setdefault(seed, draw())
            own = world.correlation**0.5 * shared + (1 - world.correlation) ** 0.5 * own
        self.used += 1
        return float(self.truth[name] + world.sd * self.scale[name] * own + world.drift * self.used / world.runs)

    def drive(self, asked):
        try:
            batch = next(asked)
            while True:
                batch = asked.send([self.run(*run) for run in batch.runs])
        except StopIteration as done:
            return done.value


def campaign(world: World, rng: np.random.Generator, rules: Rules) -> tuple[Bench, Referee]:
    bench = Bench(world, rng)
    referee = Referee(
        rules, "base", [bench.run("base", seed) for seed in range(rules.baseline)], paired=world.correlation > 0
    )
    trials = 0
    while (left := world.runs - bench.used) > 0:
        if pairs := referee.closing(left):
            bench.drive(referee.verify(pairs))
            continue
        name = f"t{(trials := trials + 1)}"
        bench.add(name, bench.truth[referee.provisional] + true_gain(world, rng))
        bench.drive(referee.trial(name, left))
        if world.stops and referee.provisional != referee.verified:
            bench.drive(referee.verify(rules.most))
        if world.stops and referee.verified != "base":
            break
    return bench, referee


@dataclass(frozen=True)
class Found:
    """Means over campaigns: claims, share of false ones, campaigns with any, true and stated gain of the champion.

    over: by how many standard errors the stated gain exceeds 1.05 times the true one.
    """

    claims: float
    false: float
    any: float
    true: float
    stated: float
    over: float


def simulated(world: World, campaigns: int, rules: Rules | None = None, seed: int = 7) -> Found:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(campaigns):
        bench, referee = campaign(world, rng, rules or Rules())
        shown = [done for done in referee.verifications if done.shown]
        false = sum(bench.truth[done.new] <= bench.truth[done.old] for done in shown)
        stated = sum(done.stated for done in shown)
        rows.append((len(shown), false / max(1, len(shown)), false > 0, bench.truth[referee.verified], stated))
    table = np.array(rows, float)
    over = table[:, 4] - 1.05 * table[:, 3]
    means = [float(mean) for mean in table.mean(axis=0)]
    return Found(
        means[0], means[1], means[2], means[3], means[4], float(over.mean() / max(over.std() / len(over) ** 0.5, 1e-9))
    )


@sized(fast=40, long=400)
def test_claims_are_true(replicates):
    """At most 10% of claims are false, where nothing helps 5% of campaigns make any, and 1.05 of the gain is stated."""
    found = {name: simulated(world, replicates) for name, world in WORLDS.items()}
    nothing = {name: found[name].any for name, world in WORLDS.items() if world.real is None}
    assert_shares(nothing, replicates, high=0.05)
    assert_shares({name: each.false for name, each in found.items()}, replicates, high=0.1)
    assert {name: each for name, each in found.items() if WORLDS[name].real and each.over > 3} == {}


@sized(fast=40, long=400)
def test_a_campaign_gains_as_much_as_keep_if_better(replicates):
    usual, rare = (simulated(WORLDS[f"{share}% help"], replicates) for share in (6, 2))
    noise = replicates**-0.5  # about 6 sd of the gain of one campaign
    assert usual.true > 30 - 7 * noise, usual
    assert rare.true > 9 - 5 * noise, rare


@sized(fast=30, long=400)
def test_confirming_each_step_claims_the_truth(replicates):
    rules = Rules(confirm=True)
    assert simulated(WORLDS["6% help"], replicates, rules).true > 15
    found = {
        name: simulated(WORLDS[name], replicates, rules).any for name in ("nothing helps", "nothing helps, paired")
    }
    assert_shares(found, replicates, high=0.05)


def simplifications(loss: float, margin: float, replicates: int) -> tuple[float, float]:
    """Share of campaigns that accept any simplification, and the mean of those accepted; each loses `loss` again."""
    accepted = []
    for each in range(replicates):
        bench = Bench(World(), np.random.default_rng(each))
        referee = Referee(Rules(), "base", [bench.run("base", seed) for seed in range(3)])
        count = 0
        for trial in range(12):
            bench.add(f"t{trial}", bench.truth[referee.provisional] - loss)
            count += bench.drive(referee.simplification(f"t{trial}", margin)).kept
        accepted.append((count > 0, count))
    return tuple(np.mean(np.array(accepted, float), axis=0))


@sized(fast=60, long=1000)
def test_a_simplification_that_differs_by_the_margin_is_not_accepted(replicates):
    found = {f"loses {loss:+g}": simplifications(loss, 2.0, replicates)[0] for loss in (2.0, -2.0)}
    assert_shares(found, replicates, high=0.05)
    assert simplifications(0.0, 2.0, 20)[1] > 5
    # Each loses half of it: the second and all later ones lose the margin against the last champion that was better.
    assert simplifications(1.0, 2.0, 20)[1] < 1.5


def rows(campaigns: int) -> Iterator[str]:
    """Return the lines of a table, whose main rows the documentation shows."""
    yield "| | claims | false | campaigns with a false claim | true gain | stated |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    named = {**WORLDS, "6% help, `--policy confirm`": WORLDS["6% help"]}
    for name, world in named.items():
        found = simulated(world, campaigns, replace(Rules(), confirm="confirm" in name))
        cells = f"{found.claims:.1f} | {found.false:.1%} | {found.any:.1%} | {found.true:.1f} | {found.stated:.1f}"
        yield f"| {name} | {cells} |"


if __name__ == "__main__":
    for row in rows(int(sys.argv[1]) if len(sys.argv) > 1 else 400):
        print(row, flush=True)
