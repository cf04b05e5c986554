"""Remarks on a comparison that do not change its verdict, such as changes without effect or different environments.

A change has no effect if the study's configuration says so, or if training ended with equal weights although the
configurations differ (`weights.json` of a stage has digests of the weights).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from ablation.config.study import Change
from ablation.contract.display import joined
from ablation.contract.numbers import counted, fixed, percent, rough
from ablation.judge.measurements import PACKAGES, Environment, Measurements, Weights
from ablation.judge.scales import unlike_units
from ablation.store.analysis_history import seeds_added
from ablation.store.database import Run

_TELLING, _FEW = 20, 0.1  # fewest items in which pairs of seeds usually differ; share of it in which a copy may differ
NEARLY = 0.01  # relative distance of two trainings up to which their weights are nearly equal
_WORDS = {"device": "on different processors", "devices": "on different numbers of devices"} | {
    name: f"with different versions of {name}" for name in PACKAGES
}


def comparison_remarks(study: Measurements, child: str, parent: str, runs: Sequence[Run]) -> Iterator[str]:
    """Yield the remarks on a comparison, as clauses; `runs` are the compared runs, the parent's first."""
    [variant] = [variant for variant in study.variants if variant.name == child]
    if variant.parent == parent and variant.changes:
        yield from _planned(variant.changes)
    if study.weights:
        yield from _trained(study.weights, child, parent, sorted({*study.seeds(child)} & {*study.seeds(parent)}))
    if study.environments:
        common = [seed for name, seed in runs if name == child and (parent, seed) in runs]
        yield from _environments(study.environments, child, parent, common)
    if study.history:
        yield from _added(study, child, parent)
    if study.steps:
        yield from steps_apart(study, runs)
    if study.analysis.transform and runs:
        yield from _means_that_disagree(study, child, runs)
    if study.imported:
        yield from filter(None, [unlike_units(study, runs)])
        yield "the runs were imported and have no code fingerprint"


def steps_apart(study: Measurements, runs: Sequence[Run]) -> Iterator[str]:
    """Yield a remark if the final metrics are from different steps, for example because some runs ended earlier."""
    steps = {run: study.steps[run] for run in runs if run in study.steps}
    if len({tuple(run_steps) for run_steps in steps.values()}) < 2:
        return
    ends: dict[str, list[int]] = {}
    for (variant, _), run_steps in steps.items():
        ends.setdefault(variant, []).extend(run_steps)
    listed = ", ".join(f"{name} at {_span(run_steps)}" for name, run_steps in ends.items())
    if study.kept:
        yield f"the values are those of the models that were kept: {listed}"
    else:
        common = "if all logged a common step, import all with --at common"
        yield f"runs end at different steps: {listed}; {common if study.imported else 'train all runs equally long'}"


def _means_that_disagree(study: Measurements, child: str, runs: Sequence[Run]) -> Iterator[str]:
    """Yield a remark if the mean of the values moves the other way than the mean of their logarithms."""
    logs: dict[bool, list[float]] = {True: [], False: []}
    plain: dict[bool, list[float]] = {True: [], False: []}
    for run in runs:
        by_subset = [study.values[run][subset].values for subset in study.analysis.subsets]
        logs[run[0] == child].append(float(np.mean([values.mean() for values in by_subset])))
        plain[run[0] == child].append(float(np.mean([np.exp(values).mean() for values in by_subset])))
    before, after = np.mean(plain[False]), np.mean(plain[True])
    if (np.mean(logs[True]) - np.mean(logs[False])) * (after - before) < 0:
        what = f"the mean of {study.analysis.value} itself moves the other way, from {rough(before)} to {rough(after)}"
        yield f"{what}, which a few large values can cause"


