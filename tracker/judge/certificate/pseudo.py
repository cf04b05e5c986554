"""Studies of known truth that are made of a study's own runs, and the words that they are given.

usable(study)                     the runs that such a study can be made of
as_lineage(study)                 the study with what it compares as its lineage
pseudo_study(study, values, ...)  the same lineage, analysis plan and number of seeds, with other values
words(study)                      {child: word}, judged as `decide` would: at every look until decided
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracker.config.lineage import ancestors, walk
from tracker.judge.edges import judge_edges, study_pairs
from tracker.judge.measurements import Measurements
from tracker.judge.pairing import item_clusters
from tracker.judge.scope import DECIDED
from tracker.judge.significance import Array
from tracker.store.database import ENDED_WELL

Values = Mapping[str, tuple[Sequence[int], Sequence[Array]]]  # variant: seeds, one [seeds, items] array per subset


@dataclass(frozen=True)
class Runs:
    """The runs of a study that are whole and saw the same items: what pseudo-studies are made of."""

    values: dict[str, tuple[list[int], list[Array]]]  # variant: its seeds, one [seeds, items] array per subset
    items: list[pd.Index]  # per subset
    clusters: list[NDArray[np.int64]]  # per subset: the cluster of each item; one name is one cluster in every subset
    low: list[float]  # per subset: the smallest value seen
    high: list[float]

    @property
    def most_seeds(self) -> int:
        """The seeds of the variant that has the most."""
        return max((len(seeds) for seeds, _ in self.values.values()), default=0)


def usable(study: Measurements) -> Runs | None:
    """Return the runs that ended well, have finite values and the items of the first such run; None without any."""
    reference: list[pd.Index] | None = None
    clusters: list[NDArray[np.int64]] = []
    values: dict[str, tuple[list[int], list[Array]]] = {}
    for variant in study.variants:
        seeds: list[int] = []
        arrays: list[list[Array]] = []
        for seed in study.in_order_added(study.seeds(variant.name)):
            found = _whole(study, variant.name, seed)
            if found is None:
                continue
            if reference is None:
                reference, clusters = [series.index for series in found], item_clusters(study, variant.name, seed)
            if all(series.index.equals(items) for series, items in zip(found, reference, strict=True)):
                seeds.append(seed)
                arrays.append([series.to_numpy(dtype=float) for series in found])
        if seeds:
            values[variant.name] = (seeds, [np.stack(subset) for subset in zip(*arrays, strict=True)])
    if reference is None:
        return None
    ranges = [
        (min(v[1][i].min() for v in values.values()), max(v[1][i].max() for v in values.values()))
        for i in range(len(reference))
    ]
    return Runs(values, reference, clusters, [float(low) for low, _ in ranges], [float(high) for _, high in ranges])


def _whole(study: Measurements, variant: str, seed: int) -> list[pd.Series] | None:
    run = (variant, seed)
    found = study.values.get(run, {})
    bad = study.states[run][0] not in ENDED_WELL or run in study.aborted or run in study.duplicates
    if bad or any(subset not in found for subset in study.analysis.subsets):
        return None
    series = [found[subset] for subset in study.analysis.subsets]
    return series if all(np.isfinite(values.to_numpy()).all() for values in series) else None


def pseudo_study(
    study: Measurements, values: Values, items: Sequence[pd.Index], clusters: Sequence[NDArray[np.int64]] | None = None
) -> Measurements:
    """Return the study with these values: every run ended well, and no edge is confounded.

    `clusters` renames the items' clusters (None: as they are), for items that were drawn again.
    """
    runs: dict[tuple[str, int], dict[str, pd.Series]] = {}
    for variant, (seeds, arrays) in values.items():
        for place, seed in enumerate(seeds):
            runs[variant, seed] = {
                subset: pd.Series(array[place], index=index)
                for subset, array, index in zip(study.analysis.subsets, arrays, items, strict=True)
            }
    variants = [
        variant.model_copy(update={"factors": variant.factors[:1], "changes": ()})
        for variant in study.variants
        if variant.name in values
    ]
    made = replace(
        study,
        variants=variants,
        states=dict.fromkeys(runs, ("ok", "")),
        aborted={},
        values=runs,
        duplicates=frozenset(),
        stages=study.stages.iloc[:0],
        warned={},
        weights={},
    )
    if clusters is not None:
        named = {
            subset: {item: f"c{cluster}" for item, cluster in zip(index, of, strict=True)}
            for subset, index, of in zip(study.analysis.subsets, items, clusters, strict=True)
        }
        # Clusters of one item each are no clusters.
        made = replace(made, clusters=named if has_clusters(clusters) else {})
    return made


def as_lineage(study: Measurements) -> Measurements:
    """Return the study with what its plan compares as its lineage: the root as parent, or the pairs that are listed.

    Of several pairs of one child the first counts, and none that would close a circle.
    """
    if study.analysis.edges == "parent":
        return study
    parents: dict[str, str | None] = {variant.name: None for variant in study.variants}
    for child, parent in study_pairs(study):
        if parents[child] is None and child not in (parent, *ancestors(parent, parents)):
            parents[child] = parent
    planned = {variant.name: variant for variant in study.variants}
    variants = [planned[place.name].model_copy(update={"parent": place.parent}) for place in walk(parents)]
    analysis = study.analysis.model_copy(update={"edges": "parent"})
    return replace(study, variants=variants, analysis=analysis)


def has_clusters(clusters: Sequence[NDArray[np.int64]]) -> bool:
    """Whether any two items, of one subset or of two, are in one cluster."""
    every = np.concatenate(list(clusters))
    return len(np.unique(every)) < len(every)


def words(study: Measurements) -> dict[str, str]:
    """Return each child's word, as one who judges at every declared look and stops at a decision would have it."""
    most = max((len(study.seeds(variant.name)) for variant in study.variants), default=0)
    looks = [look for look in study.analysis.looks or () if look < most]
    found: dict[str, str] = {}
    for look in [*looks, most]:
        seen = study if look == most else first_seeds(study, look)
        for edge in judge_edges(seen, planning=False):
            if found.get(edge.child) not in DECIDED:
                found[edge.child] = edge.detail
    return found


def first_seeds(study: Measurements, count: int) -> Measurements:
    """Return the study as it was after so many seeds of every variant."""
    kept = {
        (variant.name, seed)
        for variant in study.variants
        for seed in study.in_order_added(study.seeds(variant.name))[:count]
    }
    states = {run: state for run, state in study.states.items() if run in kept}
    return replace(study, states=states, values={run: found for run, found in study.values.items() if run in kept})
