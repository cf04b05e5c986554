"""Judged studies from the database, each read and judged once for all of its uses.

judge_study(store, name)       -> JudgedStudy: measurements, edges, interactions
judge_studies(store)           -> JudgedStudy of every study, or of one
edge_table(judged)             -> DataFrame, one row per edge (parent -> child), columns EDGE_COLUMNS and guardrails
guardrail_table(judged)        -> DataFrame, one row per edge and guardrail
interaction_table(judged)      -> DataFrame, one row per declared combination
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ablation.judge import guardrails, interactions
from ablation.judge.edges import Edge, judge_edges
from ablation.judge.interactions import judge_interactions
from ablation.judge.measurements import Measurements, read_measurements
from ablation.judge.paths import with_paths
from ablation.store.database import Store

EDGE_COLUMNS = [
    "study",
    "parent",
    "child",
    "verdict",
    "detail",
    "in_seeds",
    "effect",
    "low",
    "high",
    "joint_low",
    "joint_high",
    "p",
    "p_adjusted",
    "p_sign_flip",
    "mde",
    "seeds",
    "items",
    "seeds_needed",
    "variance",
    "prior_df",
    "cost_hours",
    "confounded",
    "factors",
    "root",
    "root_effect",
    "root_low",
    "root_high",
    "reason",
]


@dataclass(frozen=True)
class JudgedStudy:
    """A study's measurements, with the verdicts on its edges and combinations."""

    measurements: Measurements
    edges: list[Edge]
    interactions: list[dict[str, Any]]
    guarded: Mapping[guardrails.Pair, Sequence[guardrails.Guarded]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The study's name."""
        return self.measurements.name

    @property
    def plan_changed(self) -> bool:
        """Whether the analysis plan was changed after there were results."""
        return len(self.measurements.history) > 1


def judge_study(store: Store, name: str) -> JudgedStudy:
    """Read one study and judge it."""
    measurements = read_measurements(store, name)
    edges = with_paths(measurements, judge_edges(measurements))
    guarded = guardrails.guard(guardrails.read_guardrails(store, name))
    return JudgedStudy(measurements, edges, judge_interactions(measurements), guarded)


def judge_studies(store: Store, study: str | None = None) -> list[JudgedStudy]:
    """Judge every study, or one."""
    return [judge_study(store, name) for name in store.studies() if study in (None, name)]


def edge_table(judged: Iterable[JudgedStudy]) -> pd.DataFrame:
    """Return one row per edge; `guardrails` is their addition to its verdict."""
    found = [(study, edge) for study in judged for edge in study.edges]
    said = [guardrails.in_words(study.guarded.get(edge.pair, ())) for study, edge in found]
    return edge_rows(edge for _, edge in found).assign(guardrails=said)


def guardrail_table(judged: Iterable[JudgedStudy]) -> pd.DataFrame:
    """Return one row per edge and guardrail."""
    rows = [rail.row for study in judged for rails in study.guarded.values() for rail in rails]
    return pd.DataFrame(rows, columns=guardrails.COLUMNS)


def edge_rows(edges: Iterable[Edge]) -> pd.DataFrame:
    """Return one row per edge, columns EDGE_COLUMNS."""
    rows = [{name: getattr(edge, name) for name in EDGE_COLUMNS} for edge in edges]
    frame = pd.DataFrame(rows, columns=EDGE_COLUMNS)
    return frame.astype({"seeds_needed": "Int64", "seeds": "int64", "items": "int64", "confounded": bool})


def interaction_table(judged: Iterable[JudgedStudy]) -> pd.DataFrame:
    """Return one row per declared combination."""
    return pd.DataFrame([row for study in judged for row in study.interactions], columns=interactions.COLUMNS)