def near_copies(study: Measurements, seeds_of: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Yield a remark on two seeds that differ in far fewer items than others, since one may be an edited copy."""
    for variant, seeds in seeds_of.items():
        if len(seeds) < 3:
            continue
        by_run = ([study.values[variant, seed][subset].values for subset in study.analysis.subsets] for seed in seeds)
        runs = dict(zip(seeds, map(np.concatenate, by_run), strict=True))
        if len({len(values) for values in runs.values()}) > 1:
            continue
        apart = {pair: int((runs[pair[0]] != runs[pair[1]]).sum()) for pair in combinations(seeds, 2)}
        usual = float(np.median(list(apart.values())))
        for (one, other), count in apart.items():
            if usual >= _TELLING and 0 < count <= _FEW * usual:
                what = f"seeds {one} and {other} of {variant} differ in only {counted(count, 'item')}"
                yield f"{what}, but other pairs usually differ in {fixed(usual, 0)}, so one may be a copy of the other"


def _span(steps: Sequence[int]) -> str:
    low, high = min(steps), max(steps)
    return f"step {low}" if low == high else f"steps {low} to {high}"


def _planned(changes: Sequence[Change]) -> Iterator[str]:
    """Yield remarks on changes that cannot have an effect, according to the study's configuration."""
    idle = [change for change in changes if change.no_effect]
    yield from (f"{change.key} cannot have any effect: {change.no_effect}" for change in idle)
    yield from (
        f"a part of {change.key} cannot have any effect: {change.idle_part}" for change in changes if change.idle_part
    )
    if idle and len(idle) == len(changes):
        yield "none of the changes in this comparison can have an effect"


def _trained(
    weights: Mapping[Run, Mapping[str, Weights]], child: str, parent: str, seeds: Sequence[int]
) -> Iterator[str]:
    """Yield remarks on stages that ended with equal or nearly equal weights in both variants."""
    distances: dict[str, list[float]] = {}
    for seed in seeds:
        child_weights, parent_weights = weights.get((child, seed), {}), weights.get((parent, seed), {})
        for stage in child_weights.keys() & parent_weights.keys():
            if child_weights[stage].key != parent_weights[stage].key and child_weights[stage].moved:
                distances.setdefault(stage, []).append(_distance(child_weights[stage], parent_weights[stage]))
    for stage, apart in sorted(distances.items()):
        equal, in_seeds = sum(distance == 0 for distance in apart), f"in {len(apart)} of {len(apart)} seeds"
        if equal == len(apart):
            yield f"{stage} ended with equal weights {in_seeds}, so the change had no effect on training"
        elif max(apart) <= NEARLY:
            share = percent(max(apart), 2)
            yield (
                f"{stage} ended with nearly equal weights {in_seeds} (they differ by at most {share} of "
                "their change in training), so the change had next to no effect on training"
            )
        elif equal:
            yield f"{stage} ended with equal weights in {equal} of {len(apart)} seeds"


def _distance(one: Weights, other: Weights) -> float:
    """Return the distance of two trained weights, relative to the parent's change in training; 0 only if equal."""
    if one.digest == other.digest:
        return 0.0
    a, b = np.array(one.moved), np.array(other.moved)
    if a.shape != b.shape or not np.linalg.norm(b) > 0:
        return float("inf")
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)), float(np.finfo(float).tiny))


def same_measured(weights: Mapping[Run, Mapping[str, Weights]], child: str, parent: str, seeds: Sequence[int]) -> bool:
    """Return whether two variants measured the same models in the same way in each of these seeds.

    Then the values are equal on every item, including unseen ones. Stages before the last one count too, because it may
    pass on their items, but not without the last one.
    """

    def measured(variant: str, seed: int) -> dict[str, str]:
        return {
            stage: trained.digest for stage, trained in weights.get((variant, seed), {}).items() if not trained.moved
        }

    return bool(seeds) and all(
        (digests := measured(child, seed)) == measured(parent, seed)
        and any(weights[child, seed][stage].last for stage in digests)
        for seed in seeds
    )


def _environments(
    environments: Mapping[Run, Mapping[str, Environment]], child: str, parent: str, seeds: Sequence[int]
) -> Iterator[str]:
    """Yield remarks on stages that ran on different machines or with different packages in the two variants."""
    for name, words in _WORDS.items():
        differing: dict[tuple[int, str], tuple[str, str]] = {}
        for seed in seeds:
            child_stages, parent_stages = environments.get((child, seed), {}), environments.get((parent, seed), {})
            for stage in (
                stage
                for stage in child_stages
                if stage in parent_stages and child_stages[stage].key != parent_stages[stage].key
            ):
                one, other = getattr(child_stages[stage], name), getattr(parent_stages[stage], name)
                if one and other and one != other:
                    differing[seed, stage] = one, other
        if differing:
            one, other = (joined(list(dict.fromkeys(values))) for values in zip(*differing.values(), strict=True))
            in_seeds = f"in {len({seed for seed, _ in differing})} of {len(seeds)} seeds"
            stages = joined(list(dict.fromkeys(stage for _, stage in differing)))
            yield f"{stages} ran {words} {in_seeds}: {other} for {parent}, {one} for {child}"


def _added(study: Measurements, child: str, parent: str) -> Iterator[str]:
    """Yield a remark if seeds were added after results without interim analyses.

    False findings are then more likely.
    """
    added = seeds_added(study.history)
    changes = [
        f"{name} had {added[name][0]} seeds and has {added[name][1]}" for name in (child, parent) if name in added
    ]
    if changes:
        yield f"seeds were added after there were results, without planned interim analyses ({', '.join(changes)})"
