"""The joint effect of all changes from the root to a variant, with simultaneous intervals for all paths.

    with_paths(study, edges) -> edges     with `root`, `root_effect`, `root_low`, `root_high` where there is a path

The family is every variant against every one of its ancestors, so that a reader may look for the best of them. A path
is the sum of its edges, so the edges' covariances give the covariances of paths. Each interval is based on a direct
comparison of the two variants.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ablation.config.lineage import ancestors
from ablation.judge.edges import Edge, Measured, family_covariances, look_shares, measure, those_tested
from ablation.judge.family import Family, paths_to_ancestors
from ablation.judge.measurements import Measurements
from ablation.judge.significance import Noise


def with_paths(study: Measurements, edges: Sequence[Edge]) -> list[Edge]:
    """Compare each variant with its root, where every edge between them can be judged."""
    if study.analysis.edges != "parent":
        return list(edges)
    parents = {variant.name: variant.parent for variant in study.variants}
    tested = {edge.pair for edge in those_tested(edges)}
    level = path_level(study, edges)

    def against_root(edge: Edge) -> Edge:
        above = ancestors(edge.child, parents)
        if not above or not all(step in tested for step in pairwise([edge.child, *above])):
            return edge
        whole: Measured = edge if len(above) == 1 else measure(study, edge.child, above[-1])
        if not whole.looks or np.isnan(whole.p):
            return edge
        look = whole.looks[-1]
        low, high = look.estimate.interval(look.noise, level * look.weight)
        low, high = min(low, whole.effect), max(high, whole.effect)
        return replace(edge, root=above[-1], root_effect=whole.effect, root_low=low, root_high=high)

    return [against_root(edge) for edge in edges]


def path_level(study: Measurements, edges: Sequence[Measured]) -> float:
    """The level at which each path's interval may be drawn, with alpha over all paths."""
    tested = those_tested(edges)
    parents = {variant.name: variant.parent for variant in study.variants}
    paths = list(paths_to_ancestors(parents, [(edge.child, edge.parent) for edge in tested]).values())
    covariance = family_covariances(study, tested)
    if covariance is None or not paths:
        return study.analysis.alpha / max(len(paths), 1)
    steps = np.stack(paths)
    by_seed, by_item = (steps @ part @ steps.T for part in covariance)
    noises = [edge.looks[-1].noise for edge in tested]
    weakest = [
        Noise(
            float(by_seed[at, at]),
            min(noise.seed_df for noise, used in zip(noises, path, strict=True) if used),
            float(by_item[at, at]),
            min(noise.item_df for noise, used in zip(noises, path, strict=True) if used),
        )
        for at, path in enumerate(steps)
    ]
    return Family.of(by_seed, by_item, weakest, look_shares(study.analysis)).level(study.analysis.alpha)
