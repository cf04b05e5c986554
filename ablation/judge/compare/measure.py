"""From arms to what the judge reads: the same Measurements as those of a grid, judged by the same rules.

plan_analysis(arms, options) -> (Analysis, notes)      direction and margin that the files or the caller give
measurements(name, arms, analysis, lineage) -> Measurements
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from ablation.config.study import Change
from ablation.config.study_schema import Analysis, Target
from ablation.contract.errors import ConfigError
from ablation.judge.compare.arms import Arm
from ablation.judge.measurements import Measurements
from ablation.plan.plan_file import PlannedVariant
from ablation.readers.sheet import Sheet

PROTOCOL = "evaluated"
FACTOR = "what was evaluated"
Direction = Literal["max", "min"] | Target


@dataclass(frozen=True)
class Lineage:
    """One variant's place: its parent and why it is."""

    parent: str | None
    why: str = ""


def plan_analysis(
    arms: Sequence[Arm], direction: Direction | None, margin: float | None, **rules: Any
) -> tuple[Analysis, list[str]]:
    """Return how the arms are judged; what neither the files nor the caller say is said in the notes.

    Raises:
        ConfigError: metrics go in different directions, or the scale of the values does not tell a margin.
    """
    sheets = [sheet for arm in arms for sheet in arm.sheets]
    notes = []
    if direction is None:
        said = {sheet.facts.larger_is_better for sheet in sheets} - {None}
        if len(said) > 1:
            odd = next(sheet for sheet in sheets if sheet.facts.larger_is_better is False)
            problem = f"smaller is better for {odd.subset}, larger for others: there is no mean of both"
            raise ConfigError(odd.source, odd.metric, None, problem, "compare them one at a time")
        direction = "min" if said == {False} else "max"
        if not said:
            notes.append("larger is taken to be better: the files do not say; --direction does")
    if margin is None:
        low, high = min(float(s.values.min()) for s in sheets), max(float(s.values.max()) for s in sheets)
        margin = next((scale / 100 for scale in (1.0, 100.0) if low >= 0 and high <= scale), None)
        if margin is None:
            problem = f"values lie between {low:g} and {high:g}, which does not tell what difference matters"
            raise ConfigError("compare", "--margin", None, problem, "give the smallest difference that matters to you")
        notes.append(f"margin {margin:g}, one hundredth of the scale: give --margin before you look")
    metrics = sorted({sheet.metric for sheet in sheets})
    if len(metrics) > 1:
        named = {sheet.metric: sheet.subset for sheet in sheets}
        problem = "; ".join(f"{subset} has {metric}" for metric, subset in named.items())
        raise ConfigError(
            "compare", "--metric", None, problem, "name one that all have, or some of the tasks with --tasks"
        )
    analysis = Analysis(
        value=metrics[0],
        protocol=PROTOCOL,
        subsets=list(dict.fromkeys(sheet.subset for sheet in sheets)),
        direction=direction,
        margin=margin,
        **rules,
    )
    return analysis, notes


def measurements(name: str, arms: Sequence[Arm], analysis: Analysis, lineage: Mapping[str, Lineage]) -> Measurements:
    """Return what the judge reads, of arms that have been checked."""
    named = {arm.name: arm for arm in arms}
    clusters = _clusters([sheet for arm in arms for sheet in arm.sheets])
    runs = {(arm.name, seed): run for arm in arms for seed, run in arm.runs.items()}
    return Measurements(
        name=name,
        analysis=analysis,
        variants=[planned(named, variant, place) for variant, place in lineage.items()],
        states=dict.fromkeys(runs, ("ok", "")),
        aborted={},
        values={
            key: {subset: pd.Series(sheet.values, index=sheet.items) for subset, sheet in run.items()}
            for key, run in runs.items()
        },
        duplicates=frozenset(),  # the readers refuse them
        stages=pd.DataFrame({"variant": [], "seed": [], "key": [], "hours": []}),
        clusters=clusters,
    )


def planned(arms: Mapping[str, Arm], name: str, place: Lineage) -> PlannedVariant:
    """The variant as the judge and the page know one; its changes are those of the evaluations' own settings."""
    changes = _changes(arms[place.parent], arms[name]) if place.parent is not None else []
    return PlannedVariant(
        name=name,
        parent=place.parent,
        why=place.why,
        file=str(next(iter(arms[name].sheets)).source),
        resolved=settings_of(arms[name]),
        factors=(FACTOR,) if place.parent is not None else (),
        changes=tuple(changes),
    )


def _changes(parent: Arm, child: Arm) -> list[Change]:
    """Settings that differ in every pair of runs, as the first pair has them: a model's path may name the seed."""
    pairs = [(parent.runs[seed], child.runs[seed]) for seed in parent.seeds if seed in child.runs]
    sides = [[dict(next(iter(run.values())).facts.settings) for run in pair] for pair in pairs]
    return [
        Change.model_validate({"key": key, "from": sides[0][0].get(key), "to": sides[0][1].get(key), "factor": FACTOR})
        for key in sorted({key for pair in sides for settings in pair for key in settings})
        if all(before.get(key) != after.get(key) for before, after in sides)
    ]


def settings_of(arm: Arm) -> dict[str, Any]:
    """What all runs of an arm have in common of their settings."""
    found = [dict(sheet.facts.settings) for sheet in arm.sheets]
    return {key: value for key, value in found[0].items() if all(other.get(key) == value for other in found)}


def _clusters(sheets: Sequence[Sheet]) -> dict[str, dict[str, str]]:
    """{subset: {item: cluster}}; an item that two files put into different ones is refused."""
    clusters: dict[str, dict[str, str]] = {}
    seen: set[int] = set()
    for sheet in sheets:
        if not sheet.clusters or id(sheet.clusters) in seen:
            continue
        seen.add(id(sheet.clusters))
        known = clusters.setdefault(sheet.subset, {})
        for item, cluster in sheet.clusters.items():
            if (other := known.setdefault(item, cluster)) != cluster:
                problem = f"item {item} of {sheet.subset} is in {other} in another file"
                remedy = "a cluster belongs to the item: name the same one in every run"
                raise ConfigError(sheet.source, "cluster", cluster, problem, remedy)
    return clusters
