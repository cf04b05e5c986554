"""Factorial designs: the configurations between A and B from which the effect of each of n factors is computed.

A run is the set of factors that are as in B; the others are as in A.

With up to four factors, all 2^n runs are made. With five to eight factors, 16 of them are made, a fraction of
resolution IV (Box, Hunter and Hunter, Statistics for Experimenters, 1978, chapter 12), in which no main effect is mixed
with an interaction of two factors. Its generators have three letters each, so that A and B themselves are among the
runs. A factor's Shapley value is its main effect if no more than two factors interact, as a fraction assumes.

With more than eight factors, groups are tested and halved (sequential bifurcation: Bettonvil and Kleijnen 1997,
European Journal of Operational Research 96, 180-194). A run then has the first k factors as in B, and the effect of a
group is the difference of the runs at its ends, so that the effects add up to the whole effect.
"""

from collections.abc import Sequence
from itertools import combinations, product
from math import factorial

import numpy as np

from ablation.contract.numbers import device_time
from ablation.judge.significance import Array

Corner = frozenset[int]  # a run of a factorial design: the factors that are changed in it
FULL, FRACTION = 4, 8  # most factors of which all runs are made, and 16 of them
_GENERATORS = ((0, 1, 2), (1, 2, 3), (0, 2, 3), (0, 1, 3))  # of the fifth to the eighth factor


def design(n: int) -> list[Corner]:
    """Return the runs for two to eight factors, A first and B last."""
    runs = []
    for signs in product((-1, 1), repeat=min(n, FULL)):
        every = [*signs, *(signs[i] * signs[j] * signs[k] for i, j, k in _GENERATORS[: max(n - FULL, 0)])]
        runs.append(frozenset(factor for factor, sign in enumerate(every) if sign > 0))
    return sorted(runs, key=lambda run: (len(run), sorted(run)))


def runs_of(n: int) -> int:
    """Return how many runs show the effect of each of n factors; for more than eight factors, a lower bound."""
    return 2 ** min(n, FULL) if n <= FRACTION else 2 + (n - 1).bit_length()


def offer(study: str, parent: str, child: str, n: int, hours: float) -> str:
    """Return, in words, the command that finds the effect of each of n factors, with its cost.

    `hours` is the number of device-hours per new variant.
    """
    new = runs_of(n) - 2
    cost = f", about {device_time(new * hours)}" if hours > 0 else ""
    least = "at least" if n > FRACTION else "up to"  # some may exist
    return (
        f"`ablation explain {study}/{parent} {child}` separates the {n} factors with {least} {new} new variants{cost}"
    )


def shapley_weights(n: int, runs: Sequence[Corner]) -> Array:
    """Return the weights of each factor's Shapley value [factors, runs].

    It is what a factor adds to the factors before it, on average over all orders of the factors (Shapley 1953).
    """
    if n > FULL:
        return np.stack([_effect(frozenset({factor}), runs) for factor in range(n)])
    weights, place = np.zeros((n, len(runs))), {run: index for index, run in enumerate(runs)}
    for run in runs:
        for factor in run:
            share = factorial(len(run) - 1) * factorial(n - len(run)) / factorial(n)
            weights[factor, place[run]] += share
            weights[factor, place[run - {factor}]] -= share
    return weights


def joint_effects(n: int, runs: Sequence[Corner]) -> dict[tuple[Corner, ...], Array]:
    """Return the weights of main effects and interactions; effects that the runs cannot separate share an entry.

    The interaction of two factors is the effect of one if the other is as in B, minus its effect if the other is as in
    A, on average over further factors. The interaction of three factors is the difference of two such interactions,
    and so on.
    """
    most = n if n <= FULL else 2
    sets = [frozenset(chosen) for size in range(1, most + 1) for chosen in combinations(range(n), size)]
    alike: dict[tuple[float, ...], list[Corner]] = {}
    for chosen in sets:
        alike.setdefault(tuple(_effect(chosen, runs).tolist()), []).append(chosen)
    return {tuple(factor_set): np.array(weights) for weights, factor_set in alike.items()}


def _effect(chosen: Corner, runs: Sequence[Corner]) -> Array:
    signs = np.array([[1.0 if factor in run else -1.0 for factor in chosen] for run in runs])
    return np.asarray(signs.prod(axis=1) * 2 ** len(chosen) / len(runs))
