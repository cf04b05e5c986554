"""Reads studies from the database and judges their comparisons, combinations and guardrails."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from ablation.judge.comparisons import Comparison, judge_comparisons
from ablation.judge.gate import (
    RAIL_COLUMNS,
    Guarded,
    Pair,
    compared_with,
    guard,
    rails_in_words,
    read_guardrails,
)
from ablation.judge.measurements import Measurements, comparable, permitting, warnings
from ablation.judge.statistics import contrast_groups
from ablation.judge.stored import read_measurements
from ablation.store.database import Run, Store

COMPARISON_COLUMNS = ["study", "parent", "child", "verdict", "detail", "in_seeds", "effect", "low", "high", "joint_low"]
COMPARISON_COLUMNS += ["joint_high", "p", "p_adjusted", "p_sign_flip", "mde", "seeds", "items", "seeds_needed"]
COMPARISON_COLUMNS += ["variance", "prior_df", "cost_hours", "confounded", "factors", "root", "root_effect"]
COMPARISON_COLUMNS += ["root_low", "root_high", "reason"]
INTERACTION_COLUMNS = ["study", "combination", "parts", "baseline", "effect", "low", "high", "p", "seeds", "items"]
INTERACTION_COLUMNS += ["reason"]


@dataclass(frozen=True)
class JudgedStudy:
    """A study's measurements, with the verdicts on its comparisons, combinations and guardrails."""

    measurements: Measurements
    comparisons: list[Comparison]
    interactions: list[dict[str, Any]]
    guarded: Mapping[Pair, Sequence[Guarded]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the study."""
        return self.measurements.name

    @property
    def plan_changed(self) -> bool:
        """Whether the analysis plan was changed after there were results."""
        return len(self.measurements.history) > 1


def judge_study(
    store: Store,
    name: str,
    without: frozenset[Run] = frozenset(),
    *,
    allow: frozenset[str] = frozenset(),
    since: str | None = None,
) -> JudgedStudy:
    """Read one study from the database and judge it.

    Raises ConfigError if the study, or a named run, does not exist.

    without: runs that may be missing or have failed.
    allow: what a gate does not reject: imported variants with the same values (`identical`), or values on different
        scales (`scale`).
    since: compare each descendant of this variant with it, instead of the comparisons that the plan declares.
    """
    study = replace(permitting(read_measurements(store, name), without), allowed=allow)
    rails = [permitting(rail, without) for rail in read_guardrails(store, name)]
    if since is not None:
        study, *rails = (compared_with(since, measurements) for measurements in (study, *rails))
    return JudgedStudy(study, judge_comparisons(study), judge_interactions(study), guard(rails))


def judge_studies(store: Store, study: str | None = None) -> list[JudgedStudy]:
    """Judge every study, or only the named one."""
    return [judge_study(store, name) for name in store.studies() if study in (None, name)]


def judge_interactions(study: Measurements) -> list[dict[str, Any]]:
    """Return one row of INTERACTION_COLUMNS per declared combination that is planned.

    The interaction is the combination's effect minus the sum of its parts' effects, all against their common parent.
    """
    combinations = study.analysis.combinations.items()
    return [_interaction(study, name, parts) for name, parts in combinations if name in study.parents]


def _interaction(study: Measurements, combination: str, parts: Sequence[str]) -> dict[str, Any]:
    parents = study.parents
    row: dict[str, Any] = {"study": study.name, "combination": combination, "parts": " + ".join(parts)}
    row |= {"baseline": None, "seeds": 0, "items": 0} | dict.fromkeys(("effect", "low", "high", "p"), float("nan"))
    if unknown := [name for name in parts if name not in parents]:
        return row | {"reason": f"variant {unknown[0]!r} does not exist"}
    baselines = {parents[part] for part in parts}
    if len(baselines) != 1 or (baseline := baselines.pop()) is None:
        return row | {"reason": "the parts of a combination need a common parent"}
    variants = [combination, *parts, baseline]
    groups, _, problem = comparable(study, variants)
    row |= {
        "baseline": baseline,
        "reason": "; ".join(filter(None, (problem.text, *map(str, warnings(study, variants))))),
    }
    if not groups:
        return row
    numbers = contrast_groups(
        groups, [1.0, *[-1.0] * len(parts), len(parts) - 1.0], 1 - study.analysis.alpha, study.design
    )
    row |= {name: getattr(numbers, name) for name in ("effect", "low", "high", "p", "seeds", "items")}
    return row | {"p": float("nan")} if problem else row


def comparison_table(judged: Iterable[JudgedStudy]) -> pd.DataFrame:
    """Return a table with one row per comparison: COMPARISON_COLUMNS, and the clause `guardrails`."""
    pairs = [
        (comparison, study.guarded.get(comparison.pair, ())) for study in judged for comparison in study.comparisons
    ]
    guardrails = [rails_in_words(guarded, comparison.verdict) for comparison, guarded in pairs]
    return comparison_rows(comparison for comparison, _ in pairs).assign(guardrails=guardrails)


def guardrail_table(judged: Iterable[JudgedStudy]) -> pd.DataFrame:
    """Return a table with one row per comparison and guardrail."""
    rows = [rail.row for study in judged for rails in study.guarded.values() for rail in rails]
    return pd.DataFrame(rows, columns=RAIL_COLUMNS)


def comparison_rows(comparisons: Iterable[Comparison]) -> pd.DataFrame:
    """Return one row, with the columns COMPARISON_COLUMNS, per comparison."""
    rows = [{name: getattr(comparison, name) for name in COMPARISON_COLUMNS} for comparison in comparisons]
    frame = pd.DataFrame(rows, columns=COMPARISON_COLUMNS)
    return frame.astype({"seeds_needed": "Int64", "seeds": "int64", "items": "int64", "confounded": bool})


def interaction_table(judged: Iterable[JudgedStudy]) -> pd.DataFrame:
    """Return a table with one row per declared combination."""
    return pd.DataFrame([row for study in judged for row in study.interactions], columns=INTERACTION_COLUMNS)
