"""The tracker in Python: the results of the commands as data frames and records.

`import ablation` has the same names:

    open(results) -> Results                    the results of a grid or an import
    compare(a, b) -> Verdict                    two evaluations: paths, frames or arrays
    leaderboard(evaluations) -> Leaderboard     several evaluations, each against the first or in all pairs
    judge(child, parent, items) -> Verdict      arrays [seeds, items]
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import pyarrow as pa

from ablation.config.names import suggest
from ablation.contract.display import plain
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.extras import need
from ablation.judge.compare.comparison import ComparisonResult, Weight
from ablation.judge.compare.groups import Evaluated, expand, sides_of
from ablation.judge.compare.leaderboard import Standing
from ablation.judge.compare.options import compare_evaluations
from ablation.judge.comparisons import Comparison
from ablation.judge.design import Claim, Seeds
from ablation.judge.power import POWER
from ablation.judge.sizes import Request, search_sizes, study_source
from ablation.judge.verdicts import COMPARISON_COLUMNS, comparison_table, judge_studies
from ablation.readers.arrays import Frame, Values
from ablation.readers.sheet import Errors
from ablation.show.answer import results_html, verdict_html
from ablation.show.comparison import as_rows, in_words
from ablation.show.effects import measured_pair, pair_effect, studies_with
from ablation.store.current import check_study, load_or_collect
from ablation.store.database import Store

__all__ = ["Leaderboard", "Results", "TrackerError", "Verdict", "compare", "judge", "leaderboard", "open"]
_WIDTH = 100


class Verdict:
    """One judged comparison. Each key of `row` is also an attribute, such as `verdict`, `effect` or `reason`.

    Values that take long to compute, such as the minimum detectable effect, are computed on first use.
    """

    def __init__(
        self, row: Callable[[], Mapping[str, Any]], text: Callable[[], str], comparison: Comparison | None = None
    ) -> None:
        self._row, self._text, self._comparison = row, text, comparison

    @cached_property
    def row(self) -> Mapping[str, Any]:
        """Values of the comparison by name, as the commands print them with `--json`; a missing value is None."""
        return self._row()

    @cached_property
    def text(self) -> str:
        """The comparison in words, as `ablation compare` or `ablation diff` prints it."""
        return self._text()

    def __getattr__(self, name: str) -> Any:
        # Copies and notebooks look for attributes of the object itself.
        if name.startswith("_") or name in ("row", "text"):
            raise AttributeError(name)
        if name in COMPARISON_COLUMNS and "row" not in self.__dict__ and self._comparison is not None:
            return plain(getattr(self._comparison, name))
        if name in self.row:
            return self.row[name]
        raise AttributeError(f"a verdict has no attribute {name!r}; choose from {', '.join(self.row)}")

    def __getstate__(self) -> dict[str, Any]:
        return {"row": self.row, "text": self.text}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Verdict) and (self.row, self.text) == (other.row, other.text)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Verdict(row={self.row!r}, text={self.text!r})"

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return verdict_html(self.row)


@dataclass(frozen=True)
class Leaderboard:
    """Several systems and the verdicts on them, as `ablation compare A B C` prints them."""

    standings: pd.DataFrame  # of three or more systems, the best first: system, mean, low, high, groups
    comparisons: pd.DataFrame  # a row per comparison, with the keys of `Verdict.row`
    text: str  # what `ablation compare` prints
    notes: list[str]

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return str(self.standings.to_html(index=False))


class Results:
    """A results folder, read as data frames; `study=None` means all studies. Close it after use, or use `with`."""

    def __init__(self, results: str | Path = "results") -> None:
        """Open the database and update it if necessary. Raises TrackerError if the database cannot be updated."""
        self.folder = Path(results)
        self._store = Store(load_or_collect(self.folder, strict=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._store.close()

    @property
    def studies(self) -> list[str]:
        """Names of the studies."""
        return self._store.studies()

    def verdicts(self, study: str | None = None) -> pd.DataFrame:
        """Return a row for each comparison, with the columns of `ablation verdicts --csv`."""
        check_study(self._store, "verdicts", study)
        return comparison_table(judge_studies(self._store, study))

    def metrics(self, study: str | None = None) -> pd.DataFrame:
        """Return the final metrics of runs that succeeded, with the columns study, variant, seed, metric and value."""
        return self._view("results", study)

    def items(self, study: str | None = None) -> pd.DataFrame:
        """Return the items of runs that succeeded.

        The columns are study, variant, seed, subset, protocol, name (of the value), item, value and cluster.
        """
        columns = "study, variant, seed, subset, protocol, name, item, value, cluster"
        return self._view(f"(SELECT {columns} FROM finals JOIN items USING (key))", study)

    def curves(self, study: str | None = None) -> pd.DataFrame:
        """Return the training metrics, with the columns study, variant, seed, stage, step, metric and value."""
        return self._view("curves", study)

    def runs(self, study: str | None = None) -> pd.DataFrame:
        """Return all runs, with the columns study, variant, seed, state, reason (of a failure) and wall_s (seconds)."""
        return self._view("runs", study)

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> pd.DataFrame:
        """Return the rows of an SQL query as a pandas frame; `parameters` are the values of its `?`."""
        return self._store.sql(query, parameters)

    def arrow(self, query: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """Return what `sql` returns as an Arrow table, which Polars and DuckDB read without a copy."""
        return self._store.arrow(query, parameters)

    def forest(
        self, study: str, *, against: Literal["parent", "root"] = "parent", order: Literal["tree", "effect"] = "tree"
    ) -> Any:
        """Draw the forest plot of a study, as `ablation figures` does, and return its matplotlib axes.

        Raises:
            TrackerError: matplotlib is not installed, or nothing is compared.
        """
        need("matplotlib", "a forest plot")
        from ablation.show.figures import forest

        check_study(self._store, "forest", study)
        [axes] = forest(self._store, study, against, order).axes
        return axes

    def diff(self, a: str, b: str, study: str | None = None) -> Verdict:
        """Return the effect of variant `b` relative to `a`; `row["changes"]` lists the settings that differ.

        Raises ConfigError if no study, or more than one, has both variants, or if `a` and `b` are equal.
        """
        having = studies_with(self._store, study, a, b)
        if len(having) != 1 or a == b:
            among = [name for name in self.studies if study in (None, name)]
            known = [variant.name for name in among for variant in self._store.variants(name, helpers=True)]
            absent = [name for name in (a, b) if name not in known]
            problem = f"are in {len(having)} studies" if having else "are not in the same study"
            problem = "are the same variant" if a == b else problem
            remedy = f"pass study=, one of {', '.join(having)}" if having else "name two variants of one study"
            remedy = "name two different variants" if a == b else remedy
            remedy = suggest(absent[0], known) if absent else remedy
            raise ConfigError(self.folder, f"{a} and {b}", study, problem, remedy)
        measured = measured_pair(self._store, having[0], a, b)
        effect = pair_effect(measured, self._store.meta()["scale"], a, b)
        row = {**(effect.effect or {}), "changes": plain(effect.changes)}
        return Verdict(lambda: row, lambda: "\n".join([*effect.changed, *effect.lines]))

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
        """Return the minimum detectable effect and the device-hours for each number of seeds and items.

        The arguments are the options of `ablation power`; a single number is treated as a list of one.
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
    """Open a results folder that a grid or an import has written."""
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
    all_at: int | None = None,
    transform: Literal["log"] | None = None,
    errors: Errors = "refuse",
) -> Verdict:
    """Judge the evaluation `b` against the evaluation `a`.

        ablation.compare("runs/base", "runs/new", margin=0.01, direction="max").verdict

    `a` and `b` are each a path (a file, a folder, a pattern, or a list of paths), a frame with the columns item and
    value and optionally seed, subset, cluster and sample, or an array as for `judge`.

    What is compared:
        metric: the metric or, in a table, the column with its values. item: the column that names a table's items.
        filter: an lm-eval filter. tasks: compare only these tasks.
        at: read only files that have this name or are in a folder with this name, such as checkpoint-2000.
        cluster: the lm-eval field that correlated items share, such as a passage.
        pass_at, cons_at, all_at: compare the chance that any, most or all of K samples are right.
        errors: how to treat items that have no value because of an error: refuse, fail (count as 0) or leave-out.
        transform: log compares logarithms, so effect and margin are log ratios (0.05 is about 5%).
        weight: whether tasks or items have equal weight in the effect.
    How it is judged:
        direction: max, min, target:0.5 or {"target": 0.5}. margin: the smallest difference that matters.
        alpha: the significance level. claim: recipe (all seeds) or checkpoints (these runs only).
    Which runs are paired:
        seeds: paired or independent. seed_from: a regular expression whose group matches the seed in a path.
        latest: read only the newest evaluation of a run. without: runs to leave out, such as new:5.
    What may differ:
        allow: prompt, target, task, identical or scale. common_items: leave out items that are missing from any run.
    What is shown:
        names: of the baseline and the candidate. changed_items: how many improved and how many worsened items.

    Raises:
        ConfigError: the files cannot be read or compared; the text names file, key, value and remedy.
    """
    return _judged(
        [_evaluation(a), _evaluation(b)],
        names,
        metric=metric,
        filter=filter,
        tasks=tasks,
        cluster=cluster,
        item=item,
        direction=direction,
        margin=margin,
        alpha=alpha,
        seed_from=seed_from,
        seeds=seeds,
        claim=claim,
        without=without,
        at=at,
        allow=allow,
        common_items=common_items,
        latest=latest,
        weight=weight,
        changed_items=changed_items,
        pass_at=pass_at,
        cons_at=cons_at,
        all_at=all_at,
        transform=transform,
        errors=errors,
    )


