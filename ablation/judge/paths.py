"""What all changes from the root to a variant did together, with intervals that hold for every path at once.

    add_paths(study, edges)     fills in `root`, `root_effect`, `root_low`, `root_high` of edges of the lineage

The family is every variant against every one of its ancestors, so that a reader may look for the best of them. A path
is the sum of its edges, and so is its noise: their covariances make the paths'. The interval's own numbers are those
of a direct comparison of the two variants.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ablation.config.lineage import ancestors
from ablation.judge.edges import Edge, family_covariances, look_shares, measure, study_prior, those_tested
from ablation.judge.family import Family, paths_to_ancestors
from ablation.judge.measurements import Measurements
from ablation.judge.moderation import SeedPrior
from ablation.judge.pairing import Reuse
from ablation.judge.significance import Noise


def add_paths(study: Measurements, edges: Sequence[Edge], reuse: Reuse | None = None) -> None:
    """Compare each variant with its root, where every edge between them can be judged."""
    if study.analysis.edges != "parent":
        return
    reuse = reuse or Reuse()
    prior = study_prior(study, reuse)
    parents = {variant.name: variant.parent for variant in study.variants}
    tested = {(edge.child, edge.parent) for edge in those_tested(edges)}
    level = path_level(study, edges, prior)
    for edge in edges:
        above = ancestors(edge.child, parents)
        if not above or not all(step in tested for step in pairwise([edge.child, *above])):
            continue
        whole = edge if len(above) == 1 else measure(study, edge.child, above[-1], prior, reuse)
        if not whole.looks or np.isnan(whole.p):
            continue
        look = whole.looks[-1]
        low, high = look.estimate.interval(look.noise, level * look.weight)
        edge.root, edge.root_effect = above[-1], whole.effect
        edge.root_low, edge.root_high = min(low, whole.effect), max(high, whole.effect)


def path_level(study: Measurements, edges: Sequence[Edge], prior: SeedPrior | None) -> float:
    """The level at which each path's interval may be drawn, with alpha over all paths."""
    tested = those_tested(edges)
    parents = {variant.name: variant.parent for variant in study.variants}
    paths = list(paths_to_ancestors(parents, [(edge.child, edge.parent) for edge in tested]).values())
    covariance = family_covariances(study, tested, prior)
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
