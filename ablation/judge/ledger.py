"""A ledger of attempts, one run each, in which whatever measured better was kept: how much of the gain is luck?

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

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from ablation.readers.ledger import Attempt

__all__ = ["Attempt", "Kept", "Settled", "pooled_sd", "settle"]
RERUNS = 3
_BROKEN = 6.0  # robust standard deviations of the gains: an attempt further down is no part of their distribution
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(21)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Kept:
    """An attempt that was kept, against the champion before it. Positive gains are improvements.

    Attributes:
        measured: its measured gain.
        likely, low, high: mean and 95% interval of its true gain, given the whole ledger.
        real: probability that its true gain is above 0.
        noise: whether two single runs without any difference differ so much in more than 5% of cases.
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
    """What a ledger tells: its keeps, the champion's whole gain, and the reruns that would settle most.

    `wrong` is the expected number of keeps that are no improvements; `wrong_after` is the expected number of wrong
    decisions if, after the reruns, each keep that is then unlikely to be one is dropped.
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
    """Return the standard deviation of repeats, rows of one name, pooled; NaN without any."""
    values = defaultdict(list)
    for attempt in attempts:
        if attempt.value is not None:
            values[attempt.name].append(attempt.value)
    repeated = [each for each in values.values() if len(each) > 1]
    freedom = sum(len(each) - 1 for each in repeated)
    return math.sqrt(sum(np.var(each) * len(each) for each in repeated) / freedom) if freedom else math.nan


def settle(attempts: Sequence[Attempt], sd: float, sign: int) -> Settled:
    """Judge a ledger.

    Args:
        attempts: in the order in which they were made; the first that has a value is the baseline. Rows of one name are
            repeats of one attempt.
        sd: standard deviation of one run, above 0.
        sign: 1 if larger values are better, -1 if smaller ones are.
    """
    tree = _tree(attempts, sign)
    mean, cov = _posterior(tree, sd)
    keeps = [_kept(node, tree, mean, cov, sd) for node in tree.kept]
    total = _gain(tree.champion, 0, mean, cov)
    reruns, wrong, after = _reruns(tree, mean, cov, sd)
    return Settled(
        tuple(keeps),
        sd,
        float(tree.values[tree.champion] - tree.values[0]),
        total[0],
        total[0] - 1.96 * total[1],
        total[0] + 1.96 * total[1],
        tuple(tree.nodes[node].name for node in reruns),
        wrong,
        after,
    )


@dataclass(frozen=True)
class _Tree:
    """The attempts that have a value, each below the champion of its time; node 0 is the baseline."""

    nodes: list[Attempt]
    parents: list[int]
    values: Array  # mean of the repeats, larger is better
    counts: Array  # repeats
    kept: list[int]  # nodes, but for the baseline
    champion: int
    path: Array  # [node, node]: 1 where the gain of the column's node is a part of the row's value


def _tree(attempts: Sequence[Attempt], sign: int) -> _Tree:
    places: dict[str, int] = {}
    nodes: list[Attempt] = []
    parents, kept, champion = [], [], 0
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
            parents.append(champion)
        if attempt.kept and place != champion and place not in kept:
            kept.append(place)
            champion = place
    path = np.eye(len(nodes))
    for node in range(1, len(nodes)):
        path[node] += path[parents[node]]
    means = np.array([np.mean(each) for each in values])
    return _Tree(nodes, parents, means, np.array([len(each) for each in values], float), kept, champion, path)


def _posterior(tree: _Tree, sd: float) -> tuple[Array, Array]:
    """Return mean and covariance of all true values, given the measured ones."""
    gains = tree.values - tree.values[tree.parents]
    gain_sd = 1.4826 * float(np.median(np.abs(gains[1:] - np.median(gains[1:])))) + sd
    used = np.array([0, *(n for n in range(1, len(gains)) if n in tree.kept or gains[n] > -_BROKEN * gain_sd)])
    design, observed = tree.path[np.ix_(used, used)], tree.values[used]
    noise, depth = np.diag(sd**2 / tree.counts[used]), design[:, 1:].sum(1)
    fixed = np.stack([np.ones(len(used)), depth], axis=1)  # the baseline's value, and mu

    def fit(log_tau: float) -> tuple[float, Array, Array, Array]:
        tau = math.exp(log_tau)
        prior = tau**2 * design[:, 1:] @ design[:, 1:].T
        inverse = np.linalg.inv(prior + noise)
        information = fixed.T @ inverse @ fixed
        effects = np.linalg.lstsq(information, fixed.T @ inverse @ observed, rcond=None)[0]
        rest = observed - fixed @ effects
        fitted = float(rest @ inverse @ rest) - np.linalg.slogdet(inverse)[1] + np.linalg.slogdet(information)[1]
        return fitted, effects, prior, inverse

    bounds = math.log(sd / 30), math.log(30 * (sd + gain_sd))
    best = optimize.minimize_scalar(lambda log_tau: fit(log_tau)[0], bounds=bounds, method="bounded").x
    _, effects, prior, inverse = fit(best)
    rest = observed - fixed @ effects
    mean = fixed @ effects + prior @ inverse @ rest
    information = np.linalg.pinv(fixed.T @ inverse @ fixed)
    left = fixed - prior @ inverse @ fixed
    cov = prior - prior @ inverse @ prior + left @ information @ left.T
    whole_mean, whole_cov = tree.values.copy(), np.diag(sd**2 / tree.counts)  # of broken attempts: as measured
    whole_mean[used] = mean
    whole_cov[np.ix_(used, used)] = cov
    return whole_mean, whole_cov


def _gain(node: int, parent: int, mean: Array, cov: Array) -> tuple[float, float]:
    """Return mean and standard deviation of a gain."""
    variance = cov[node, node] + cov[parent, parent] - 2 * cov[node, parent]
    return float(mean[node] - mean[parent]), math.sqrt(max(float(variance), 0.0))


def _kept(node: int, tree: _Tree, mean: Array, cov: Array, sd: float) -> Kept:
    parent = tree.parents[node]
    likely, error = _gain(node, parent, mean, cov)
    measured = float(tree.values[node] - tree.values[parent])
    noise = sd * math.sqrt(1 / tree.counts[node] + 1 / tree.counts[parent])
    real = float(special.ndtr(likely / error)) if error else float(likely > 0)
    low, high = likely - 1.96 * error, likely + 1.96 * error
    return Kept(
        tree.nodes[node], tree.nodes[parent].name, measured, likely, low, high, real=real, noise=measured < 1.96 * noise
    )


def _reruns(tree: _Tree, mean: Array, cov: Array, sd: float) -> tuple[list[int], float, float]:
    """Choose one rerun after the other, each where it is expected to lower the number of wrong decisions most."""
    chosen: list[int] = []
    pairs = [(node, tree.parents[node]) for node in tree.kept]
    wrong = sum(float(special.ndtr(-gain / error)) for gain, error in (_gain(*pair, mean, cov) for pair in pairs))
    expected, current = _wrong(pairs, mean, cov, cov), cov
    for _ in range(min(RERUNS, len(pairs))):
        after = {node: _rerun(current, node, sd) for node in (0, *tree.kept)}
        errors = {node: _wrong(pairs, mean, cov, after[node]) for node in after}
        node = min(errors, key=lambda each: errors[each])
        chosen.append(node)
        expected, current = errors[node], after[node]
    return chosen, wrong, expected


def _rerun(cov: Array, node: int, sd: float) -> Array:
    """Return the covariance of the true values after one more run of a node."""
    return cov - np.outer(cov[:, node], cov[node]) / (cov[node, node] + sd**2)


def _wrong(pairs: Sequence[tuple[int, int]], mean: Array, before: Array, after: Array) -> float:
    """Return the expected number of wrong decisions on the keeps once `after` is known, where now it is `before`."""
    total = 0.0
    for pair in pairs:
        (gain, now), (_, then) = _gain(*pair, mean, before), _gain(*pair, mean, after)
        moves = math.sqrt(max(now**2 - then**2, 0.0)) * _NODES  # of the gain's mean, by what the reruns will say
        total += float(_WEIGHTS @ special.ndtr(-np.abs(gain + moves) / max(then, 1e-12))) / math.sqrt(2 * math.pi)
    return total
