"""Collect plan.json, the stage folders and imported runs into one DuckDB file, completely or not at all."""

import json
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ablation.config.published_schema import PublishedFile
from ablation.contract.atomic import date, from_the_future, replacing
from ablation.contract.process import alone
from ablation.contract.stage_folder import DATABASE
from ablation.contract.status import STATUS, StageState, altered, read_state
from ablation.plan.collected import (
    COLLECTED,
    PLAN_FILE,
    Sources,
    note_collected,
    noted_sources,
    source_files,
    sources_now,
)
from ablation.plan.plan_file import PlanFile, PlannedVariant, StudyRecord, digest_of_plan, read_plan
from ablation.store.analysis_history import StoredStudy, record_analysis
from ablation.store.database import SCHEMA, SCHEMA_VERSION, Store, is_whole
from ablation.store.health_events import find_events
from ablation.store.imported import IMPORTED, Imports, health_rules, load_imports, note, run_stage_rows, stage_rows
from ablation.store.imports.stored import studies as imported_studies
from ablation.store.shards import TABLES, insert, load_stages, load_unfinished

_STATE = ("state", "reason", "started", "ended", "wall_s", "attempt", "device", "devices")
_DISK_FAULTS = (duckdb.IOException, duckdb.FatalException, duckdb.TransactionException, duckdb.OutOfMemoryException)


@dataclass
class Collected:
    """The result of collecting: the database, the number of rows by table, and the number of stages by state."""

    database: Path
    rows: dict[str, int] = field(default_factory=dict)
    states: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)  # imported studies that could not be read


def collect(results: Path) -> Collected:
    """Bring `results/tracker.duckdb` up to date with `plan.json`, the stage folders and `results/imported`.

    Only stages whose files have changed are read again. The database is written under another name and then renamed,
    so readers see either the old or the new one. A stage with an unreadable file gets the state `corrupt`, with the
    reason, and contributes no rows. If nothing has changed, nothing is written.

    Raises:
        ConfigError: there is neither a plan nor an imported study, or the plan or the history cannot be read.
        TrackerError: the disk is full, or the folder cannot be written; the old database stays.
    """
    # The collect that read last must also write last. Without results there is no plan, which is an error.
    with alone(results / ".collect.lock") if results.exists() else nullcontext():
        for left in results.glob(f".*.tmp.{DATABASE}*"):  # by a collect that was killed
            left.unlink(missing_ok=True)
        return _collect(results, results / DATABASE)


def collect_apart(results: Path, database: Path) -> Collected:
    """Bring another `database` up to date with the results of a running grid, without changing the results folder.

    The database also gets the metrics that running stages have written so far. Raises the same errors as `collect`.
    """
    if not database.exists() and (results / DATABASE).is_file():  # most of its rows are the same
        with replacing(database, sync=False) as aside:
            shutil.copyfile(results / DATABASE, aside)
        with suppress(FileNotFoundError):
            shutil.copyfile(results / COLLECTED, database.with_name(COLLECTED))
    return _collect(results, database, apart=True)


def _previous(database: Path) -> tuple[Sources | None, dict[str, StageState]]:
    """Return the sources and stage states of an existing database; (None, {}) if its rows cannot be reused."""
    noted = noted_sources(database.parent)
    if noted is None or not database.is_file() or not is_whole(database):
        return None, {}
    with Store(database) as store:
        if store.meta().get("sources") != noted.digest:
            return None, {}
        rows = store.rows(f"SELECT key, {', '.join(_STATE)} FROM stages")[1]
    return noted, {key: StageState(**dict(zip(_STATE, values, strict=True))) for key, *values in rows}