def _judged(sides: Sequence[Evaluated], names: Sequence[str] | None, **options: Any) -> Verdict:
    """Judge the second of two evaluations against the first."""
    if names is not None and len(names) != 2:
        remedy = "pass the names of the baseline and the candidate"
        raise ConfigError("compare", "names", names, "is not a pair of names", remedy)
    result = _compared(sides, names, by=(), all_pairs=False, **options)  # which are options of a leaderboard only
    (row,) = result.compared
    if not all(isinstance(side, Values) for side in sides):
        _ = result.notes, row.best, row.worst  # read now, since the files may change before the verdict is shown

    def read_row() -> dict[str, Any]:
        [values] = as_rows(result)
        return {**plain(values), "notes": list(result.notes)}

    return Verdict(read_row, lambda: in_words(result, _WIDTH), row.comparison)


def leaderboard(
    evaluations: Any, *, by: str | Sequence[str] = (), all_pairs: bool = False, **options: Any
) -> Leaderboard:
    """Judge several evaluations, each against the first one by default, and sort them by their means.

        ablation.leaderboard({"base": "runs/base", "wide": "runs/wide", "deep": "runs/deep"}, margin=0.01).standings
        ablation.leaderboard("agents/*/eval_results.json", all_pairs=True).comparisons
        ablation.leaderboard(frame, by="model")

    evaluations: {name: an evaluation as for `compare`}, or paths and patterns; each match is one system.
    by: columns, or settings in the files; each combination of their values is one system.
    all_pairs: compare every pair. The options are those of `compare`; the first of `names` is the baseline.

    Raises:
        ConfigError: the evaluations cannot be read or compared.
    """
    names = options.pop("names", None)
    if by:
        sides: Sequence[Evaluated] = [_evaluation(evaluations)]
    elif isinstance(evaluations, Mapping):
        sides, names = list(map(_evaluation, evaluations.values())), names or list(map(str, evaluations))
    else:
        paths = [evaluations] if isinstance(evaluations, str | Path) else evaluations
        if not all(isinstance(path, str | Path) for path in paths):
            problem, remedy = "are not paths", "pass paths, a dict {name: evaluation}, or one evaluation with by="
            raise ConfigError("leaderboard", "evaluations", None, problem, remedy)
        sides = sides_of(list(map(str, paths)))
    if len(sides) < 2 and not by:
        raise ConfigError("leaderboard", "", None, "needs two evaluations", "name a second evaluation, or pass by=")
    result = _compared(sides, names, by=by, all_pairs=all_pairs, **options)
    standings = pd.DataFrame([asdict(each) for each in result.leaderboard], columns=[f.name for f in fields(Standing)])
    rows = pd.DataFrame(map(plain, as_rows(result)))
    return Leaderboard(standings, rows, in_words(result, _WIDTH), list(result.notes))


