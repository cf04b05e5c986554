"""Reader of lmms-eval's samples: <date>_samples_<task>.jsonl, with <date>_results.json next to it.

An item is a document, named by its number `doc_id`, because `doc_hash` covers how Python prints an image, which differs
from run to run. A metric is a number in the row, or a map with a number `score`. Rows do not name their filter.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ablation.readers.sheet import Facts, ItemText, Sample, Sheet, Wanted, json_lines, read_beside, sample_sheets
from ablation.readers.tabular import first_row

_NAME = re.compile(r"(?P<date>.+?)_samples_(?P<task>.+)\.jsonl")
_OWN = ("doc_id", "doc_hash", "prompt_hash", "target_hash", "target", "filtered_resps", "resps", "input", "success")


def recognises(path: Path) -> bool:
    """Return whether the first row of a file has the keys that lmms-eval writes for each document."""
    return {"doc_id", "doc_hash", "input", "filtered_resps"} <= first_row(path).keys()


def sheets(path: Path, wanted: Wanted) -> Iterator[Sheet]:
    """Yield the file's values as a `Sheet`. Raises ConfigError if the file is invalid or lacks what `wanted` names."""
    named = _NAME.fullmatch(path.name)
    date, task = (named["date"], named["task"]) if named else ("", path.stem)
    results = read_beside(path.with_name(f"{date}_results.json"), {})

    def facts(subset: str, metric: str) -> Facts:
        settings = {key: results[key] for key in ("model_name", "model_source") if results.get(key)}
        larger = results.get("higher_is_better", {}).get(subset, {}).get(metric)
        return Facts(tool="lmms-eval", larger_is_better=larger, settings=settings)

    read = partial(json_lines, path, partial(_sample, task))
    yield from sample_sheets(path, wanted, read(), facts, read)


def _sample(task: str, row: dict[str, Any]) -> Sample:
    values = {name: value for name, value in row.items() if name not in _OWN}
    for name, value in values.items():
        if isinstance(value, dict) and isinstance(value.get("score"), int | float):
            values[name] = value["score"]
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    text = ItemText(str(row["input"]), str(row["target"]), " | ".join(map(str, row["filtered_resps"])))
    return Sample(task, str(row["doc_id"]), numbers | values, text)