def _collect(results: Path, database: Path, *, apart: bool = False) -> Collected:
    # An import alone has no plan, and needs none.
    if (results / PLAN_FILE).exists() or not imported_studies(results):
        plan = read_plan(results / PLAN_FILE)
    else:
        plan = PlanFile(scale=IMPORTED, results=results, reports=results, studies=(), stages=())
    places = plan.folders(results)
    if not apart:
        with suppress(OSError):  # another user's files: only Snakemake cares, and reports it
            date(from_the_future(folder / STATUS for folder in places.values()))

    # Files are listed before any is read: one that changes meanwhile is read again by the next collect.
    found = sources_now(results)
    noted, previous = _previous(database)
    same = {key for key in places if noted and found.stages.get(key) and found.stages[key] == noted.stages.get(key)}
    states = {key: previous[key] if key in same else read_state(folder, key) for key, folder in places.items()}

    # Analysis plans belong to the comparison, too: one that was edited after results is noted though no stage changed.
    studies = _with_history(results, plan, states, record=not apart)
    imports = load_imports(results, [study.name for study in studies])
    runs_now = apart and any(state.state == "running" for state in states.values())  # its metrics are read each time
    if noted == found and not runs_now and all(states[key] == previous[key] for key in states):
        return _summary(database, imports.problems)

    # A stage whose files are not those of its status has no rows, and says why.
    for key, state in states.items():
        if key not in same and (problem := altered(places[key], state)):
            states[key] = replace(state, state="corrupt", reason=problem)
    all_states = states | imports.states

    # The new database begins as a copy of the old one, without what is read again. Readers see one or the other.
    with replacing(database) as aside:
        try:
            if noted:
                shutil.copyfile(database, aside)
            with duckdb.connect(str(aside)) as connection:
                _keep(connection, same) if noted else connection.execute(SCHEMA)
                _write_plan(connection, plan, studies)
                new = {key: place for key, place in (places | imports.places).items() if key not in same}
                load_stages(connection, new, all_states)
                if apart:
                    load_unfinished(connection, places, states)
                insert(connection, "health", find_events(connection, plan, health_rules(imports)))
                _write_stages(connection, plan, all_states)
                _write_imports(connection, results, imports, all_states, record=not apart)
                made_from = Sources(source_files(results), found.stages)  # with the history as it is now
                insert(connection, "meta", [("sources", made_from.digest)])
                connection.execute("CHECKPOINT")
        except _DISK_FAULTS as error:  # a full disk, then, in a commit or at the checkpoint
            raise OSError(" ".join(str(error).split())) from error
        finally:
            with suppress(OSError):
                aside.with_name(f"{aside.name}.wal").unlink(missing_ok=True)

    # The list of sources comes last: a collect that is killed before it is done again.
    corrupt = {key: state.reason for key, state in states.items() if state.state == "corrupt"}
    note_collected(database.parent, made_from, corrupt)
    return _summary(database, imports.problems)


