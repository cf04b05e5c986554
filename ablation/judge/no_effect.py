"""Changes that had, or could have, no effect: known from the plan before a run, or from the weights after it.

If a trainer writes `weights.json` (digest of the trained weights, sketch of their change from the start), two runs of
one seed can be compared. Nothing else is known about the trainer here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ablation.config.study import Change

NEARLY = 0.01  # of the way from the start: weights that differ by less are nearly equal


@dataclass(frozen=True)
class Weights:
    """The trained weights of one stage of one run."""

    key: str  # of the stage: equal where two variants share it
    digest: str
    moved: tuple[float, ...]  # none where the stage measured models: the digest is of all that its items depend on
    last: bool = False  # the run's last stage, whose items are compared


TrainedWeights = Mapping[tuple[str, int], Mapping[str, Weights]]  # (variant, seed): by stage


def planned(changes: Sequence[Change]) -> list[str]:
    """Return one phrase per change that cannot matter according to the study's configuration."""
    idle = [change for change in changes if change.no_effect]
    phrases = [f"{change.key} can have no effect: {change.no_effect}" for change in idle]
    if idle and len(idle) == len(changes):
        phrases.append("nothing that this edge changes can have an effect")
    return phrases


def trained(weights: TrainedWeights, child: str, parent: str) -> list[str]:
    """Return one phrase per stage that both variants trained on their own, with equal or nearly equal weights."""
    seeds = sorted({seed for name, seed in weights if name == child} & {s for name, s in weights if name == parent})
    distances: dict[str, list[float]] = {}
    for seed in seeds:
        one, other = weights[child, seed], weights[parent, seed]
        for stage in one.keys() & other.keys():
            if one[stage].key != other[stage].key and one[stage].moved:
                distances.setdefault(stage, []).append(_distance(one[stage], other[stage]))
    return [phrase for stage, found in sorted(distances.items()) if (phrase := _phrase(stage, found))]


def same_measured(weights: TrainedWeights, child: str, parent: str, seeds: Sequence[int]) -> bool:
    """Tell whether two variants measured the same models in the same way in each of these seeds.

    Their values are then equal on every item, unseen ones included. Stages before the last one count too, as it may
    pass on their items; but alone they say nothing about the models that the last one measured.
    """

    def measured(variant: str, seed: int) -> dict[str, Weights]:
        return {stage: of for stage, of in weights.get((variant, seed), {}).items() if not of.moved}

    def alike(ours: Mapping[str, Weights], theirs: Mapping[str, Weights]) -> bool:
        same = ours.keys() == theirs.keys() and all(of.digest == theirs[stage].digest for stage, of in ours.items())
        return same and any(of.last for of in ours.values())

    return bool(seeds) and all(alike(measured(child, seed), measured(parent, seed)) for seed in seeds)


def _distance(one: Weights, other: Weights) -> float:
    """Return the distance of two trainings relative to the parent's change from the start; 0 only for equal weights."""
    if one.digest == other.digest:
        return 0.0
    a, b = np.array(one.moved), np.array(other.moved)
    if a.shape != b.shape or not np.linalg.norm(b) > 0:
        return float("inf")
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)), float(np.finfo(float).tiny))


def _phrase(stage: str, distances: Sequence[float]) -> str:
    equal = sum(distance == 0 for distance in distances)
    of = f"in {len(distances)} of {len(distances)} seeds"
    if equal == len(distances):
        return f"{stage} ended with equal weights {of}: the change had no effect on training"
    if max(distances) <= NEARLY:
        share = f"{max(distances):.2%}" if max(distances) >= 1e-4 else "less than 0.01%"
        return (
            f"{stage} ended with nearly equal weights {of} (apart by at most {share} of their way from the start): "
            "the change had next to no effect on training"
        )
    return f"{stage} ended with equal weights in {equal} of {len(distances)} seeds" if equal else ""
