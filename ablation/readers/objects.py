"""Reader of folders with a JSON file for each item, one object each: `<item>.json`, or `<item>/result.json`.

Each object is read like a row of a plain table (`table`), with the same usual names of item and value; `{a: {b: 1}}`
has the column `a.b`. `--item file` names each item by its file or, for `<item>/result.json`, by its folder.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ablation.config.dotted import leaves
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.readers import table
from ablation.readers.columns import ITEM, VALUE, named
from ablation.readers.run import as_number
from ablation.readers.sheet import Sheet, Wanted, read_evaluation
from ablation.readers.walk import files_below

_NAME = "file"
_LARGE = 1 << 20  # bytes: a trajectory, say


def recognises(path: Path) -> bool:
    """Return whether a path is a folder with a JSON file for each of several items."""
    return path.is_dir() and bool(_inside(path))


def folder_of(path: Path) -> Path | None:
    """Return the folder in which a JSON file may be one item among several; None if no folder fits."""
    above = (path.parent, path.parent.parent) if path.suffix == ".json" else ()
    return next((folder for folder in above if path in _inside(folder)), None)


def folders(files: Iterable[Path]) -> dict[Path, list[Path]]:
    """Return {folder: JSON files} for folders with several of them, directly or with the same name in subfolders."""
    objects = [file for file in files if file.suffix == ".json"]
    alike = Counter((file.parent.parent, file.name) for file in objects)
    beside = Counter(file.parent for file in objects)
    found: dict[Path, list[Path]] = {}
    for file in objects:
        above = alike[file.parent.parent, file.name] > beside[file.parent]
        found.setdefault(file.parent.parent if above else file.parent, []).append(file)
    return {folder: inside for folder, inside in found.items() if len(inside) > 1}


def sheets(path: Path, wanted: Wanted) -> Iterator[Sheet]:
    """Yield, as `Sheet`s, the values in a folder with one JSON file per item.

    Raises ConfigError if a file is not an object or lacks the item, if keys are ambiguous, or if a value is invalid.
    """
    rows: dict[Path, dict[str, Any]] = {}
    for file in _chosen(path, wanted):
        row = read_evaluation(file)
        if not isinstance(row, dict):
            raise ConfigError(file, "", None, "is not a JSON object", f"move it out of {path}")
        rows[file] = {_NAME: file.stem if file.parent == path else file.parent.name} | dict(leaves(row))
    head = list(dict.fromkeys(key for row in rows.values() for key in row))
    item = wanted.item or named(path, head, ITEM, "--item")
    value = wanted.metric or named(path, head, VALUE, "--metric")
    if item is None or value is None:
        numeric = [key for key in head if any(as_number(row.get(key)) is not None for row in rows.values())]
        numeric.sort(key=lambda key: key.rpartition(".")[2].lower() not in VALUE)
        lacking = ["the item"] * (item is None) + ["the value"] * (value is None)
        options = [f"--item {_NAME} (to use the names of the files) or --item KEY"] * (item is None)
        options += [f"--metric {numeric[0] if numeric else 'KEY'} or another key"] * (value is None)
        keys = one_line(", ".join(key for key in head if key != _NAME), 200)
        problem = f"holds {len(rows)} JSON objects, but none of their keys ({keys}) is a usual name of "
        raise ConfigError(path, "", None, problem + " or ".join(lacking), f"pass {', and '.join(options)}")
    if lacks := next((file for file, row in rows.items() if row.get(item) in (None, "")), None):
        raise ConfigError(lacks, item, None, "is missing", f"add it, or move the file out of {path}")
    columns = {key: [row.get(key) for row in rows.values()] for key in head}
    yield from table.sheets_of(path, wanted, head, columns, lambda: iter(rows.values()))


def _inside(path: Path) -> list[Path]:
    return folders(files_below(path, ["*.json"], lambda _: None, depth=2)).get(path, [])


def _chosen(path: Path, wanted: Wanted) -> list[Path]:
    """Return the files directly in a folder, or the files of one name in its subfolders.

    If the folder has several such kinds of files, only the kind that has values counts. Raises ConfigError if several
    kinds have values.
    """
    kinds: dict[str, list[Path]] = {}
    for file in _inside(path):
        kinds.setdefault("*.json" if file.parent == path else f"*/{file.name}", []).append(file)
    valued = [
        kind for kind, files in kinds.items() if len(kinds) > 1 and any(_has_value(file, wanted) for file in files)
    ]
    if len(valued) > 1:
        problem = f"holds values in several kinds of files ({' and '.join(valued)})"
        raise ConfigError(path, "", None, problem, "move all but one kind out of the folder")
    return kinds[valued[0]] if valued else [file for files in kinds.values() for file in files]


def _has_value(file: Path, wanted: Wanted) -> bool:
    if file.stat().st_size > _LARGE:
        return False
    row = read_evaluation(file)
    keys = {key.lower() for key in row} if isinstance(row, dict) else set()
    return wanted.metric in row if wanted.metric else not keys.isdisjoint(VALUE)
