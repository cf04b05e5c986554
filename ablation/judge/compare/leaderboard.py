"""Orders several systems by their means, with simultaneous intervals and groups of systems that do not differ."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from ablation.contract.errors import ConfigError
from ablation.judge.comparisons import judge_comparisons
from ablation.judge.measurements import Measurements, comparable
from ablation.judge.significance import half_width
from ablation.judge.statistics import contrast_groups


@dataclass(frozen=True)
class Standing:
    """One system: its mean, a simultaneous interval, and the letters of its groups.

    Two systems that share a letter do not differ significantly, corrected for all pairs.
    """

    system: str
    mean: float
    low: float  # NaN if the noise is not known
    high: float
    groups: str


def standings(study: Measurements, pairs: Sequence[tuple[str, str]]) -> tuple[Standing, ...]:
    """Return the systems, the best first; `pairs` holds (child, parent) for every two systems.

    Intervals are at 1 - alpha / n for n systems (Bonferroni). Pairs are judged by the rules of the study, with a
    correction for all pairs.
    """
    judged = judge_comparisons(replace(study, analysis=study.analysis.model_copy(update={"comparisons": list(pairs)})))
    apart = {frozenset((each.child, each.parent)) for each in judged if each.verdict in ("better", "worse")}
    names = list(dict.fromkeys(name for child, parent in pairs for name in (parent, child)))
    smaller = study.analysis.direction == "min"
    alone = comparable(study, names).groups
    if not alone:  # no seed is common to all systems
        own = {name: comparable(study, [name]).groups for name in names}
        if empty := [name for name, groups in own.items() if not groups]:
            raise ConfigError("compare", "--without", empty[0], "has no run left", "leave out fewer runs")
        alone = [group for groups in own.values() for group in groups]
    bounded = all(group.bounded for group in alone)
    bounds = (0.0, max(group.most for group in alone)) if bounded else (-np.inf, np.inf)
    rows = []
    for name, group in zip(names, alone, strict=True):
        mean = float(np.mean([subset.mean() for subset in group.values]))
        contrast = contrast_groups([group], (1.0,), design=study.design)
        known = contrast.noise.seeds_known and not contrast.items_only
        half = half_width(contrast.noise, study.analysis.alpha / len(names)) if known else float("nan")
        low, high = np.clip([mean - half, mean + half], *bounds).tolist()
        rows.append((name, mean, low, high))
    rows.sort(key=lambda row: row[1], reverse=not smaller)
    letters = letters_of([name for name, *_ in rows], apart)
    return tuple(Standing(name, mean, low, high, letters[name]) for name, mean, low, high in rows)


def letters_of(names: Sequence[str], apart: set[frozenset[str]]) -> dict[str, str]:
    """Return {name: letters}, such that two names share a letter if and only if they are not `apart`.

    Insert and absorb (Piepho, 2004, Journal of Computational and Graphical Statistics 13, 456-466).
    """
    columns = [frozenset(names)]
    for one, other in combinations(names, 2):
        if frozenset((one, other)) in apart:
            cut = [
                part
                for column in columns
                for part in ((column - {one}, column - {other}) if {one, other} <= column else (column,))
            ]
            columns = [
                column
                for at, column in enumerate(cut)
                if not any(column < each or (column == each and at > n) for n, each in enumerate(cut))
            ]
    columns.sort(key=lambda column: [names.index(name) for name in names if name in column])
    letters = [chr(ord("a") + at) if at < 26 else f"({at + 1})" for at in range(len(columns))]
    return {name: "".join(a for a, column in zip(letters, columns, strict=True) if name in column) for name in names}
