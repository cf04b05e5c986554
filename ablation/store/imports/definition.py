"""The definition of an imported study: its analysis plan, table and curves.

What study.yaml leaves out comes from the source, or else from the names that the runs logged.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ablation.config.import_file import ImportFile, analysis_of, with_known_direction
from ablation.config.names import suggest
from ablation.config.study_schema import Analysis, CurveDefinition, TableDefinition
from ablation.contract.display import listed
from ablation.contract.errors import ConfigError
from ablation.contract.rows import LOGGED, OF_THE_MACHINE
from ablation.plan.keys import key_of
from ablation.plan.plan_file import StudyRecord
from ablation.store.imports import stored
from ablation.store.imports.health import rules_for
from ablation.store.imports.stored import Record

_MOST_CURVES = 6
_TELLING = 10  # values of curves: two runs that share so many are one
_SCHEDULE = re.compile(r"(^|/)(epoch|learning_rate|lr|step|global_step|num_tokens)", re.IGNORECASE)  # equal in all runs
_FIRST = ("reward", "loss", "kl", "entropy", "accuracy", "length", "score")  # of the names to show or draw


@dataclass
class KnownRun:
    """A run with where it is stored, and the names that it logged."""

    record: Record
    key: str
    metrics: set[str]
    items: set[tuple[str, str, str]]  # protocol, name, subset
    curves: set[str]
    logged: str  # digest of what it logged, but for what depends on the machine; empty if that is little


def known_run(record: Record, key: str, metrics: pa.Table, items: pa.Table | None) -> KnownRun:
    """Return a run with the names in its rows; constant metrics have no curve."""
    rows = metrics.group_by("name").aggregate([("value", "count_distinct")]).to_pylist()
    curves = {row["name"] for row in rows if row["value_count_distinct"] > 1}
    of_training = metrics.filter(pc.invert(pc.match_substring_regex(metrics["name"], OF_THE_MACHINE)))
    telling = {name for name in curves if not _SCHEDULE.search(name)}
    count = sum(name in telling for name in of_training["name"].to_pylist())
    logged = hashlib.sha256(repr(of_training.to_pydict()).encode()).hexdigest() if count >= _TELLING else ""
    kinds = [] if items is None else items.group_by(["protocol", "name", "subset"]).aggregate([]).to_pylist()
    return KnownRun(
        record,
        key,
        {row["name"] for row in rows},
        {(row["protocol"], row["name"], row["subset"]) for row in kinds},
        curves,
        logged,
    )


def plan_analysis(values: Mapping[str, Any], runs: Sequence[KnownRun], where: str) -> Analysis:
    """Return the analysis plan.

    Raises ConfigError if metric, direction or margin is not stated, or no run has the metric.
    """
    values = with_known_direction(values)
    metrics = sorted(set().union(*(run.metrics for run in runs)))
    items = sorted(set().union(*(run.items for run in runs)))
    wanted = {
        "metric": "--metric NAME or --items PROTOCOL/SUBSET/NAME",
        "direction": "--direction max, min or target:0.5",
        "margin": "--margin M, the smallest difference that matters",
    }
    stated = {"metric", *values} if "value" in values else set(values)  # --items names the metric, too
    lacking = [name for name in wanted if name not in stated]
    if lacking:
        kinds = [f"{protocol}/{subset}/{name}" for protocol, name, subset in items]
        logged = listed(sorted(metrics, key=_rank), 12) or "nothing"
        shown = f"logged: {logged}" + (f"; items: {listed(kinds, 12)}" if kinds else "")
        remedy = f"pass {'; '.join(wanted[name] for name in lacking)}, or write them in a study.yaml ({shown})"
        raise ConfigError(where, "analysis", None, f"not stated: {', '.join(lacking)}", remedy)
    analysis = analysis_of(values, where)
    if analysis.protocol == LOGGED:
        for name in analysis.subsets:
            if name not in metrics:
                raise ConfigError(where, "analysis.metric", name, "no run has logged it", suggest(name, metrics))
        return analysis
    subsets = {subset for protocol, name, subset in items if (protocol, name) == (analysis.protocol, analysis.value)}
    for subset in analysis.subsets:
        if subset not in subsets:
            available = [f"{protocol}/{subset}/{name}" for protocol, name, subset in items]
            asked_for = f"{analysis.protocol}/{subset}/{analysis.value}"
            raise ConfigError(where, "analysis", asked_for, "no run has these items", suggest(asked_for, available))
    return analysis


def _rank(name: str) -> int:
    return next((place for place, word in enumerate(_FIRST) if word in name.lower()), len(_FIRST))


def describe_study(name: str, written: ImportFile, analysis: Analysis, runs: Sequence[KnownRun]) -> StudyRecord:
    """Return the definition: what study.yaml says, else what the runs logged."""
    formats = sorted({run.record.format for run in runs})
    items = [f"{analysis.protocol}/{subset}/{analysis.value}" for subset in analysis.subsets]
    primary = list(analysis.subsets) if analysis.protocol == LOGGED else items
    columns = [{"metric": metric, "label": metric.removesuffix("/value")} for metric in primary]
    table = written.table or TableDefinition.model_validate({"columns": columns})
    curves = _curves(primary, runs) if written.curves is None else written.curves
    return StudyRecord(
        title=written.title or name,
        question=written.question or "What did each change do?",
        source=written.source or f"Imported runs ({', '.join(formats)}).",
        table=table,
        curves=curves,
        figures=[],
        analysis=analysis,
        health=rules_for(set().union(*(run.metrics for run in runs)), formats),
        trained_model=None,
        name=name,
        analysis_digest=key_of(analysis.model_dump(mode="json")),
        published=None,
        last_stage=stored.OUTCOME,
    )


def _curves(primary: Sequence[str], runs: Sequence[KnownRun]) -> list[CurveDefinition]:
    """Return the primary metric and the rewards, losses, divergences, entropies and lengths that all runs logged."""
    logged = [run.curves for run in runs if run.curves]
    common = sorted(set.intersection(*logged)) if logged else []
    chosen = [name for name in primary if name in common]
    chosen += sorted((name for name in common if _rank(name) < len(_FIRST)), key=_rank)
    return [CurveDefinition(metric=name, label=name) for name in list(dict.fromkeys(chosen))[:_MOST_CURVES]]
