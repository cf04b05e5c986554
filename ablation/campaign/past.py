"""Estimate the true gains in a table of attempts with one run each, some of which were kept as improvements.

Keeping the best of many noisy measurements favours lucky runs, so the measured gain of a champion is too large. Here
the attempts share a distribution of true gains, which is estimated from all of them, the discarded ones included:

    y_i = theta_i + noise,  theta_i = theta_parent(i) + gain_i,  gain_i ~ N(mu, tau^2),  noise ~ N(0, sd^2)

Given mu and tau (by restricted maximum likelihood) the posterior of the gains is normal. That attempts were kept
because of these very measurements needs no further correction: the choice depends on nothing else (Dawid, Statistical
Science 9, 1994).
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from ablation.campaign.past_table import Attempt

__all__ = ["Attempt", "Kept", "Settled", "copied", "pooled_sd", "settle"]
RERUNS = 3
_BY_CHANCE = 0.01  # equal repeats that are less likely than this are copies
_BROKEN = 6.0  # robust standard deviations; an attempt that is further down is left out of the distribution of gains
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(21)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Kept:
    """An attempt that was kept, compared with the champion before it. Positive gains are improvements.

    Attributes:
        attempt: the attempt.
        parent: name of the champion before it.
        measured: measured gain.
        likely, low, high: mean and 95% interval of the true gain, given the whole table.
        real: probability that the true gain is above 0.
        noise: whether the measured gain is below 1.96 of its standard errors.
    """

    attempt: Attempt
    parent: str
    measured: float
    likely: float
    low: float
    high: float
    real: float
    noise: bool


@dataclass(frozen=True)
class Settled:
    """The estimates for a table of attempts: the kept attempts, the champion's total gain, and the best reruns.

    Attributes:
        keeps: the kept attempts.
        sd: standard deviation of one run.
        measured: measured total gain.
        likely, low, high: mean and 95% interval of the true total gain.
        reruns: names of the attempts to rerun.
        wrong: expected number of kept attempts that are not improvements.
        wrong_after: expected number of wrong decisions after the reruns, if the kept attempts that are then unlikely to
            be improvements are dropped.
    """

    keeps: tuple[Kept, ...]
    sd: float
    measured: float
    likely: float
    low: float
    high: float
    reruns: tuple[str, ...]
    wrong: float
    wrong_after: float


def pooled_sd(attempts: Sequence[Attempt]) -> float:
    """Return the pooled standard deviation of repeats, which are rows with equal names; NaN without repeats."""
    values = defaultdict(list)
    for attempt in attempts:
        if attempt.value is not None:
            values[attempt.name].append(attempt.value)
    repeated = [each for each in values.values() if len(each) > 1]
    freedom = sum(len(each) - 1 for each in repeated)
    return math.sqrt(sum(np.var(each) * len(each) for each in repeated) / freedom) if freedom else math.nan


def copied(attempts: Sequence[Attempt]) -> tuple[str, int, float] | None:
    """Return (name, number of rows, value) of repeats that seem to be copies of one run; None if there are none.

    Three or more repeats with one value seem to be copies, unless equal values are common among the other repeats.
    """
    values = defaultdict(list)
    for attempt in attempts:
        if attempt.value is not None:
            values[attempt.name].append(attempt.value)
    pairs = [one == other for each in values.values() if len(set(each)) > 1 for one, other in combinations(each, 2)]
    equal = sum(pairs) / max(1, len(pairs))
    for name, each in values.items():
        if len(each) > 2 and len(set(each)) == 1 and equal ** (len(each) - 1) < _BY_CHANCE:
            return name, len(each), each[0]
    return None


def settle(attempts: Sequence[Attempt], sd: float, sign: int) -> Settled:
    """Estimate the true gains in a table of attempts, and choose the most useful reruns.

    Args:
        attempts: in the order in which they were made; the first that has a value is the baseline. Rows of one name are
            repeats of one attempt.
        sd: standard deviation of one run, above 0.
        sign: 1 if larger values are better, -1 if smaller ones are.
    """
    tree = _tree(attempts, sign)
    mean, cov = _posterior(tree, sd)
    keeps = [_kept(number, tree, mean, cov, sd) for number in range(1, len(tree.champions))]
    total = _gain(len(keeps), 0, mean, cov)
    reruns, wrong, after = _reruns(tree, mean, cov, sd)
    return Settled(
        tuple(keeps),
        sd,
        float(tree.values[tree.champions[-1]] - tree.values[0]),
        total[0],
        total[0] - 1.96 * total[1],
        total[0] + 1.96 * total[1],
        tuple(tree.nodes[tree.champions[number]].name for number in reruns),
        wrong,
        after,
    )


@dataclass(frozen=True)
class _Tree:
    """The attempts that have a value, as nodes below the champions from which they were made.

    Attributes:
        nodes: the attempts.
        champions: node of each champion: first the baseline, then the kept attempts.
        parent: number of the champion from which a node was made (0 for the baseline itself).
        own: number of a node among the champions, or -1.
        values: means of the repeats; larger is better.
        counts: numbers of repeats.
    """

    nodes: list[Attempt]
    champions: list[int]
    parent: NDArray[np.int64]
    own: NDArray[np.int64]
    values: Array
    counts: Array


def _tree(attempts: Sequence[Attempt], sign: int) -> _Tree:
    places: dict[str, int] = {}
    nodes: list[Attempt] = []
    parent, champions = [], [0]
    values: list[list[float]] = []
    for attempt in attempts:
        if attempt.value is None:
            continue
        place = places.setdefault(attempt.name, len(nodes))
        if place < len(nodes):
            values[place].append(sign * attempt.value)
            nodes[place] = replace(nodes[place], kept=nodes[place].kept or attempt.kept)
        else:
            nodes.append(attempt)
            values.append([sign * attempt.value])
            parent.append(len(champions) - 1)
        if attempt.kept and place not in champions:
            champions.append(place)
    own = np.full(len(nodes), -1)
    own[champions] = np.arange(len(champions))
    means, counts = np.array([np.mean(each) for each in values]), np.array([len(each) for each in values], float)
    return _Tree(nodes, champions, np.array(parent), own, means, counts)


def _posterior(tree: _Tree, sd: float) -> tuple[Array, Array]:
    """Return the mean and covariance of the champions' true values, given all measured values.

    They come from one regression, whose unknowns are the baseline's value, mu, and the difference of each kept
    attempt's gain from mu.
    """
    gains = tree.values - tree.values[np.array(tree.champions)[tree.parent]]
    gain_sd = 1.4826 * float(np.median(np.abs(gains[1:] - np.median(gains[1:])))) + sd
    is_champion, keeps = tree.own >= 0, len(tree.champions) - 1
    used = is_champion | (gains > -_BROKEN * gain_sd)
    own = np.zeros((keeps + 1, keeps + 2))  # each champion's value as a sum of unknowns
    own[:, 0] = 1
    for number, node in enumerate(tree.champions[1:], 1):
        own[number] = own[tree.parent[node]]
        own[number, [1, number + 1]] += 1
    design = np.where(is_champion[:, None], own[tree.own], own[tree.parent])
    design[~is_champion, 1] += 1
    design, observed, leaf = design[used], tree.values[used] - tree.values[0], ~is_champion[used]

    def fit(log_tau: float) -> tuple[float, Array, Array]:
        noise = sd**2 / tree.counts[used] + math.exp(2 * log_tau) * leaf
        information = design.T @ (design / noise[:, None])
        information[range(2, keeps + 2), range(2, keeps + 2)] += math.exp(-2 * log_tau)
        cov = np.linalg.pinv(information, hermitian=True)
        mean = cov @ (design.T @ (observed / noise))
        fitted = float(observed @ ((observed - design @ mean) / noise)) + np.log(noise).sum() + 2 * keeps * log_tau
        return fitted + np.linalg.slogdet(information)[1], mean, cov

    bounds = math.log(sd / 30), math.log(30 * (sd + gain_sd))
    best = optimize.minimize_scalar(lambda log_tau: fit(log_tau)[0], bounds=bounds, method="bounded").x
    _, mean, cov = fit(best)
    return own @ mean, own @ cov @ own.T


def _gain(node: int, parent: int, mean: Array, cov: Array) -> tuple[float, float]:
    """Return the mean and standard deviation of the true gain of a node over its parent."""
    variance = cov[node, node] + cov[parent, parent] - 2 * cov[node, parent]
    return float(mean[node] - mean[parent]), math.sqrt(max(float(variance), 0.0))


def _kept(number: int, tree: _Tree, mean: Array, cov: Array, sd: float) -> Kept:
    node, above = tree.champions[number], int(tree.parent[tree.champions[number]])
    parent = tree.champions[above]
    likely, error = _gain(number, above, mean, cov)
    measured = float(tree.values[node] - tree.values[parent])
    noise = sd * math.sqrt(1 / tree.counts[node] + 1 / tree.counts[parent])
    real = float(special.ndtr(likely / error)) if error else float(likely > 0)
    low, high = likely - 1.96 * error, likely + 1.96 * error
    return Kept(
        tree.nodes[node], tree.nodes[parent].name, measured, likely, low, high, real=real, noise=measured < 1.96 * noise
    )


def _reruns(tree: _Tree, mean: Array, cov: Array, sd: float) -> tuple[list[int], float, float]:
    """Return the reruns that most lower the expected number of wrong decisions, and that number before and after."""
    chosen: list[int] = []
    pairs = [(number, int(tree.parent[node])) for number, node in enumerate(tree.champions) if number]
    wrong = sum(float(special.ndtr(-gain / error)) for gain, error in (_gain(*pair, mean, cov) for pair in pairs))
    expected, current = _wrong(pairs, mean, cov, cov), cov
    for _ in range(min(RERUNS, len(pairs))):
        after = {node: _rerun(current, node, sd) for node in range(len(tree.champions))}
        errors = {node: _wrong(pairs, mean, cov, after[node]) for node in after}
        node = min(errors, key=lambda each: errors[each])
        chosen.append(node)
        expected, current = errors[node], after[node]
    return chosen, wrong, expected


def _rerun(cov: Array, node: int, sd: float) -> Array:
    """Return the covariance of the champions' true values after one more run of one champion."""
    return cov - np.outer(cov[:, node], cov[node]) / (cov[node, node] + sd**2)


def _wrong(pairs: Sequence[tuple[int, int]], mean: Array, before: Array, after: Array) -> float:
    """Return the expected number of wrong decisions on kept attempts if reruns change the covariance to `after`."""
    total = 0.0
    for pair in pairs:
        (gain, now), (_, then) = _gain(*pair, mean, before), _gain(*pair, mean, after)
        moves = math.sqrt(max(now**2 - then**2, 0.0)) * _NODES  # of the gain's mean, by what the reruns will say
        total += float(_WEIGHTS @ special.ndtr(-np.abs(gain + moves) / max(then, 1e-12))) / math.sqrt(2 * math.pi)
    return total
