"""Samples of lmms-eval: <date>_samples_<task>.jsonl, with <date>_results.json next to it.

An item is a document, by its number `doc_id`: `doc_hash` covers how Python prints an image, which differs from run to
run. A metric is a number of the row, or a map with a number `score`. Rows do not name their filter.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_json
from ablation.readers.lm_eval import first_row
from ablation.readers.sample_lines import Sample, sheets_of
from ablation.readers.sheet import Facts, ItemText, Sheet, Wanted

FILES = ("*_samples_*.jsonl",)
_NAME = re.compile(r"(?P<date>.+?)_samples_(?P<task>.+)\.jsonl")
_OWN = ("doc_id", "doc_hash", "prompt_hash", "target_hash", "target", "filtered_resps", "resps", "input", "success")


def recognises(path: Path) -> bool:
    """Whether the first row has the keys that lmms-eval leaves of each document."""
    row = first_row(path) if path.suffix == ".jsonl" else None
    return isinstance(row, dict) and {"doc_id", "doc_hash", "input", "filtered_resps"} <= row.keys()


def sheets(path: Path, wanted: Wanted) -> Iterator[Sheet]:
    """Read one file. Raises ConfigError as `sample_lines.sheets_of`."""
    yield from sheets_of(path, wanted, _sample, _facts)


def _sample(path: Path, row: dict[str, Any]) -> Sample:
    values = {name: value["score"] if _scored(value) else value for name, value in row.items() if name not in _OWN}
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    words = ItemText(str(row["input"]), str(row["target"]), " | ".join(map(str, row["filtered_resps"])))
    return Sample(_named(path)[1], str(row["doc_id"]), numbers | values, words)


def _scored(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("score"), int | float)


def _named(path: Path) -> tuple[str, str]:
    """Date and task, from the file's name."""
    found = _NAME.fullmatch(path.name)
    return (found["date"], found["task"]) if found else ("", path.stem)


def _facts(path: Path, task: str, metric: str, metrics: tuple[str, ...]) -> Facts:
    beside = path.with_name(f"{_named(path)[0]}_results.json")
    try:
        results = read_json(beside) if beside.is_file() else {}
    except (OSError, ValueError) as error:
        raise ConfigError(beside, "", None, f"cannot be read ({error})", "copy it again, or remove it") from None
    settings = {key: results[key] for key in ("model_name", "model_source") if results.get(key)}
    larger = results.get("higher_is_better", {}).get(task, {}).get(metric)
    return Facts(tool="lmms-eval", larger_is_better=larger, settings=settings, metrics=metrics)
