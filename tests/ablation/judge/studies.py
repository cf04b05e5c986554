"""Studies in memory, with known truth."""

import numpy as np
import pandas as pd
from scipy import stats

from ablation.config.study_schema import Analysis
from ablation.judge.measurements import Column, Measurements
from ablation.plan.plan_file import PlannedVariant


def variant_tree(variants, shape="fan"):
    """Parents of v0, v1, ...: a fan of the root, or a chain."""
    return {f"v{i}": None if i == 0 else ("v0" if shape == "fan" else f"v{i - 1}") for i in range(variants)}


def measurements(values, parents, *, clusters=None, factors=None, **analysis):
    """A study of values {variant: {subset: [seeds, items]}}; clusters {subset: cluster by item}; factors by variant."""
    subsets = list(next(iter(values.values())))
    plan = {"value": "hit", "protocol": "test", "subsets": subsets, "direction": "max", "margin": 0.02}
    runs = {}
    for variant, by_subset in values.items():
        for seed in range(len(next(iter(by_subset.values())))):
            runs[variant, seed] = {
                name: Column(pd.Index([f"i{k:04d}" for k in range(array.shape[1])]), np.asarray(array[seed], float))
                for name, array in by_subset.items()
            }
    planned = [
        PlannedVariant(
            name=name, parent=parent, why="w", file="f", resolved={}, factors=(factors or {}).get(name, ()), changes=()
        )
        for name, parent in parents.items()
    ]
    return Measurements(
        name="s",
        analysis=Analysis(**(plan | analysis)),
        variants=planned,
        states=dict.fromkeys(runs, ("ok", "")),
        aborted={},
        values=runs,
        duplicates=frozenset(),
        stages=pd.DataFrame({"variant": [], "seed": [], "key": [], "hours": []}),
        clusters=clusters or {},
    )


def normal_study(
    variants=6,
    seeds=5,
    items=200,
    *,
    seed_sd=0.01,
    shared_sd=0.0,
    unequal=0.0,
    rate=0.6,
    ease_sd=0.8,
    seed=0,
    size=1,
    together=0.0,
    **analysis,
):
    """No effect: 0/1 items of different ease, new noise in every run, normal seeds.

    Items come in clusters of `size` of the same ease, which variants change by `together` (standard deviation).
    `unequal`: standard deviation of the logarithms of the variants' own spreads over seeds.
    """
    rng = np.random.default_rng(seed)
    ease = np.repeat(rng.normal(0, ease_sd, -(-items // size)), size)[:items]
    threshold = stats.norm.ppf(rate) * np.sqrt(1 + ease_sd**2)
    shared = rng.normal(0, shared_sd, seeds)
    parents = variant_tree(variants, analysis.pop("shape", "fan"))
    values = {}
    for variant in parents:
        own = rng.normal(0, seed_sd, seeds) * (np.exp(rng.normal(0, unequal)) if unequal else 1.0)
        shift = (shared + own) / stats.norm.pdf(stats.norm.ppf(rate))
        changed = np.repeat(rng.normal(0, together, -(-items // size)), size)[:items] if together else 0.0
        latent = threshold + shift[:, None] + ease + changed + rng.standard_normal((seeds, items))
        values[variant] = {"all": (latent > 0).astype(float)}
    named = {"all": {f"i{k:04d}": f"c{k // size}" for k in range(items)}} if size > 1 else None
    return measurements(values, parents, clusters=named, **analysis)