def _keep(connection: duckdb.DuckDBPyConnection, keys: Collection[str]) -> None:
    """Delete all rows except those that were read from files of the stages with these keys."""
    tables = [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
    connection.register("kept", pa.table({"key": pa.array(keys, pa.string())}))
    for table in tables:
        condition = " WHERE key NOT IN (SELECT key FROM kept)" if table in TABLES else ""
        connection.execute(f"DELETE FROM {table}{condition}")
    connection.unregister("kept")


def _with_history(results: Path, plan: PlanFile, states: dict[str, StageState], *, record: bool) -> list[StoredStudy]:
    stored = []
    for study in plan.studies:
        last = {run.stages[study.last_stage] for run in study.runs}
        finished = any(key in states and states[key].state == "ok" for key in last)
        runs = [run.variant for run in study.runs]
        history = record_analysis(results, study, runs, study.parents, has_results=finished, record=record)
        stored.append(StoredStudy(**study.fields_of(StudyRecord), analysis_history=history))
    return stored


def _write_plan(connection: duckdb.DuckDBPyConnection, plan: PlanFile, studies: Sequence[StoredStudy]) -> None:
    now, digest = datetime.now(UTC).isoformat(timespec="seconds"), digest_of_plan(plan.text())
    meta = {"scale": plan.scale, "created": now, "plan digest": digest, "schema version": SCHEMA_VERSION}
    insert(connection, "meta", meta.items())
    for study, planned in zip(studies, plan.studies, strict=True):
        run_stages = (
            (study.name, run.variant, run.seed, stage, position, key)
            for run in planned.runs
            for position, (stage, key) in enumerate(run.stages.items())
        )
        write_study(connection, study, planned.variants, run_stages)
        insert(connection, "published", _published(study.name, study.published))


def _write_imports(
    connection: duckdb.DuckDBPyConnection,
    results: Path,
    imports: Imports,
    states: Mapping[str, StageState],
    *,
    record: bool,
) -> None:
    for name, imported in imports.studies.items():
        study = imported.study.model_copy(update={"name": name})
        parents = {variant.name: variant.parent for variant in imported.variants}
        runs = [variant for variant, _ in sorted({(run.variant, run.seed) for run in imported.runs})]
        history = record_analysis(results, study, runs, parents, has_results=True, record=record)
        kept = any(run.final is not None and run.final == run.kept for run in imported.runs)
        fields = study.fields_of(StudyRecord)
        url = imported.written.runs.url or ""
        stored = StoredStudy(**fields, analysis_history=history, imported=note(imported), kept=kept, run_url=url)
        write_study(connection, stored, imported.variants, run_stage_rows(name, imported))
        insert(connection, "stages", stage_rows(imports.places, states, name, imported))


def write_study(
    connection: duckdb.DuckDBPyConnection,
    study: StoredStudy,
    variants: Iterable[PlannedVariant],
    run_stages: Iterable[tuple[Any, ...]],
) -> None:
    """Insert the rows of a study into `studies`, `variants` and `run_stages`."""
    head = study.name, study.title, study.question, study.source, study.model_dump_json()
    insert(connection, "studies", [head])
    insert(connection, "variants", (_variant_row(study.name, i, entry) for i, entry in enumerate(variants)))
    insert(connection, "run_stages", run_stages)


def _variant_row(study: str, position: int, entry: PlannedVariant) -> tuple[Any, ...]:
    changes = [change.model_dump(by_alias=True) for change in entry.changes]
    documents = (json.dumps(value) for value in (entry.resolved, entry.factors, changes))
    head = study, entry.name, entry.parent, position, entry.why, entry.label, entry.file
    return (*head, *documents, entry.helper)


def _published(study: str, published: PublishedFile | None) -> Iterable[tuple[Any, ...]]:
    if published is None:
        return
    for variant, values in published.rows.items():
        for column, cell in zip(published.columns, values, strict=True):
            if cell is not None:
                yield study, variant, column, cell.number.value, published.source


def _write_stages(connection: duckdb.DuckDBPyConnection, plan: PlanFile, states: dict[str, StageState]) -> None:
    keys = {stage.dir: stage.key for stage in plan.stages}
    rows = []
    for stage in plan.stages:
        state = states[stage.key]
        inputs = json.dumps({name: keys.get(folder, str(folder)) for name, folder in stage.inputs.items()})
        times = (state.started, state.ended, state.wall_s, state.attempt)
        outcome = (state.state, state.reason, *times, state.device, state.devices)
        head = (stage.key, stage.study, stage.stage, stage.seed, stage.label)
        rows.append((*head, *outcome, str(stage.dir), inputs))
    insert(connection, "stages", rows)


def _summary(database: Path, problems: Sequence[str] = ()) -> Collected:
    with Store(database) as store:
        rows = {table: store.rows(f"SELECT count(*) FROM {table}")[1][0][0] for table in ("metrics", "items", "health")}
        states = dict(store.rows("SELECT state, count(*) FROM stages GROUP BY state ORDER BY state")[1])
    return Collected(database, rows, states, list(problems))
