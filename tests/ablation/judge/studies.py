"""Studies in memory, with known truth, and a pipeline with the faults that a certificate has to find."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
from scipy import stats

from ablation.config.study_schema import Analysis
from ablation.judge.certificate import certify
from ablation.judge.measurements import Measurements, paired_values
from ablation.plan.plan_file import PlannedVariant


def lineage(variants, shape="fan"):
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
                name: pd.Series(
                    np.asarray(array[seed], dtype=float), index=[f"i{k:04d}" for k in range(array.shape[1])]
                )
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
    parents = lineage(variants, analysis.pop("shape", "fan"))
    values = {}
    for variant in parents:
        own = rng.normal(0, seed_sd, seeds) * (np.exp(rng.normal(0, unequal)) if unequal else 1.0)
        shift = (shared + own) / stats.norm.pdf(stats.norm.ppf(rate))
        changed = np.repeat(rng.normal(0, together, -(-items // size)), size)[:items] if together else 0.0
        latent = threshold + shift[:, None] + ease + changed + rng.standard_normal((seeds, items))
        values[variant] = {"all": (latent > 0).astype(float)}
    named = {"all": {f"i{k:04d}": f"c{k // size}" for k in range(items)}} if size > 1 else None
    return measurements(values, parents, clusters=named, **analysis)


def let_judge(patch, judge):
    """Have the certificate judged by another pipeline."""
    patch.setattr(certify, "judge_edges", judge)


def naive_edges(study, *, holm=True, items=True):
    """A pipeline with the faults of old: items independent, no bound on what was not seen, no guard at a target."""
    alpha, edges = study.analysis.alpha, []
    for variant in study.variants:
        if variant.parent is None:
            continue
        arrays, _, problem = paired_values(study, [variant.name, variant.parent])
        edge = SimpleNamespace(child=variant.name, parent=variant.parent, pair=(variant.name, variant.parent))
        edge.detail, edge.low, edge.high, edge.mde, edge.estimate = "invalid", np.nan, np.nan, np.nan, None
        edges.append(edge)
        if problem:
            continue
        target = study.direction["target"] if isinstance(study.direction, dict) else None
        gains, item_variance = [], 0.0
        for array in arrays:
            means = array.mean(axis=2)
            slope = np.ones((2, 1)) if target is None else -np.sign(means.mean(axis=1, keepdims=True) - target)
            gains.append(means if target is None else -np.abs(means - target))
            difference = (slope[0] * array[0] - slope[1] * array[1]).mean(axis=0)
            item_variance += difference.var(ddof=1) / len(difference) / len(arrays) ** 2 if items else 0.0
        difference = np.mean(gains, axis=0)
        difference = difference[0] - difference[1]
        count = len(difference)
        edge.effect = float(difference.mean())
        if count < 2:
            edge.detail = "undecided"
            continue
        seed_variance = float(difference.var(ddof=1)) / count
        total = np.sqrt(seed_variance + item_variance)
        critical = stats.norm.isf(alpha / 2)
        if total > 0:
            student = stats.t.isf(alpha / 2, count - 1)
            critical = (seed_variance * student + item_variance * critical) / total**2
        edge.low, edge.high = edge.effect - critical * total, edge.effect + critical * total
        edge.p = (
            float(2 * stats.norm.sf(abs(edge.effect) / total * stats.norm.isf(alpha / 2) / critical)) if total else 1.0
        )
        edge.mde = float((critical + stats.norm.ppf(0.8)) * total)
    for edge in edges:
        if not np.isnan(edge.low):
            found = edge.p <= (alpha / len(edges) if holm else alpha)
            inside = max(abs(edge.low), abs(edge.high)) <= study.analysis.margin
            edge.detail = (
                "equivalent" if inside else ("better" if edge.effect > 0 else "worse") if found else "undecided"
            )
    return edges
