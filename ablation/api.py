"""The tracker in Python: what the commands find, as data frames and records. `import ablation` has these names.

open(results) -> Results                 what a grid or an import left
compare(a, b) -> Verdict                 two evaluations: paths, frames or arrays
judge(child, parent, items) -> Verdict   arrays [seeds, items]
"""

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ablation.cli.common import check_study, runs_named
from ablation.cli.common import direction as read_direction
from ablation.cli.compare import outcome_of
from ablation.cli.effects import studies_with, tell_pair
from ablation.config.names import suggest
from ablation.contract.display import plain
from ablation.contract.errors import ConfigError, TrackerError
from ablation.judge.compare.comparison import Rules, Weight, compare_files
from ablation.judge.compare.groups import DEFAULT_NAMES, Files, Options, expand
from ablation.judge.design import Claim, Seeds
from ablation.judge.measurements import read_measurements
from ablation.judge.power import POWER
from ablation.judge.sizes import Request, search_sizes, study_source
from ablation.judge.verdicts import comparison_table, judge_studies
from ablation.readers.sheet import Wanted
from ablation.show.answer import results_html, verdict_html
from ablation.show.comparison import as_rows, in_words
from ablation.store.current import load_or_collect
from ablation.store.database import Store

__all__ = ["Results", "TrackerError", "Verdict", "compare", "judge", "open"]
_WIDTH = 100


@dataclass(frozen=True)
class Verdict:
    """One comparison. Every name of `row` is an attribute as well: `verdict`, `effect`, `low`, `high`, `reason`, ..."""

    row: Mapping[str, Any]  # as `--json` prints it; None for what does not exist
    text: str  # as the command prints it

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("row", ()):
            return self.row[name]
        raise AttributeError(f"a verdict has no {name!r}, but {', '.join(self.__dict__.get('row', ()))}")

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return verdict_html(self.row)


