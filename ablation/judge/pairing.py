"""Which runs may be compared: the same seeds and items on both sides, and nothing wrong with any of them."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablation.contract.status import TO_COME
from ablation.judge.measurements import Measurements, Rule
from ablation.judge.moderation import SeedPrior
from ablation.judge.resampling import Clusters, number_clusters
from ablation.judge.significance import Array
from ablation.judge.statistics import ArmDraws
from ablation.store.database import ENDED_WELL

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """What keeps runs from being compared; `waiting` where nothing is wrong but that some have not ended."""

    text: str = ""
    waiting: bool = False

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.text)


@dataclass(frozen=True)
class Reuse:
    """What comparisons of one study have in common: found by the first of them, taken over by the others."""

    clusters: dict[tuple[str, int], Clusters] = field(default_factory=dict)
    draws: dict[Hashable, ArmDraws] = field(default_factory=dict)  # of (variant, seed, seed, ...)
    of_run: dict[tuple[str, int], str] = field(default_factory=dict)  # what is wrong with it
    of_items: dict[Hashable, list[str]] = field(default_factory=dict)  # what keeps two runs from being paired
    hours: dict[str, dict[str, float]] = field(default_factory=dict)  # of each stage of a variant, by key
    prior: list[SeedPrior | None] = field(default_factory=list)  # the study's own, once it is known

    def item_clusters(self, study: Measurements, variant: str, seed: int) -> Clusters:
        """The clusters of a run's items, as the function of this name."""
        if (variant, seed) not in self.clusters:
            found = item_clusters(study, variant, seed)
            self.clusters[variant, seed] = number_clusters([len(of) for of in found], found)
        return self.clusters[variant, seed]

    def fault(self, study: Measurements, variant: str, seed: int) -> str:
        """What is wrong with a run, or nothing."""
        if (variant, seed) not in self.of_run:
            self.of_run[variant, seed] = _fault(study, variant, seed)
        return self.of_run[variant, seed]

    def stage_hours(self, study: Measurements, variant: str) -> dict[str, float]:
        """Device-hours of each stage that a variant's runs used, by its key."""
        if not self.hours and len(study.stages):
            columns = (study.stages[name].tolist() for name in ("variant", "key", "hours"))
            for name, key, hours in zip(*columns, strict=True):
                self.hours.setdefault(name, {}).setdefault(key, hours)
        return self.hours.get(variant, {})

    def item_faults(self, study: Measurements, runs: Sequence[tuple[str, int]]) -> list[str]:
        """What keeps runs from being paired item by item."""
        key = tuple(runs)
        if key not in self.of_items:
            self.of_items[key] = list(_item_faults(study, runs))
        return self.of_items[key]


def paired_values(
    study: Measurements, variants: Sequence[str], reuse: Reuse | None = None
) -> tuple[list[Array], list[int], Problem]:
    """Pair runs of several variants: (one [variants, seeds, items] array per subset, seeds, problem).

    There is no `problem` where the pairing holds; otherwise the arrays hold the seeds that can be paired, or none.
    """
    reuse = reuse or Reuse()
    planned = [study.seeds(variant) for variant in variants]
    common = set.intersection(*planned)
    # `decide` adds seeds to some variants only: more seeds on one side is a longer prefix, not another pairing.
    smallest = min(planned, key=len)
    problems = [study.cluster_fault] if study.cluster_fault else []
    if common != smallest or not common:
        listed = "; ".join(f"{v} has seeds {sorted(s)}" for v, s in zip(variants, planned, strict=True))
        problems.append(f"unpaired: {listed}")
    usable, waiting = [], not problems
    for seed in study.in_order_added(common):
        faulty = {variant: fault for variant in variants if (fault := reuse.fault(study, variant, seed))}
        faults = list(faulty.values()) or reuse.item_faults(study, [(variant, seed) for variant in variants])
        problems += faults
        to_come = all(study.states[variant, seed][0] in TO_COME for variant in faulty)
        waiting = waiting and (not faults or (bool(faulty) and to_come))
        if not faults:
            usable.append(seed)
    # Items are drawn once for all seeds, so they must agree between seeds too.
    first = [(variants[0], seed) for seed in usable[:1]]
    for seed in list(usable[1:]):
        if faults := reuse.item_faults(study, [*first, (variants[0], seed)]):
            problems += faults
            usable.remove(seed)
            waiting = False
    problem = Problem("; ".join(dict.fromkeys(problems)), bool(problems) and waiting)
    if not usable:
        return [], [], problem or Problem("no seeds")
    arrays = [
        np.stack([[study.values[variant, seed][subset].to_numpy() for seed in usable] for variant in variants])
        for subset in study.analysis.subsets
    ]
    return arrays, usable, problem


def item_clusters(study: Measurements, variant: str, seed: int) -> list[Numbers]:
    """Number of the cluster of each item, one array [items] per subset, in the order of `paired_values`.

    One name is one cluster, in every subset. An item without a cluster is one of its own.
    """
    numbers: dict[Any, int] = {}
    found = []
    for subset in study.analysis.subsets:
        named = study.clusters.get(subset, {})
        items = study.values[variant, seed][subset].index
        keys = [named.get(item, (subset, item)) for item in items]
        found.append(np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64))
    return found


def _fault(study: Measurements, variant: str, seed: int) -> str:
    run = (variant, seed)
    state, reason = study.states[run]
    if state not in ENDED_WELL:
        word = "not run" if state == "missing" else state
        return f"{variant} seed {seed} is {word}" + (f" ({reason})" if reason else "")
    if run in study.aborted:
        return f"{variant} seed {seed} is unhealthy ({study.aborted[run]})"
    if run in study.duplicates:
        return f"{variant} seed {seed} has an item twice"
    found = study.values.get(run, {})
    for subset in study.analysis.subsets:
        if subset not in found:
            return f"{variant} seed {seed} has no items of {subset}"
        if not np.isfinite(found[subset].to_numpy()).all():
            return f"{variant} seed {seed} has an item of {subset} whose value is not finite"
    return ""


def _item_faults(study: Measurements, runs: Sequence[tuple[str, int]]) -> Iterator[str]:
    reference = study.values[runs[0]]
    for variant, seed in runs[1:]:
        for subset in study.analysis.subsets:
            ours, theirs = reference[subset].index, study.values[variant, seed][subset].index
            if not ours.equals(theirs):
                shared = len(ours.intersection(theirs))
                yield (
                    f"unpaired items of {subset}: {runs[0][0]} seed {runs[0][1]} has {len(ours)}, "
                    f"{variant} seed {seed} has {len(theirs)}, {shared} in common"
                )


@dataclass(frozen=True)
class Warned:
    """A rule of severity warn, and the runs that broke it; it does not change a verdict."""

    rule: Rule
    runs: tuple[str, ...]

    def __str__(self) -> str:
        """The phrase of a reason."""
        more = f" and {len(self.runs) - 3} more" if len(self.runs) > 3 else ""
        return f"unhealthy (warn): {self.rule} ({', '.join(self.runs[:3])}{more})"


def warnings(study: Measurements, variants: Sequence[str]) -> tuple[Warned, ...]:
    """Return the rules of severity warn that runs of the variants broke."""
    runs: dict[Rule, list[str]] = {}
    for variant in variants:
        for seed in sorted(study.seeds(variant)):
            for rule in study.warned.get((variant, seed), ()):
                runs.setdefault(rule, []).append(f"{variant} seed {seed}")
    return tuple(Warned(rule, tuple(found)) for rule, found in runs.items())
