"""The database: its schema, a reader that cannot write, and named queries that return pandas frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import duckdb

from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.rows import KEPT_STEP, LOGGED, OPTIONAL, SHARDS
from ablation.contract.stage_folder import DATABASE, SCHEMA_VERSION

if TYPE_CHECKING:  # DuckDB imports it where a frame is asked for: half a second that `sql` and `collect` do without
    import pandas as pd
    import pyarrow as pa

    from ablation.plan.plan_file import PlannedVariant
    from ablation.store.analysis_history import StoredStudy

__all__ = ["DATABASE", "SCHEMA", "SCHEMA_VERSION", "TYPES", "Store", "is_whole"]

_Fetched = TypeVar("_Fetched")
Run = tuple[str, int]  # variant, seed
ENDED_WELL = ("ok", "imported")  # states of a stage, and of a run, whose results count
_NO_STATEMENT = "the query contains no statement; write one, such as `from results limit 5`"  # but `;` or a comment

TYPES = {"int64": "BIGINT", "string": "VARCHAR", "float64": "DOUBLE"}  # of DuckDB, by the types of the contract
_SHARDS = "".join(
    f"CREATE TABLE {table} (key VARCHAR, {', '.join(f'{name} {TYPES[kind]}' for name, kind in columns.items())});\n"
    for table, columns in ((table, SHARDS[table] | OPTIONAL[table]) for table in SHARDS)
)

SCHEMA = f"""{_SHARDS}
CREATE TABLE meta (key VARCHAR, value VARCHAR);
CREATE TABLE studies (study VARCHAR, title VARCHAR, question VARCHAR, source VARCHAR, definition JSON);
CREATE TABLE variants (study VARCHAR, variant VARCHAR, parent VARCHAR, position INTEGER, why VARCHAR,
    label VARCHAR, file VARCHAR, resolved JSON, factors JSON, changes JSON, helper BOOLEAN);
CREATE TABLE stages (key VARCHAR, study VARCHAR, stage VARCHAR, seed BIGINT, label VARCHAR, state VARCHAR,
    reason VARCHAR, started VARCHAR, ended VARCHAR, wall_s DOUBLE, attempt INTEGER, device VARCHAR, devices INTEGER,
    dir VARCHAR, inputs JSON,
    device_hours DOUBLE GENERATED ALWAYS AS (coalesce(wall_s, 0) / 3600 * coalesce(devices, 1)) VIRTUAL);
CREATE TABLE run_stages (study VARCHAR, variant VARCHAR, seed BIGINT, stage VARCHAR, position INTEGER, key VARCHAR);
CREATE TABLE health (key VARCHAR, rule VARCHAR, metric VARCHAR, severity VARCHAR, first_step BIGINT, last_step BIGINT,
    value DOUBLE, diagnosis VARCHAR, remedy VARCHAR);
CREATE TABLE weights (key VARCHAR, digest VARCHAR, moved DOUBLE[]);
CREATE TABLE provenance (key VARCHAR, data JSON);
CREATE TABLE published (study VARCHAR, variant VARCHAR, col VARCHAR, value DOUBLE, source VARCHAR);

-- The first stage that did not succeed gives a run's state; a run with an imported stage is imported. A
-- stage without a seed is a stage of many runs: its time is none of theirs.
CREATE VIEW runs AS
SELECT r.study, r.variant, r.seed,
    coalesce(min_by(s.state, position) FILTER (s.state NOT IN ('ok', 'imported')), min(s.state)) AS state,
    coalesce(min_by(s.reason, position) FILTER (s.state NOT IN ('ok', 'imported')), '') AS reason,
    sum(wall_s) FILTER (s.seed IS NOT NULL) AS wall_s
FROM run_stages r JOIN stages s
    ON r.key = s.key AND r.study = s.study AND r.stage = s.stage AND r.seed = coalesce(s.seed, r.seed)
GROUP BY ALL;

-- The keys of the last stage of every run that succeeded: one, or of an imported run one for each of its sources.
-- Of `studies` no more than the stage's name: a join would copy the long definition into each of its rows.
CREATE VIEW finals AS
SELECT r.study, r.variant, r.seed, s.key
FROM runs r JOIN (SELECT study, definition->>'last_stage' AS last FROM studies) d USING (study)
    JOIN run_stages s USING (study, variant, seed)
WHERE r.state IN ('ok', 'imported') AND s.stage = d.last;

