"""Reader of verl's runs: the JSONL log of the `file` logger, and samples in `validation_data_dir/<step>.jsonl`.

A log has a line `{"step": n, "data": {name: number}}` for each step. A resumed run replaces the log with one that has
only later steps; importing joins these to the steps of an earlier import (`ablation.store.imports.stored`).

Samples have no id, so the hash of input and ground truth identifies the question. Repeats of a question are numbered
and form one cluster. Samples of step n are the subset `step n` of the protocol `validation`. A folder of samples
belongs to the log `<name>.jsonl` if it is, or is in, the folder `<name>` beside the log, or if the log is the only one
there. verl's `rollout_data_dir` looks the same, so of several such folders only the one with `val` in its name counts.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ablation.contract.errors import ConfigError
from ablation.contract.reading import regular
from ablation.readers.run import (
    ImportedRun,
    ItemsLost,
    Numbered,
    Problem,
    as_number,
    as_step,
    item_table,
    metric_table,
    name_below,
    read_settings,
    repeats_as_clusters,
    shortened,
)
from ablation.readers.tabular import json_rows
from ablation.readers.walk import files_below, files_of

_STEP_FILE = re.compile(r"\d+\.jsonl")
_TEXTS = ("input", "output", "gts", "step")


def read(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the run of a log, or the runs of all logs below a folder. Raises ConfigError if there is no log."""
    root = path if path.is_dir() else path.parent
    files = files_of("verl", path, problem)
    named = [file for file in files if not _STEP_FILE.fullmatch(file.name)]
    logs = [file for file in named if _is_log(file)]
    if not logs:
        remedy = "name a file of verl's logger `file`, or a folder of such files"
        raise ConfigError(path, "", None, 'holds no log that begins with a line {"step": ..., "data": {...}}', remedy)
    if others := sorted(file.relative_to(root).as_posix() for file in {*named} - {*logs}):
        problem(f"{root}: files that do not begin with a line of the logger `file` are left out: {shortened(others)}")
    for log in logs:
        alone = sum(other.parent == log.parent for other in logs) == 1
        place = name_below(root, log.with_suffix(""))
        settings = [log.parent / log.stem / ".hydra/config.yaml", log.with_suffix(".yaml"), log.with_suffix(".json")]
        settings += [log.parent / ".hydra/config.yaml", log.parent / "config.yaml"] if alone else []
        yield ImportedRun(
            source=log,
            id=log.stem,
            name=place,
            config=read_settings(settings, problem),
            metrics=metric_table(_logged(log, problem)),
            items=_validation(log, alone=alone, problem=problem),
        )


def _is_log(path: Path) -> bool:
    try:
        with regular(path).open("rb") as file:
            line = json.loads(file.readline(1 << 24))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(line, dict) and isinstance(line.get("data"), dict) and isinstance(line.get("step"), int)


def _lines(path: Path, problem: Problem) -> Iterator[dict[str, Any]]:
    return (row for _, row in json_rows(path, lambda number: problem(f"{path}: line {number} is cut off or damaged")))


def _logged(path: Path, problem: Problem) -> Iterator[tuple[int, str, float]]:
    for line in _lines(path, problem):
        step, data = as_step(line.get("step")), line.get("data")
        if step is None or not isinstance(data, dict):
            problem(f"{path}: a line without step or data is left out")
            continue
        for name, value in data.items():
            if (number := as_number(value)) is not None:
                yield step, name, number


def _validation(log: Path, *, alone: bool, problem: Problem) -> pa.Table | None:
    folders = _sample_folders(log.parent / log.stem, problem)
    if not folders and alone:
        folders = _sample_folders(log.parent, lambda _: None)  # what is left out there has been said of the logs
    named = [folder for folder in folders if "val" in folder.name.lower()]
    chosen = named or [folder for folder in folders if not re.search("rollout|train", folder.name.lower())]
    if len(chosen) > 1:
        shown = ", ".join(str(folder) for folder in chosen)
        what = f"several folders may be the validation_data_dir of this run ({shown}), so none is read"
        problem(f"{log}: {what}; move all but the right one away")
        return None
    files = [file for folder in chosen for file in sorted(folders[folder], key=lambda file: int(file.stem))]
    tables = [table for file in files if (table := _samples(file, problem)) is not None]
    return repeats_as_clusters(pa.concat_tables(tables)) if tables else None


def _sample_folders(place: Path, problem: Problem) -> dict[Path, list[Path]]:
    """Return {folder: files} for folders, at most two levels below a place, whose JSONL files are named by steps."""
    files_by_folder: dict[Path, list[Path]] = {}
    for file in files_below(place, ["*.jsonl"], problem, depth=3) if place.is_dir() else ():
        files_by_folder.setdefault(file.parent, []).append(file)
    return {
        folder: files
        for folder, files in files_by_folder.items()
        if all(_STEP_FILE.fullmatch(file.name) for file in files)
    }


def _samples(path: Path, problem: Problem) -> pa.Table | None:
    """Return the items of a step; None if there are none, or if a line is damaged, because the mean would be wrong."""
    damaged: list[str] = []
    table = item_table(_sample_rows(path, damaged.append))
    if damaged:
        problem(ItemsLost(f"{damaged[0]}, so the samples of this step are left out"))
    return table if table.num_rows and not damaged else None


def _sample_rows(path: Path, problem: Problem) -> Iterator[tuple[str, str, str, str, float]]:
    numbered, subset = Numbered(), f"step {int(path.stem)}"
    for line in _lines(path, problem):
        item = numbered.name([line.get("input"), line.get("gts")], ascii=False)
        for name, value in line.items():
            if name not in _TEXTS and (number := as_number(value)) is not None:
                yield item, subset, "validation", name, number