class Results:
    """A results folder: tables as pandas frames, by SQL also as Arrow tables. `with` closes it."""

    def __init__(self, results: str | Path = "results") -> None:
        """Open the database, collecting first if it is out of date. Raises TrackerError if it cannot be up to date."""
        self.folder = Path(results)
        self._store = Store(load_or_collect(self.folder, strict=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the database."""
        self._store.close()

    @property
    def studies(self) -> list[str]:
        """Names of the studies."""
        return self._store.studies()

    def verdicts(self, study: str | None = None) -> pd.DataFrame:
        """A row for each comparison, as `ablation verdicts --csv`."""
        check_study(self._store, "verdicts", study)
        return comparison_table(judge_studies(self._store, study))

    def metrics(self, study: str | None = None) -> pd.DataFrame:
        """Final metrics of runs that ended well: study, variant, seed, metric, value."""
        return self._view("results", study)

    def items(self, study: str | None = None) -> pd.DataFrame:
        """Their evaluation items: study, variant, seed, subset, protocol, name, item, value, cluster."""
        columns = "study, variant, seed, subset, protocol, name, item, value, cluster"
        return self._view(f"(SELECT {columns} FROM finals JOIN items USING (key))", study)

    def curves(self, study: str | None = None) -> pd.DataFrame:
        """Training metrics: study, variant, seed, stage, step, metric, value."""
        return self._view("curves", study)

    def runs(self, study: str | None = None) -> pd.DataFrame:
        """All runs: study, variant, seed, state, reason, wall_s."""
        return self._view("runs", study)

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> pd.DataFrame:
        """The rows of a query."""
        return self._store.sql(query, parameters)

    def arrow(self, query: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """The rows of a query as an Arrow table, which Polars, DuckDB and others take without a copy."""
        return self._store.arrow(query, parameters)

    def diff(self, a: str, b: str, study: str | None = None) -> Verdict:
        """What variant `b` changes with respect to `a`, as `row["changes"]`, and the effect."""
        having = studies_with(self._store, study, a, b)
        if len(having) != 1 or a == b:
            among = [name for name in self.studies if study in (None, name)]
            known = [variant.name for name in among for variant in self._store.variants(name)]
            absent = [name for name in (a, b) if name not in known]
            problem = "are one variant" if a == b else f"are in {len(having)} studies" if having else "are in no study"
            remedy = suggest(absent[0], known) if absent else f"name two of one of {self.studies}"
            raise ConfigError(self.folder, f"{a} and {b}", study, problem, remedy)
        measured = read_measurements(self._store, having[0])
        told = tell_pair(measured, self._store.meta()["scale"], a, b)
        return Verdict({**(told.effect or {}), "changes": plain(told.changes)}, "\n".join([*told.changed, *told.lines]))

    def power(
        self,
        study: str,
        effect: float,
        comparisons: str | Sequence[str] = (),
        *,
        power: float = POWER,
        seeds: int | Sequence[int] = (),
        items: int | Sequence[int] = (),
        samples: int | Sequence[int] = (),
        checkpoints: int | Sequence[int] = (),
        sample_sd: float | None = None,
        checkpoint_sd: float | None = None,
    ) -> pd.DataFrame:
        """A row for each number of seeds and items: what it detects, and its device-hours, as in `ablation power`.

        The arguments are the command's options; a number stands for a list of one.
        """
        check_study(self._store, "power", study)
        request = Request(
            effect,
            power,
            seeds=_numbers(seeds),
            items=_numbers(items),
            samples=_numbers(samples),
            checkpoints=_numbers(checkpoints),
            sample_sd=sample_sd,
            checkpoint_sd=checkpoint_sd,
        )
        wanted = [comparisons] if isinstance(comparisons, str) else comparisons
        rows = search_sizes(request, study_source(self._store, study), wanted).rows()
        return pd.DataFrame(rows).drop(columns="cost")  # which needs a price

    def _view(self, view: str, study: str | None) -> pd.DataFrame:
        check_study(self._store, "results", study)
        chosen = ("", []) if study is None else ("WHERE study = ?", [study])
        return self._store.sql(f"FROM {view} {chosen[0]} ORDER BY ALL", chosen[1])

    def _repr_html_(self) -> str:
        return results_html(self.runs(), self._store.meta()["scale"])


def _numbers(given: int | Sequence[int]) -> Sequence[int]:
    return list(np.atleast_1d(given).tolist())


def open(results: str | Path = "results") -> Results:
    """Open what a grid or an import left in a folder."""
    return Results(results)


def compare(
    a: Any,
    b: Any,
    *,
    names: tuple[str, str] | None = None,
    metric: str | None = None,
    filter: str | None = None,
    tasks: str | Sequence[str] = (),
    cluster: str | None = None,
    item: str | None = None,
    direction: str | Mapping[str, float] | None = None,
    margin: float | None = None,
    alpha: float = 0.05,
    seed_from: str | None = None,
    seeds: Seeds | None = None,
    claim: Claim | None = None,
    without: str | Sequence[str] = (),
    at: str | None = None,
    allow: str | Sequence[str] = (),
    common_items: bool = False,
    latest: bool = False,
    weight: Weight = "tasks",
    changed_items: int = 3,
    pass_at: int | None = None,
    cons_at: int | None = None,
) -> Verdict:
    """Judge `b` against `a`. Options are as for `ablation compare`.

    `a` and `b` are paths (a file, a folder, a pattern, or a list of them), a frame with the columns item and value and
    optionally seed, subset, cluster and sample, or an array as for `judge`.
    """
    if not 0 < alpha < 0.5:
        raise ConfigError("compare", "alpha", alpha, "is not a valid level", "give a number between 0 and 0.5")
    if margin is not None and not 0 < margin < math.inf:
        raise ConfigError("compare", "margin", margin, "is not a valid margin", "give a number above 0")
    if names is not None and len(names) != 2:
        raise ConfigError("compare", "names", names, "are not the names of baseline and candidate", "give a pair")
    if isinstance(direction, Mapping):
        direction = ",".join(f"{name}:{value}" for name, value in direction.items())
    tasks, allow, without = ((each,) if isinstance(each, str) else each for each in (tasks, allow, without))
    for name, given, choices in (("seeds", seeds, get_args(Seeds)), ("claim", claim, get_args(Claim))):
        if given is not None and given not in choices:
            raise ConfigError("compare", name, given, "is not known", f"give {' or '.join(choices)}")
    outcome = outcome_of(pass_at, cons_at)
    options = Options(Wanted(metric, filter, tuple(tasks), cluster, item), seed_from, latest, at, outcome)
    options = replace(options, independent=seeds == "independent" and seed_from is None)
    rules = Rules(
        direction=read_direction("compare", direction) if direction else None,
        margin=margin,
        allow=frozenset(allow),
        without=runs_named("compare", without),
        common_items=common_items,
        weight=weight,
        changed_items=changed_items,
        chosen=options.wanted,
        analysis={"alpha": alpha, "seeds": seeds, "claim": claim},
    )
    with _as_files(a, b) as (first, second):
        result = compare_files(first, second, names, options, rules)
        [row] = as_rows(result)
        return Verdict(plain(row) | {"notes": list(result.notes)}, in_words(result, _WIDTH))


def judge(
    child: Any,
    parent: Any,
    items: Sequence[Any] | None = None,
    *,
    clusters: Sequence[Any] | None = None,
    **options: Any,
) -> Verdict:
    """Judge arrays whose seeds and items stand in the same places: [seeds, items], or [items], which is one seed, or
    [seeds, items, samples].

    items: their names, by default numbers; clusters: what correlated items share. The options are those of
    `compare`; with `seeds="independent"` the two may have different numbers of runs.
    """
    shapes = [np.shape(group) if np.ndim(group) > 1 else (1, *np.shape(group)) for group in (child, parent)]
    apart = options.get("seeds") == "independent"
    if shapes[0][apart:] != shapes[1][apart:] or np.ndim(child) != np.ndim(parent):
        problem, remedy = f"is not the shape of the parent, {np.shape(parent)}", "pair them, or seeds='independent'"
        raise ConfigError("judge", "child", np.shape(child), problem, remedy)
    groups = [_frame(array, items, clusters) for array in (parent, child)]
    return compare(*groups, **{"names": ("parent", "child"), **options})


def _frame(array: Any, items: Sequence[Any] | None = None, clusters: Sequence[Any] | None = None) -> pd.DataFrame:
    """The table of an array: a row for each seed and item."""
    values = np.asarray(array, dtype=float)
    if values.ndim not in (1, 2, 3) or not values.size:
        remedy = "give [seeds, items], or [items], or [seeds, items, samples]"
        raise ConfigError("judge", "array", values.shape, "is not a valid shape", remedy)
    shape = values.shape if values.ndim > 1 else (1, *values.shape)
    seeds, count, samples = shape if len(shape) == 3 else (*shape, 1)
    frame = pd.DataFrame({"value": values.ravel()})
    for name, of in (("item", range(count) if items is None else items), ("cluster", clusters)):
        if of is None:
            continue
        if len(of) != count:
            raise ConfigError("judge", f"{name}s", len(of), f"is not the number of items, {count}", "name each item")
        frame[name] = np.tile(np.repeat(np.asarray(of), samples), seeds)
    if values.ndim > 1:
        frame["seed"] = np.repeat(np.arange(seeds), count * samples)
    return frame if values.ndim < 3 else frame.assign(sample=np.tile(np.arange(samples), seeds * count))


def _files(group: Any, file: Path) -> Files:
    if isinstance(group, str | Path):
        return expand([str(group)])
    if isinstance(group, list | tuple) and group and all(isinstance(path, str | Path) for path in group):
        return expand(map(str, group))
    if isinstance(group, pd.Series):
        group = _frame(group, group.index)
    if isinstance(group, pd.DataFrame):
        table = pa.Table.from_pandas(group, preserve_index=False)
    else:  # of Arrow, Polars, DuckDB, ... or numbers
        table = pa.table(group if hasattr(group, "__arrow_c_stream__") else _frame(group))
    pq.write_table(table, file)
    return Files([file])


@contextmanager
def _as_files(*groups: Any) -> Iterator[list[Files]]:
    """The files of each; frames and arrays are written to files of their own, and so read as tables are."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            yield [
                _files(group, Path(folder) / f"{name}.parquet")
                for name, group in zip(DEFAULT_NAMES, groups, strict=True)
            ]
        except ConfigError as error:
            said = [str(part).replace(f"{folder}/", "") for part in (error.file, error.problem)]
            raise ConfigError(said[0], error.key, error.value, said[1], error.remedy) from None
