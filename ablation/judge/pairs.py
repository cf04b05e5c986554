"""Any two variants of a study, edge or not: the same numbers as an edge's, not corrected for other comparisons.

    judge_pair(study, child, parent) -> Pair         with the smallest detectable effect and the seeds needed
    judge_all_pairs(study) -> [Pair]                 each pair once, the later variant against the earlier

A pair that a reader picks after seeing results is one of many that could have been picked, so it is not one of the
study's verdicts, which follow the analysis plan and are corrected for all of its edges (`ablation.judge.edges`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from ablation.config import dotted
from ablation.config.changes import differences
from ablation.judge.edges import Correction, Edge, conclude, measure
from ablation.judge.measurements import Measurements


@dataclass(frozen=True)
class Pair:
    """One comparison: `edge.detail` is its verdict if it were the only one; `differing` the keys, by factor."""

    edge: Edge
    differing: dict[str, list[tuple[str, Any, Any]]]  # factor: (key, the parent's value, the child's)


def judge_pair(study: Measurements, child: str, parent: str) -> Pair:
    """Compare two variants of a study."""
    return _judge(study, child, parent, planning=True)


def judge_all_pairs(study: Measurements) -> list[Pair]:
    """Compare every variant with every one before it, in the order of the study's variants."""
    names = [variant.name for variant in study.variants]
    return [_judge(study, b, a, planning=False) for a, b in combinations(names, 2)]


def _judge(study: Measurements, child: str, parent: str, *, planning: bool) -> Pair:
    differing: dict[str, list[tuple[str, Any, Any]]] = {}
    for factor, key, old, new in _differing(study, child, parent):
        differing.setdefault(factor, []).append((key, old, new))
    measured = replace(measure(study, child, parent), factors=tuple(differing))
    alone = Correction("none", study.analysis.alpha, study.analysis.alpha, {measured.pair: measured.p})
    return Pair(conclude(study, measured, alone, planning=planning), differing)


def _differing(study: Measurements, child: str, parent: str) -> Iterator[tuple[str, str, Any, Any]]:
    """Factor, key and both values of what differs between two configurations, not along the lineage between them."""
    configs = {variant.name: variant.resolved for variant in study.variants}
    factors = {change.key: change.factor for variant in study.variants for change in variant.changes}
    for key, old, new in differences(configs[parent], configs[child]):
        yield factor_among(key, factors), key, old, new


def factor_among(key: str, factors: Mapping[str, str]) -> str:
    """The factor that a key counts as, {changed key: factor} of a study's variants; the key where none covers it."""
    above = [known for known in factors if dotted.covers(known, key)]
    return factors[max(above, key=len)] if above else key
