"""A/A: the seeds of one variant, split into the arms of a lineage in which no edge has an effect.

The pseudo-study has the lineage's shape. Its root gets some of the variant's seeds; each child gets others than its
parent's, in random order. Seeds are exchangeable, so that no effect is the truth, whatever the noise is like. At the
level of the margin, a known change of the items is added on top of that noise.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from tracker.config.study_schema import Analysis
from tracker.judge.certificate.bounds import ENOUGH, effective_units
from tracker.judge.certificate.changes import change_items, sides, signed_gain
from tracker.judge.certificate.noise import seeds_share
from tracker.judge.certificate.pseudo import Runs, pseudo_study
from tracker.judge.certificate.trials import Level, Trial, judged
from tracker.judge.measurements import Measurements
from tracker.judge.moderation import FEWEST_SEEDS
from tracker.judge.scope import seeds_for
from tracker.judge.significance import Array

SMALLEST_ARM = 2  # with one seed an arm has no seed noise, and no word is given


def arm_size(runs: Runs) -> int:
    """Return the seeds of an arm: as many as leave splits enough, at least two; 0 where none can be split."""
    sizes = range(runs.most_seeds // 2, SMALLEST_ARM - 1, -1)
    return next((k for k in sizes if _independent(runs, k) >= ENOUGH), SMALLEST_ARM if sizes else 0)


def telling_arm(word: str, analysis: Analysis) -> int:
    """Return the seeds of an arm from which on a split tells how often the word is wrong.

    Below the first look no word is said, `equivalent` is not said of fewer seeds than `rare` asks for, and variances
    are moderated from three seeds on.
    """
    least = max(SMALLEST_ARM, *analysis.looks[:1], FEWEST_SEEDS if analysis.variance == "moderated" else 0)
    return max(least, seeds_for(analysis.rare, analysis.alpha)) if word == "equivalent" else least


def effective_splits(runs: Runs) -> float:
    """Return the number of independent trials that the splits are worth."""
    arm = arm_size(runs)
    return _independent(runs, arm) if arm else 0.0


def _independent(runs: Runs, arm: int) -> float:
    return effective_units(disjoint_splits(runs, arm), seeds_share(runs))


def disjoint_splits(runs: Runs, arm: int) -> int:
    """Return the number of splits of which no two have a run in common."""
    return sum(len(seeds) // (2 * arm) for seeds, _ in runs.values.values())


def split_trials(study: Measurements, runs: Runs, levels: Sequence[Level], rounds: int, seed: int) -> Iterator[Trial]:
    """Judge `rounds` splits of every variant with seeds enough, at every level."""
    if not (arm := arm_size(runs)):
        return
    for place, (variant, (seeds, _)) in enumerate(runs.values.items()):
        if len(seeds) < 2 * arm:
            continue
        for round_ in range(rounds):
            for number, level in enumerate(levels):
                generator = np.random.default_rng([seed, place, round_, number])
                yield _split(study, runs, variant, arm=arm, level=level, generator=generator)


def _split(
    study: Measurements, runs: Runs, variant: str, *, arm: int, level: Level, generator: np.random.Generator
) -> Trial:
    seeds, arrays = runs.values[variant]
    means = [subset.mean(axis=1) for subset in arrays]
    taken: dict[str, list[int]] = {}  # variant of the lineage: places of its seeds
    gains: dict[str, float] = {}  # variant of the lineage: its planted gain
    truths: dict[str, float | None] = {}
    values = {}
    for node in study.variants:
        parent = node.parent if node.parent in taken else None
        free = [place for place in range(len(seeds)) if parent is None or place not in taken[parent]]
        taken[node.name] = [int(place) for place in generator.permutation(free)[:arm]]
        gains[node.name] = 0.0
        if parent is not None:
            # A planted parent's child is not planted: values stay within their range, however long the chain.
            gain = signed_gain(study, runs, means, level.amount, generator) if not gains[parent] else 0.0
            gains[node.name] = gain or 0.0
            truths[node.name] = None if gain is None else gain - gains[parent]
        own = [subset[taken[node.name]] for subset in arrays]
        if gains[node.name]:
            own = _plant(study, runs, own, means, gain=gains[node.name], generator=generator)
        values[node.name] = (list(range(arm)), own)
    made = pseudo_study(study, values, runs.items)
    return judged(made, truths, form="splits", level=level.name, unit=variant)


def _plant(
    study: Measurements,
    runs: Runs,
    values: Sequence[Array],
    means: Sequence[Array],
    *,
    gain: float,
    generator: np.random.Generator,
) -> list[Array]:
    planted = []
    for subset, mean, side, low, high in zip(values, means, sides(study, means), runs.low, runs.high, strict=True):
        centre = np.full(len(subset), mean.mean())
        move = np.full(len(subset), gain * side)
        draw = generator.random((1, subset.shape[1]))
        planted.append(change_items(subset, centre, move, volume=0.0, low=low, high=high, draw=draw)[0])
    return planted
