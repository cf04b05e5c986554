"""Evaluation files as imported runs, so that the items of a run stand beside what another program logged of it.

A run is a folder with samples of lm-evaluation-harness, or a plain table, or one seed of a table with seeds; it is
named by its place. Items have the protocol `evaluation` and the task as subset, a value for each metric.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from ablation.contract.errors import ConfigError
from ablation.contract.reading import one_line
from ablation.evaluations import lm_eval, plain
from ablation.evaluations.arms import reader_of
from ablation.evaluations.sheet import Sheet, Wanted
from ablation.imports.run import EVALUATION, ITEM_ROWS, METRIC_ROWS, ImportedRun, Problem, name_below

_LOGS = ("samples_*.jsonl", "*.eval")
_TABLES = ("*.csv", "*.tsv", "*.jsonl", "*.parquet")


@dataclass
class _Run:
    source: Path
    seed: int | None
    sheets: dict[tuple[str, str], Sheet] = field(default_factory=dict)  # by subset and value


def read(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs at or below a path. Raises ConfigError where there is none, or one that makes no sense."""
    root = path if path.is_dir() else path.parent
    runs: dict[tuple[Path, int | None], _Run] = {}
    for source, file in _newest(_files(path, problem), problem):
        for value, sheet in every_value(file, problem):
            run = runs.setdefault((source, sheet.seed), _Run(source, sheet.seed))
            run.sheets[sheet.subset, value] = sheet
    for run in runs.values():
        name = name_below(root, run.source.with_suffix("") if run.source.is_file() else run.source)
        yield ImportedRun(
            source=run.source,
            id=f"seed {run.seed}" if run.seed is not None else EVALUATION,
            name=name if run.seed is None else f"{name}/seed_{run.seed}",
            config={},
            seed=run.seed,
            state="finished",
            started=None,
            metrics=METRIC_ROWS.empty_table(),
            items=_items(list(run.sheets.items())),
            prompts=_prompts(run),
        )


def _prompts(run: _Run) -> dict[str, str]:
    asked = {subset: sheet.asked["prompt"] for (subset, _), sheet in run.sheets.items() if "prompt" in sheet.asked}
    return {subset: hashlib.sha256(digests.tobytes()).hexdigest() for subset, digests in asked.items()}


def _files(path: Path, problem: Problem) -> list[Path]:
    """Return the files in the order of their dates, which are in lm-eval's names."""
    if path.is_file():
        return [path]
    logs = {file for pattern in _LOGS for file in path.rglob(pattern)}
    tables = {file for pattern in _TABLES for file in path.rglob(pattern)} - logs
    found = sorted(logs | {file for file in tables if _is_table(file, problem)})
    if not found:
        remedy = f"name a folder with {', '.join(_LOGS)}, or with tables ({', '.join(_TABLES)}) of item and value"
        raise ConfigError(path, "", None, "no evaluation below this folder", remedy)
    return found


def _newest(files: Sequence[Path], problem: Problem) -> list[tuple[Path, Path]]:
    """Return (source of the run, file): of lm-eval its folder, in which the last file of a task counts."""
    found: dict[tuple[Path, str], Path] = {}
    for file in files:
        source, task = (file.parent, lm_eval.task_of(file)) if reader_of(file) is lm_eval else (file, "")
        if (other := found.get((source, task))) is not None:
            problem(f"{other}: {task} was evaluated again, in {file.name}, which counts")
        found[source, task] = file
    return [(source, file) for (source, _), file in found.items()]


def _is_table(file: Path, problem: Problem) -> bool:
    """Whether a table that lies in a folder is one of items; what it is instead is told."""
    try:
        if reader_of(file) is plain:
            plain.columns_of(file)
    except ConfigError as error:
        problem(one_line(f"{file}: {error.problem}: left out", 400))
        return False
    return True


def every_value(file: Path, problem: Problem) -> Iterator[tuple[str, Sheet]]:
    """Yield (name of the value, sheet) for every metric and filter of a file."""
    reader = reader_of(file)
    first = list(reader.read(file, Wanted()))
    yield from ((_name(sheet), sheet) for sheet in first)
    for sheet in first[:1] if reader is lm_eval else ():
        for metric in sheet.facts.metrics:
            for chosen in sheet.facts.filters:
                if (metric, chosen) == (sheet.metric, sheet.filter):
                    continue
                try:
                    yield from ((_name(each), each) for each in reader.read(file, Wanted(metric, chosen)))
                except lm_eval.NotPerItem as error:
                    problem(one_line(f"{file}: {metric} is left out: {error.problem}", 400))


def _name(sheet: Sheet) -> str:
    return sheet.metric if len(sheet.facts.filters) < 2 else f"{sheet.metric},{sheet.filter}"


def _items(sheets: Sequence[tuple[tuple[str, str], Sheet]]) -> pa.Table:
    """Return the items. The wanted answer is a part of an item's name: with another one it is another item."""
    tables = []
    clustered = any(sheet.clusters for _, sheet in sheets)
    for (subset, value), sheet in sheets:
        count = len(sheet.items)
        own = [str(item) for item in sheet.items]
        wanted = sheet.asked.get("target")
        answers = [""] * count if wanted is None else [f".{digest:016x}" for digest in wanted.tolist()]
        names = [f"{item}{answer}" for item, answer in zip(own, answers, strict=True)]
        clusters = [sheet.clusters.get(item, item) for item in own] if clustered else [None] * count
        columns = [names, [subset] * count, [EVALUATION] * count, [value] * count, sheet.values.tolist(), clusters]
        tables.append(pa.table(columns, schema=ITEM_ROWS))
    return pa.concat_tables(tables)
