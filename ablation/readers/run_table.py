"""Reader of tables of runs as people keep them: a row for each logged value or run, in columns of any names.

    variant,parent,seed,step,val_loss       wide: a column for each metric
    variant,run,metric,value                long: a row for each value of a metric

The caller may name the column for each role, such as variant or seed; other roles are guessed from the columns' names
and reported in a note.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablation.config.names import suggest
from ablation.contract.display import listed
from ablation.contract.errors import ConfigError
from ablation.readers.columns import NotANumber, number, numbers
from ablation.readers.run import ImportedRun, Problem, State, metric_table
from ablation.readers.seeds import seed_in, without_seed
from ablation.readers.tabular import SUFFIXES, Row, rows_of, whole

ROLES = {
    "variant": [
        "variant",
        "config",
        "method",
        "model",
        "experiment",
        "record",
        "algorithm",
        "algo",
        "name",
        "condition",
    ],
    "parent": ["parent", "base", "baseline", "extends", "compared_to"],
    "seed": ["seed", "random_seed"],
    "run": ["run", "run_id", "replicate", "rep", "trial", "repeat"],
    "step": ["step", "global_step", "iteration", "iter", "epoch", "training_step"],
    "metric": ["metric", "metric_name", "measure", "key"],
    "value": ["value", "metric_value", "score", "result"],
    "state": ["state", "status"],
}
"""{role: lower-case names of columns with this role, the likeliest first}."""

_HYPERPARAMETER = re.compile(
    r"(.*[_./-])?(lr|learning_rate|dropout|weight_decay|wd|momentum|beta\d?|gamma|alpha|temperature|batch_size|bs|rank"
    r"|warmup(_steps|_ratio)?|epochs|num_epochs|max_steps|layers|n_layers|hidden(_size|_dim)?|clip|kl_coef|top_[kp])"
)
"""Pattern of lower-case names of columns whose numbers are settings, not measurements."""

STATES: dict[str, State] = {
    **dict.fromkeys(("finished", "completed", "succeeded", "success", "done", "ok"), "finished"),
    **dict.fromkeys(("running", "pending", "scheduled", "preempting"), "running"),
    **dict.fromkeys(("crashed", "failed", "killed", "preempted", "error", "timeout", "cancelled"), "failed"),
    **dict.fromkeys(("out_of_memory", "node_fail", "diverged"), "failed"),
}
"""{lower-case word of W&B, MLflow or a scheduler: state of the run}; worse states come later."""


_NUMBER = "write a number, or leave the cell empty"


@dataclass
class _Run:
    variant: str
    run: str
    seed: int | None
    config: dict[str, Any]
    state: State = "finished"
    points: list[tuple[int, str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class RunTable:
    """The content of a table of runs.

    Attributes:
        roles: {role: column}.
        metrics: columns of logged numbers, or the names in the column of metrics.
        settings: columns with one value in all runs of a variant.
        parents: {variant: parent}; empty without a column of parents.
        groups: if each run is read as its own variant, the column that could name the variants; else empty.
    """

    path: Path
    roles: Mapping[str, str]
    metrics: Sequence[str]
    settings: Sequence[str]
    parents: Mapping[str, str | None]
    runs: Sequence[_Run]
    groups: str = ""

    def imported(self) -> Iterator[ImportedRun]:
        """Yield the runs, named `variant/run`."""
        for run in self.runs:
            name = f"{run.variant}/{run.run}"
            config = {"variant": run.variant, **run.config}
            yield ImportedRun(self.path, name, name, config, run.seed, run.state, metrics=metric_table(run.points))

    def note(self) -> str:
        """Return one line that states how the columns were read."""
        roles = ", ".join(f"{role} = {column}" for role, column in self.roles.items())
        settings = f"; settings: {listed(list(self.settings), 5)}" if self.settings else ""
        remedy = "to correct this, pass --map columns.ROLE=COLUMN"
        return f"{self.path}: read as {roles}; metrics: {listed(list(self.metrics), 5)}{settings} ({remedy})"


def read_table(path: Path, named: Mapping[str, str], judged: Sequence[str] = ()) -> RunTable:
    """Read a table of runs; `named` is {role: column} for the roles that the caller states.

    Several columns together may name the variant, such as `algorithm,beta`. Raises ConfigError if the file is not a
    table of runs, or if the column of a metric in `judged` has a cell that is not a number.
    """
    if path.suffix not in (*SUFFIXES, ".tsv") or not path.is_file():
        raise ConfigError(path, "", None, "is not a table", f"name a file that ends in {', '.join(SUFFIXES)} or .tsv")
    rows: Sequence[Row] = list(rows_of(path))
    if not rows:
        raise ConfigError(path, "", None, "has no rows", "name a table with a row for each run or logged value")
    head = list(dict.fromkeys(name for _, row in rows for name in row))
    rows = _with_numbers(rows, head)
    together = _together(path, head, named.get("variant", ""))
    if together:  # one more column with the values of these
        head.append(named["variant"])
        rows = [
            (line, row | {named["variant"]: "-".join(str(row.get(column)) for column in together)})
            for line, row in rows
        ]
    roles = _roles(path, head, named)
    if "state" not in named and not any(_is_state(row.get(roles.get("state", ""))) for _, row in rows):
        roles.pop("state", None)  # it is about something else
    long = {"metric", "value"} <= {*roles}
    if not long:  # of a wide table, `score` is a metric
        roles = {role: column for role, column in roles.items() if role not in ("metric", "value")}
    roles, rows = _with_seeds_of_names(roles, rows)
    others = [column for column in head if column not in roles.values()]
    filled = {column: [row[column] for _, row in rows if not _empty(row.get(column))] for column in others}
    numeric = [column for column, cells in filled.items() if cells and all(map(_is_number, cells))]
    chosen = [roles["variant"]] if roles["variant"].strip().lower() not in ROLES["variant"] else []
    settings = list(dict.fromkeys([*together, *chosen, *_settings(rows, roles["variant"], others, numeric)]))
    settings = [column for column in settings if column != named.get("value")]
    metrics = [column for column in numeric if column not in settings]
    if long:
        metrics = list(dict.fromkeys(str(row[roles["metric"]]) for _, row in rows))
    for column in (named.get("value"), *judged):
        if column in others and filled[column] and column not in (*settings, *numeric):
            _refuse_word(path, rows, column)
    if not metrics:
        problem = "has no column whose numbers differ between the runs of a variant"
        remedy = "write plain numbers such as 0.5, or name the column with --map columns.value=COLUMN"
        raise ConfigError(path, "", None, problem, remedy)
    runs = _runs(path, rows, roles, metrics if not long else None, settings)
    groups = "" if {"run", "parent"} & roles.keys() else _groups(rows, roles, others, runs)
    return RunTable(path, roles, metrics, settings, _parents(path, rows, roles), runs, groups)


def _with_numbers(rows: Sequence[Row], head: Sequence[str]) -> Sequence[Row]:
    """Return the rows, with numbers for cells such as `1,758` if the other cells of the column show what they mean."""
    resolved = {}
    for column in head:
        cells = [row.get(column) for _, row in rows]
        if any(isinstance(cell, str) and "," in cell and number(cell) is None for cell in cells):
            with suppress(NotANumber):
                resolved[column] = [None if math.isnan(value) else value for value in numbers(cells)]
    return [
        (line, row | {name: numbers_of[at] for name, numbers_of in resolved.items()})
        for at, (line, row) in enumerate(rows)
    ]


def _refuse_word(path: Path, rows: Sequence[Row], column: str) -> None:
    cells = ((line, row[column]) for line, row in rows if not _empty(row.get(column)))
    line, cell = next((line, cell) for line, cell in cells if not _is_number(cell))
    problem = "is not a number"
    try:
        numbers([cell])
    except NotANumber as error:
        problem = error.problem
    raise ConfigError(path, f"line {line}: {column}", cell, problem, _NUMBER)


def _together(path: Path, head: Sequence[str], variant: str) -> list[str]:
    """Return the columns that together name the variant; no columns if a single column names it."""
    columns = [] if variant in head or "," not in variant else [column.strip() for column in variant.split(",")]
    for column in columns:
        if column not in head:
            raise ConfigError("--map", "columns.variant", column, f"is not a column of {path}", suggest(column, head))
    return columns


def _roles(path: Path, head: Sequence[str], named: Mapping[str, str]) -> dict[str, str]:
    for role, column in named.items():
        if role not in ROLES:
            raise ConfigError("--map", f"columns.{role}", column, f"{role} is not a role", suggest(role, list(ROLES)))
        if column not in head:
            raise ConfigError("--map", f"columns.{role}", column, f"is not a column of {path}", suggest(column, head))
    lower = {column.strip().lower(): column for column in head}
    roles = dict(named)
    for role, names in ROLES.items():
        free = (lower[name] for name in names if name in lower and lower[name] not in roles.values())
        likeliest = next(free, None)
        if role not in roles and likeliest is not None:
            roles[role] = likeliest
    if "variant" not in roles:
        remedy = f"pass --map columns.variant=COLUMN (columns: {listed(list(head), 8)})"
        raise ConfigError(path, "variant", None, "no column has a usual name for the variants", remedy)
    return {role: roles[role] for role in ROLES if role in roles}


def _with_seeds_of_names(roles: dict[str, str], rows: Sequence[Row]) -> tuple[dict[str, str], Sequence[Row]]:
    """Return the roles and rows after splitting names of runs, such as `base-s3`, into variants and seeds."""
    column = roles["variant"]
    seed_column = f"{column}'s seed"
    cut: dict[str, dict[str, str]] = {}
    for name in {str(row[column]) for _, row in rows}:
        seed = seed_in(name)
        if not seed or not (variant := without_seed(name, seed)):  # of `run1` nothing would be left
            return roles, rows
        cut[name] = {column: variant, seed_column: seed["seed"]}
    if {"seed", "run", "parent"} & roles.keys():
        return roles, rows
    return {**roles, "seed": seed_column}, [(line, row | cut[str(row[column])]) for line, row in rows]


def _settings(rows: Sequence[Row], variant: str, others: Sequence[str], numeric: Sequence[str]) -> list[str]:
    """Return the columns that have one value in all rows of each variant.

    If no variant has several rows, a column of numbers is returned only if it has the name of a hyperparameter.
    """
    values: dict[tuple[str, str], set[Any]] = {}
    counts: dict[str, int] = {}
    for _, row in rows:
        counts[str(row[variant])] = counts.get(str(row[variant]), 0) + 1
        for column in others:
            values.setdefault((column, str(row[variant])), set()).add(row.get(column))
    several = max(counts.values()) > 1
    return [
        column
        for column in others
        if all(len(values[column, name]) == 1 for name in counts)
        and (several or column not in numeric or _HYPERPARAMETER.fullmatch(column.strip().lower()))
    ]


def _runs(
    path: Path, rows: Sequence[Row], roles: Mapping[str, str], metrics: Sequence[str] | None, settings: Sequence[str]
) -> list[_Run]:
    """Return the rows grouped by run. Without columns for seed, run and step, each row of a wide table is a run."""
    runs: dict[tuple[str, str], _Run] = {}
    taken: dict[tuple[str, str, int, str], int] = {}
    counts: dict[str, int] = {}
    for line, row in rows:
        variant = str(row[roles["variant"]] or "").strip()
        if not variant:
            where = f"line {line}: {roles['variant']}"
            raise ConfigError(path, where, None, "is empty", "name the variant of each row")
        seed = _integer(path, line, row, roles.get("seed"))
        run_name = seed if seed is not None else row.get(roles.get("run", ""))
        if run_name is None and "step" not in roles and metrics is not None:
            run_name = counts[variant] = counts.get(variant, -1) + 1
        name = str(run_name if run_name is not None else 0)
        config = {column: row[column] for column in settings}
        run = runs.setdefault((variant, name), _Run(variant, name, seed, config))
        run.state = max(run.state, _state(path, line, row, roles.get("state")), key=[*STATES.values()].index)
        step = _integer(path, line, row, roles.get("step")) or 0
        pairs = [(metric, row.get(metric)) for metric in metrics or ()]
        if metrics is None:
            pairs = [(row[roles["metric"]], row[roles["value"]])]
        for metric, cell in pairs:
            if _empty(cell):
                continue
            if not _is_number(cell):
                raise ConfigError(path, f"line {line}: {metric}", cell, "is not a number", _NUMBER)
            if (before := taken.setdefault((variant, name, step, str(metric)), line)) != line:
                if seed is None:
                    given, options = f"run {name}", "--map columns.run=COLUMN or --map columns.seed=COLUMN"
                else:
                    given, options = f"seed {name}", "--map columns.variant=COLUMN (or COLUMN,COLUMN)"
                given += f", step {step}" if "step" in roles else ""
                problem = f"{metric} of {variant}, {given} occurs twice (first in line {before})"
                remedy = f"pass {options} with the column that distinguishes the two lines"
                raise ConfigError(path, f"line {line}", None, problem, remedy)
            run.points.append((step, str(metric), number(cell) or 0.0))
    return list(runs.values())


def _groups(rows: Sequence[Row], roles: Mapping[str, str], others: Sequence[str], runs: Sequence[_Run]) -> str:
    """Return the column that could best name the variants; "" if none could, or if a variant already has two runs."""
    if len({run.variant for run in runs}) < len(runs) or "seed" not in roles or len(rows) > len(runs):
        return ""
    value_counts = {}
    for column in others:
        pairs = {(row.get(column), row[roles["seed"]]) for _, row in rows}
        values = {value for value, _ in pairs}
        if len(pairs) == len(rows) and 1 < len(values) < len(rows) and not any(map(_empty, values)):
            value_counts[column] = len(values)
    return min(value_counts, key=lambda column: value_counts[column], default="")


def _parents(path: Path, rows: Sequence[Row], roles: Mapping[str, str]) -> dict[str, str | None]:
    if "parent" not in roles:
        return {}
    parents: dict[str, str | None] = {}
    for line, row in rows:
        variant, parent = str(row[roles["variant"]]), str(row[roles["parent"]] or "").strip() or None
        if (earlier := parents.setdefault(variant, parent)) != parent:
            problem = f"{variant} has {f'the parent {earlier}' if earlier else 'no parent'} in an earlier line"
            raise ConfigError(path, f"line {line}: {roles['parent']}", parent, problem, "give each variant one parent")
    return parents


def _integer(path: Path, line: int, row: Mapping[str, Any], column: str | None) -> int | None:
    if column is None or _empty(row.get(column)):
        return None
    integer = whole(row[column])
    if integer is None:
        raise ConfigError(path, f"line {line}: {column}", row[column], "is not a whole number", "write 0, 1, 2, ...")
    return integer


def _state(path: Path, line: int, row: Mapping[str, Any], column: str | None) -> State:
    if column is None or _empty(row.get(column)):
        return "finished"
    if not _is_state(row[column]):
        remedy = f"write one of {', '.join(STATES)}, or rename the column if it does not state how runs ended"
        raise ConfigError(path, f"line {line}: {column}", row[column], "is not a known state", remedy)
    return STATES[row[column].strip().lower()]


def _is_state(cell: Any) -> bool:
    return isinstance(cell, str) and cell.strip().lower() in STATES


def _empty(cell: Any) -> bool:
    return cell is None or cell == ""


def _is_number(cell: Any) -> bool:
    value = number(cell)
    return value is not None and not (isinstance(value, float) and math.isinf(value))


def read_runs(path: Path, problem: Problem, named: Mapping[str, str]) -> Iterator[ImportedRun]:
    """Yield the runs of a table, and report to `problem` how the columns were read.

    Raises ConfigError if the file cannot be read as a table of runs.
    """
    table = read_table(path, named)
    problem(table.note())
    alone = len(table.runs) > 1 and len({run.variant for run in table.runs}) == len(table.runs)
    if alone and not table.groups:
        what = f"each of the {len(table.runs)} variants has one run, so the noise between runs cannot be estimated"
        remedy = "add runs with other seeds, or name the column of the variants with --map columns.variant=COLUMN"
        problem(f"{path}: {what}; {remedy}")
    if table.groups and "variant" not in named:
        what = f"each of the {len(table.runs)} runs is read as its own variant"
        remedy = f"if the column {table.roles['variant']} names runs, pass --map columns.variant={table.groups}"
        problem(f"{path}: {what}; {remedy}")
    for variant, parent in table.parents.items():
        if parent is not None and parent not in table.parents:
            problem(f"{path}: {variant} has no baseline, because the table has no runs of its parent {parent}")
    yield from table.imported()