def _compared(sides: Sequence[Evaluated], names: Sequence[str] | None, **options: Any) -> ComparisonResult:
    if isinstance(direction := options.get("direction"), Mapping):
        options["direction"] = ",".join(f"{name}:{value}" for name, value in direction.items())
    for name in ("by", "tasks", "without", "allow"):
        options[name] = _several(options.get(name, ()))
    return compare_evaluations(sides, names, **options)


def _several(given: str | Sequence[str]) -> Sequence[str]:
    return (given,) if isinstance(given, str) else given


def judge(
    child: Any,
    parent: Any,
    items: Sequence[Any] | None = None,
    *,
    clusters: Sequence[Any] | None = None,
    **options: Any,
) -> Verdict:
    """Judge the array `child` against the array `parent`, which has the same seeds and items.

    The shape of both is [seeds, items], [items] for one seed, or [seeds, items, samples]. items: names of the items
    (default: numbers). clusters: a label for each item, the same for correlated items. The options are those of
    `compare`; with `seeds="independent"`, the arrays may have different numbers of runs. Raises ConfigError if the
    shapes differ or the arrays cannot be compared.
    """
    if unknown := options.keys() - (signature(compare).parameters.keys() - {"a", "b"}):
        raise TypeError(f"judge() got an unexpected keyword argument {min(unknown)!r}")
    shapes = [np.shape(group) if np.ndim(group) > 1 else (1, *np.shape(group)) for group in (child, parent)]
    apart = options.get("seeds") == "independent"
    if shapes[0][apart:] != shapes[1][apart:] or np.ndim(child) != np.ndim(parent):
        problem, remedy = (
            f"differs from parent.shape = {np.shape(parent)}",
            "pass arrays with the same seeds and items; if only the number of runs differs, pass seeds='independent'",
        )
        raise ConfigError("judge", "child.shape", np.shape(child), problem, remedy)
    sides = [Values(array, items, clusters) for array in (parent, child)]
    return _judged(sides, options.pop("names", ("parent", "child")), **options)


def _evaluation(given: Any) -> Evaluated:
    """Convert paths, an array or a frame to the form that `compare_evaluations` takes."""
    if isinstance(given, str | Path):
        return expand([str(given)])
    if isinstance(given, list | tuple) and given and all(isinstance(path, str | Path) for path in given):
        return expand(map(str, given))
    if isinstance(given, pd.Series):
        return Values(given.to_numpy(), given.index)
    if isinstance(given, pd.DataFrame):
        given = pa.Table.from_pandas(given, preserve_index=False)
    if hasattr(given, "__arrow_c_stream__"):  # which frames of Arrow, Polars, DuckDB, ... have
        return Frame(pa.table(given))
    return Values(given)
