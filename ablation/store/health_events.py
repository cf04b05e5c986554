"""Apply the health rules to the metrics in the database, so that a changed rule needs no new training."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter

import duckdb
import pyarrow as pa

from ablation.contract.health import Event, Rule, evaluate, parse_rules
from ablation.plan.plan_file import PlanFile

Row = tuple[str, str, str, str, int, int, float, str, str]
"""A row of the table `health`: key, rule, metric, severity, first_step, last_step, value, diagnosis, remedy."""

# For every stage: `trainers.running.micro_batch` logs it when a device runs out of memory.
OUT_OF_MEMORY = Rule(
    metric="memory/halvings",
    id="out-of-memory",
    max=0,
    severity="note",
    diagnosis="a device ran out of memory, so the micro-batch was halved at least once; the effective batch size "
    "has not changed",
    remedy="set the micro-batch to the logged value of `memory/micro_batch`, so that no pass runs out of memory",
)
OF_EVERY_STAGE = (OUT_OF_MEMORY,)

# Series by series, in the order of logging: a resumed stage may log a step twice.
_SERIES = """
    SELECT m.key, m.name, m.step, coalesce(m.value, 'NaN'::DOUBLE) AS value
    FROM metrics m SEMI JOIN wanted w ON m.key = w.key AND m.name = w.name
    WHERE m.step IS NOT NULL ORDER BY m.key, m.name, m.step, m.rowid"""


def find_events(connection: duckdb.DuckDBPyConnection, plan: PlanFile, imported: Mapping[str, list[Rule]]) -> list[Row]:
    """Return the health events of all stages, in the plan's order of stages, then of imported runs.

    `connection` is a database with the collected `metrics`. `imported` is {stage key: rules} of imported runs. Rules
    that abort a stage are also evaluated.
    """
    rules = {**_rules_by_stage(plan), **imported}
    names = [name for (name,) in connection.execute("SELECT DISTINCT name FROM metrics ORDER BY name").fetchall()]
    series = _read_series(connection, {key: _named(applied, names) for key, applied in rules.items()})
    return [_row(key, event) for key, stage_series in series for event in evaluate(rules[key], stage_series)]


def _rules_by_stage(plan: PlanFile) -> dict[str, list[Rule]]:
    rules: dict[str, list[Rule]] = {}
    for study in plan.studies:
        study_rules: defaultdict[str, list[Rule]] = defaultdict(list)
        for declared in study.health:
            study_rules[declared.stage] += parse_rules([declared.model_dump()])
        for run in study.runs:
            rules |= {key: [*study_rules[stage], *OF_EVERY_STAGE] for stage, key in run.stages.items()}
    return {stage.key: rules[stage.key] for stage in plan.stages if stage.key in rules}


def _named(rules: Sequence[Rule], names: Sequence[str]) -> list[str]:
    return [name for name in names if any(rule.covers(name) or rule.reference == name for rule in rules)]


def _read_series(
    connection: duckdb.DuckDBPyConnection, wanted: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, dict[str, list[tuple[int, float]]]]]:
    """Yield each stage's key and its series by metric, in the order of `wanted`."""
    pairs = [(key, name) for key, names in wanted.items() for name in names]
    if not pairs:
        return
    keys, names = zip(*pairs, strict=True)
    connection.register("wanted", pa.table({"key": keys, "name": names}))
    series: dict[str, dict[str, list[tuple[int, float]]]] = defaultdict(dict)
    try:
        done = connection.execute(_SERIES)
        rows = chain.from_iterable(iter(lambda: done.fetchmany(100_000), []))
        for (key, name), points in groupby(rows, itemgetter(0, 1)):
            series[key][name] = [(step, value) for _, _, step, value in points]
    finally:
        connection.unregister("wanted")
    yield from ((key, series[key]) for key in wanted if key in series)


def _row(key: str, event: Event) -> Row:
    rule = event.rule
    advice = (rule.diagnosis, rule.remedy)
    return key, rule.id, event.metric, rule.severity, event.first_step, event.last_step, event.value, *advice
