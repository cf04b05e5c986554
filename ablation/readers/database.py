"""Runs in this project's own database, `tracker.duckdb`, from another machine and commit.

Each run keeps its configuration, its curves, its final metrics and its items. Metrics of stages before the last keep
their names; where two stages log the same name, the stage is put before it, since their steps differ. The study's
variant tree and analysis plan are in the file too: `declared` reads them.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.readers.run import ITEM_ROWS, METRIC_ROWS, ImportedRun, Problem, State

_MAGIC = b"DUCK"  # preceded by a checksum of 8 bytes
_TABLES = {"meta", "studies", "variants", "stages", "run_stages", "metrics", "items"}
_STATES: dict[str, State] = {"ok": "finished", "imported": "finished", "running": "running", "missing": "running"}
_ROWS = """
    WITH own AS (
        SELECT r.stage, r.position, r.position = max(r.position) OVER () AS final, m.step, m.name, m.value
        FROM run_stages r JOIN metrics m USING (key) WHERE r.study = ? AND r.variant = ? AND r.seed = ?),
    shared AS (SELECT name FROM own GROUP BY name HAVING count(DISTINCT stage) > 1)
    SELECT step, CASE WHEN NOT final AND name IN (FROM shared) THEN stage || '/' || name ELSE name END AS name, value
    FROM own ORDER BY position, step"""
_ITEMS = """
    SELECT i.item, i.subset, i.protocol, i.name, i.value, {cluster} AS cluster
    FROM run_stages r JOIN items i USING (key) WHERE r.study = ? AND r.variant = ? AND r.seed = ?
    AND r.position = (SELECT max(position) FROM run_stages s WHERE s.study = r.study AND s.variant = r.variant
                      AND s.seed = r.seed)"""


@dataclass(frozen=True)
class Declared:
    """One study of a database: the definition as JSON, and {variant: (parent, why)}."""

    study: str
    definition: dict[str, Any]
    variant_tree: dict[str, tuple[str | None, str]]


def read(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs of every study in the file; `id` is `study/variant/seed`. Raises ConfigError for another file."""
    with _open(path) as store:
        columns = {name for (name,) in store.execute("SELECT column_name FROM (DESCRIBE items)").fetchall()}
        items = _ITEMS.format(cluster="i.cluster" if "cluster" in columns else "NULL::VARCHAR")
        rows = store.execute(
            """SELECT r.study, r.variant, r.seed, any_value(v.resolved), min(s.started),
                   first(s.state ORDER BY r.position) FILTER (s.state NOT IN ('ok', 'imported'))
               FROM run_stages r JOIN variants v USING (study, variant) JOIN stages s ON s.key = r.key
               GROUP BY r.study, r.variant, r.seed ORDER BY ALL"""
        ).fetchall()
        _tell_commits(store, path, problem)
        for study, variant, seed, resolved, started, state in rows:
            run = [study, variant, seed]
            try:
                metrics = _rows(store, _ROWS, run).cast(METRIC_ROWS)
                evaluated = _rows(store, items, run).cast(ITEM_ROWS)
            except (duckdb.Error, pa.ArrowException) as error:
                problem(f"{path}: {study}/{variant} seed {seed} cannot be read ({one_line(error, 200)})")
                continue
            yield ImportedRun(
                source=path,
                id=f"{study}/{variant}/{seed}",
                name=f"{variant}/seed_{seed}",
                config=json.loads(resolved),
                seed=int(seed),
                state=_STATES.get(state or "ok", "failed"),
                started=started,
                metrics=metrics,
                items=evaluated if evaluated.num_rows else None,
            )


def _rows(store: duckdb.DuckDBPyConnection, query: str, run: list[Any]) -> pa.Table:
    return store.sql(query, params=run).to_arrow_table()


def declared(path: Path) -> list[Declared]:
    """Return the declaration of each study in the file."""
    with _open(path) as store:
        studies = store.execute("SELECT study, definition FROM studies ORDER BY rowid").fetchall()
        rows = store.execute("SELECT study, variant, parent, why FROM variants ORDER BY rowid").fetchall()
    return [
        Declared(study, json.loads(text), {name: (parent, why) for owner, name, parent, why in rows if owner == study})
        for study, text in studies
    ]


def _open(path: Path) -> duckdb.DuckDBPyConnection:
    wrong = "name a tracker.duckdb that `ablation collect` wrote"
    if not path.is_file():
        raise ConfigError(path, "", None, "is not a file", wrong)
    try:
        with path.open("rb") as file:
            begins = file.read(12)
        if begins[8:] != _MAGIC:  # DuckDB would take it for what its name or its first bytes say: a table, SQLite
            raise ConfigError(path, "", None, "is not a DuckDB database", wrong)
        store = duckdb.connect(str(path), read_only=True, config={"enable_external_access": False, "threads": 1})
        tables = {name for (name,) in store.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    except (duckdb.Error, OSError) as error:
        raise ConfigError(path, "", None, f"cannot be read ({one_line(error, 200)})", wrong) from None
    if not tables >= _TABLES:
        store.close()
        raise ConfigError(path, "", None, f"has no tables {', '.join(sorted(_TABLES - tables))}", wrong)
    return store


def _tell_commits(store: duckdb.DuckDBPyConnection, path: Path, problem: Problem) -> None:
    """Report studies whose runs were made by several versions of the code: they may not be comparable."""
    commits = store.execute(
        """SELECT r.study, count(DISTINCT p.data->>'$.git.commit') FROM run_stages r JOIN provenance p USING (key)
           GROUP BY r.study HAVING count(DISTINCT p.data->>'$.git.commit') > 1 ORDER BY ALL"""
    )
    for study, count in commits.fetchall():
        problem(f"{path}: the runs of {study} come from {count} commits: check whether they may be compared")