-- The last value of each metric; of a command's run that kept an earlier model, the last one up to its step.
-- NaN, not NULL, for a number that is not finite: avg() must not skip it.
CREATE VIEW results AS
SELECT study, variant, seed, name AS metric, CASE WHEN isfinite(final) THEN final ELSE 'NaN'::DOUBLE END AS value
FROM (SELECT study, variant, seed, name,
          coalesce(arg_max(value, step) FILTER (step <= kept), arg_max(value, step)) AS final
      FROM finals JOIN metrics USING (key)
          LEFT JOIN (SELECT key, max(value) AS kept FROM metrics WHERE name = '{KEPT_STEP}' GROUP BY key) USING (key)
      GROUP BY study, variant, seed, name);

-- The last stage logs results; where it is the only one, it logs the curves too.
CREATE VIEW curves AS
SELECT r.study, r.variant, r.seed, r.stage, m.step, m.name AS metric, m.value
FROM run_stages r JOIN (SELECT study, definition->>'last_stage' AS last FROM studies) d USING (study)
    JOIN metrics m USING (key)
WHERE r.stage <> d.last OR r.position = 0;
"""


class Store:
    """A reader of one collected database: `with Store(path) as store: store.results("debias")`.

    It cannot write, read other files or change its own settings, so it may run queries that a user typed.
    """

    def __init__(self, path: Path) -> None:
        """Open the database. Raises ConfigError if it does not exist, cannot be read, or has another schema version."""
        self.path = path
        if not path.exists():
            raise ConfigError(path, "", None, "the database does not exist", "run `ablation collect`")
        if not path.is_file():  # a pipe, say, for which DuckDB would wait
            raise ConfigError(path, "", None, "is not a file", "remove or rename it, and run `ablation collect`")
        # One thread: sums over several would depend on which thread finished first.
        # Attached: DuckDB would give a path that is open in this process the file that was there when it was opened.
        attach = "ATTACH '{}' AS tracker (READ_ONLY); USE tracker".format(str(path.absolute()).replace("'", "''"))
        try:
            self._connection = duckdb.connect(":memory:", config={"threads": 1})
            self._connection.execute(attach)
            self._connection.execute("SET enable_external_access = false; SET lock_configuration = true")
            version = [value for (value,) in self.rows("SELECT value FROM meta WHERE key = 'schema version'")[1]]
        except (duckdb.Error, TrackerError) as error:
            problem = f"cannot be read as a database ({error})"
            raise ConfigError(path, "", None, problem, "run `ablation collect` again") from None
        if version != [SCHEMA_VERSION]:
            self.close()
            problem = f"this version of `ablation` reads only schema version {SCHEMA_VERSION}"
            remedy = "run `ablation collect` where the stage folders are"
            raise ConfigError(path, "schema version", version[0] if len(version) == 1 else version, problem, remedy)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> pd.DataFrame:
        """Run a query, and return a pandas frame. Raises TrackerError with DuckDB's message if the query fails."""
        return self._run(query, parameters, lambda done: done.df())

    def arrow(self, query: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """Run a query, and return its rows as an Arrow table. Raises the same errors as `sql`."""
        return self._run(query, parameters, lambda done: done.to_arrow_table(), relation=True)

    def rows(self, query: str, parameters: Sequence[Any] = ()) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a query; return the column names and the rows as Python values. Raises the same errors as `sql`."""
        return self._run(query, parameters, lambda done: ([column[0] for column in done.description], done.fetchall()))

    def _run(
        self, query: str, parameters: Sequence[Any], fetch: Callable[[Any], _Fetched], *, relation: bool = False
    ) -> _Fetched:
        try:
            done: Any = (
                self._connection.sql(query, params=list(parameters))
                if relation
                else self._connection.execute(query, list(parameters))
            )
            if done is None:
                raise TrackerError(_NO_STATEMENT)
            return fetch(done)
        except duckdb.Error as error:
            if "'pytz'" in str(error):
                problem = "a time with a time zone cannot be shown"
                raise TrackerError(f"{problem}; convert it to a timestamp, such as now()::timestamp") from None
            raise TrackerError(" ".join(str(error).split())) from None

    def meta(self) -> dict[str, str]:
        """Return what the database records about itself: scale, created, plan digest, sources, schema version."""
        return dict(self.sql("SELECT key, value FROM meta ORDER BY key").itertuples(index=False))

    def studies(self) -> list[str]:
        """Return the names of the studies: planned studies in the plan's order, then imported ones."""
        return [name for (name,) in self.rows("SELECT study FROM studies ORDER BY rowid")[1]]

    def study(self, study: str) -> StoredStudy:
        """Return a study's definition and analysis history. Raises ConfigError if the study is not in the database."""
        from ablation.store.analysis_history import StoredStudy  # late: a query needs no pydantic

        rows = self.rows("SELECT definition FROM studies WHERE study = ?", [study])[1]
        if not rows:
            remedy = f"choose from {', '.join(self.studies())}"
            raise ConfigError(self.path, "study", study, "is not in the database", remedy)
        return StoredStudy.model_validate_json(rows[0][0])

    def variants(self, study: str, *, helpers: bool = False) -> list[PlannedVariant]:
        """Return a study's variants in the plan's order, without their `gpu`.

        Variants that `explain` wrote are included only if `helpers` is true.
        """
        from ablation.plan.plan_file import PlannedVariant

        query = """SELECT json_object('name', variant, 'parent', parent, 'why', why, 'label', label, 'file', file,
                       'resolved', resolved, 'factors', factors, 'changes', changes, 'helper', helper)
                   FROM variants WHERE study = ? AND (NOT helper OR ?) ORDER BY position"""
        return [PlannedVariant.model_validate_json(text) for (text,) in self.rows(query, [study, helpers])[1]]

    def runs(self, study: str, *, helpers: bool = False) -> pd.DataFrame:
        """Return rows (variant, seed, state, reason, wall_s), one per run; wall_s is in seconds.

        Runs of variants that `explain` wrote are included only if `helpers` is true.
        """
        query = """SELECT variant, seed, state, reason, wall_s FROM runs JOIN variants USING (study, variant)
                   WHERE study = ? AND (NOT helper OR ?) ORDER BY variant, seed"""
        return self.sql(query, [study, helpers])

    def results(self, study: str, metrics: Sequence[str] | None = None) -> pd.DataFrame:
        """Return rows (variant, seed, metric, value): final metrics of `ok` and imported runs; NaN if not finite."""
        chosen = "" if metrics is None else "AND list_contains(?, metric)"
        query = f"""SELECT variant, seed, metric, value FROM results WHERE study = ? {chosen}
                    ORDER BY variant, seed, metric"""
        return self.sql(query, [study] if metrics is None else [study, list(metrics)])

    def curves(self, study: str, metrics: Sequence[str], points: int = 200) -> pd.DataFrame:
        """Return rows (variant, metric, step, mean, low, high, seeds) of learning curves over seeds.

        A curve has at most `points` rows. If a metric has more steps, neighbouring steps share a bin, and `step` is the
        bin's last step. `mean`, `low` and `high` are the mean and extremes of the seeds' means of finite values there.
        """
        query = """
            WITH chosen AS (SELECT * FROM curves WHERE study = ? AND list_contains(?, metric) AND isfinite(value)),
            grid AS (SELECT metric, step, ntile(?) OVER (PARTITION BY metric ORDER BY step) AS bin
                     FROM (SELECT DISTINCT metric, step FROM chosen)),
            ends AS (SELECT metric, bin, max(step) AS step FROM grid GROUP BY metric, bin),
            seeds AS (SELECT variant, metric, bin, seed, avg(value) AS value
                      FROM chosen JOIN grid USING (metric, step) GROUP BY variant, metric, bin, seed)
            SELECT variant, metric, ends.step, list_aggregate(list(value ORDER BY seed), 'avg') AS mean,
                min(value) AS low, max(value) AS high, count(*) AS seeds
            FROM seeds JOIN ends USING (metric, bin) GROUP BY variant, metric, ends.step
            ORDER BY variant, metric, ends.step"""
        return self.sql(query, [study, list(metrics), points])

    def item_counts(self, study: str) -> pd.DataFrame:
        """Return rows (subset, items): the number of distinct items, not counting metrics that are stored as items."""
        query = """SELECT subset, count(DISTINCT item) AS items FROM finals JOIN items USING (key)
                   WHERE study = ? AND protocol <> ? GROUP BY subset ORDER BY subset"""
        return self.sql(query, [study, LOGGED])

    def published(self, study: str) -> pd.DataFrame:
        """Return rows (variant, col, value, source) of the study's published numbers."""
        return self.sql("SELECT variant, col, value, source FROM published WHERE study = ? ORDER BY rowid", [study])

    def stages(self) -> pd.DataFrame:
        """Return the table of all stages, in the plan's order."""
        return self.sql("SELECT * FROM stages ORDER BY rowid")

    def health(self, study: str) -> pd.DataFrame:
        """Return a study's health events by run: variant, seed, stage and the columns of `health` except `key`."""
        query = """SELECT r.variant, r.seed, r.stage, h.* EXCLUDE (key) FROM run_stages r JOIN health h USING (key)
                   WHERE r.study = ? ORDER BY r.variant, r.seed, r.position, h.rowid"""
        return self.sql(query, [study])


def is_whole(path: Path) -> bool:
    """Return whether a file is a database of this schema version and all its blocks have correct checksums."""
    try:
        with Store(path) as store:
            for (table,) in store.rows("SELECT table_name FROM duckdb_tables()")[1]:
                store.rows(f'SELECT sum(hash(t)) FROM "{table}" t')
    except TrackerError:
        return False
    return True
