"""Evaluation files: finds a file's reader, and reads evaluations as imported runs.

    reader_of(path) -> module            for `compare`: its `sheets(path, wanted)`
    read(path, problem) -> runs          for `import`, to add items to what another program logged for a run

A run is a folder with samples of lm-evaluation-harness, or a log, or a plain table, or one seed of a table with seeds;
it is named by its place. Items have the protocol `evaluation` and the task as subset, a value for each metric.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pyarrow as pa

from ablation.config.formats import formats_of
from ablation.contract.errors import ConfigError
from ablation.contract.reading import one_line
from ablation.readers import inspect_ai, lm_eval, table
from ablation.readers.run import EVALUATION, ImportedRun, Problem, name_below
from ablation.readers.sheet import Sheet, Wanted, sheet_items
from ablation.readers.walk import files_below

READERS: tuple[ModuleType, ...] = tuple(import_module(f"ablation.readers.{name}") for name in formats_of("compare"))
IN_FOLDERS = tuple(pattern for reader in READERS if reader is not table for pattern in reader.FILES)
_Sheets = dict[tuple[str, str], Sheet]  # of one run, by subset and value
_LOGS = (*lm_eval.FILES, *inspect_ai.FILES)


def reader_of(path: Path) -> ModuleType:
    """Return the reader of a file. Raises ConfigError where it has none."""
    try:
        for reader in READERS:
            if reader.recognises(path):
                return reader
    except OSError as error:
        raise ConfigError(path, "", None, f"cannot be read ({error.strerror or error})", "make it readable") from None
    if re.fullmatch(r"(.*_)?results_.*\.json|.*_\d{4}-\d\d-\d\dT[\d.-]+\.json", path.name):
        problem, remedy = "holds means and no items", "evaluate with --log_samples, and give the samples_*.jsonl"
        raise ConfigError(path, "", None, problem, remedy)
    *titles, last = (each.title for each in formats_of("compare").values())
    raise ConfigError(path, "", None, "is not a readable evaluation", f"give {', '.join(titles)}, or {last}")


def read(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs at or below a path. Raises ConfigError if there is none, or an invalid one."""
    root = path if path.is_dir() else path.parent
    runs: dict[tuple[Path, int | None], _Sheets] = {}
    for source, file in _newest(_files(path, problem), problem):
        for value, sheet in _values(file, problem):
            runs.setdefault((source, sheet.seed), {})[sheet.subset, value] = sheet
    for (source, seed), sheets in runs.items():
        name = name_below(root, source.with_suffix("") if source.is_file() else source)
        asked = {subset: sheet.asked["prompt"] for (subset, _), sheet in sheets.items() if "prompt" in sheet.asked}
        yield ImportedRun(
            source=source,
            id=f"seed {seed}" if seed is not None else EVALUATION,
            name=name if seed is None else f"{name}/seed_{seed}",
            seed=seed,
            items=_items(sheets),
            prompts={subset: hashlib.sha256(digests.tobytes()).hexdigest() for subset, digests in asked.items()},
        )


def _values(file: Path, problem: Problem) -> Iterator[tuple[str, Sheet]]:
    reader = reader_of(file)
    if reader is lm_eval:
        yield from lm_eval.every_value(file, problem)
    else:
        yield from ((sheet.metric, sheet) for sheet in reader.sheets(file, Wanted()))


def _files(path: Path, problem: Problem) -> list[Path]:
    """Return the files in the order of their dates, which are in lm-eval's names."""
    if path.is_file():
        return [path]
    files = files_below(path, [*_LOGS, *table.FILES], problem)
    found = [file for file in files if any(map(file.match, _LOGS)) or _is_table(file, problem)]
    if not found:
        remedy = f"name a folder with {', '.join(_LOGS)}, or with tables ({', '.join(table.FILES)}) of item and value"
        raise ConfigError(path, "", None, "no evaluation below this folder", remedy)
    return found


def _newest(files: Sequence[Path], problem: Problem) -> list[tuple[Path, Path]]:
    """Return (source of the run, file): for lm-eval its folder, in which the last file of a task counts."""
    found: dict[tuple[Path, str], Path] = {}
    for file in files:
        source, task = (file.parent, lm_eval.task_of(file)) if reader_of(file) is lm_eval else (file, "")
        if (other := found.get((source, task))) is not None:
            problem(f"{other}: {task} was evaluated again, in {file.name}, which counts")
        found[source, task] = file
    return [(source, file) for (source, _), file in found.items()]


def _is_table(file: Path, problem: Problem) -> bool:
    """Whether a table in a folder holds items; if not, the reason is reported."""
    try:
        if reader_of(file) is table:
            table.columns_of(file)
    except ConfigError as error:
        problem(one_line(f"{file}: {error.problem}: left out", 400))
        return False
    return True


def _items(sheets: _Sheets) -> pa.Table:
    """Return the items. The target is part of an item's name: with another target it is another item."""
    clustered = any(sheet.clusters for sheet in sheets.values())
    tables = []
    for (_, value), sheet in sheets.items():
        wanted = sheet.asked.get("target")
        suffixes = None if wanted is None else [f".{digest:016x}" for digest in wanted.tolist()]
        tables.append(sheet_items(sheet, EVALUATION, value, clustered=clustered, suffixes=suffixes))
    return pa.concat_tables(tables)
