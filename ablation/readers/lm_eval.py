"""Reader of lm-evaluation-harness (0.4.3 to 0.4.13): samples_<task>_<date>.jsonl, and results_<date>.json beside it.

    sheets(path, wanted)        one metric and filter of one file, for `compare`
    every_value(path, problem)  all metrics and filters of one file
    read(path, problem, old)    all tasks below a path as one run, for the key `collect` of a command

A row is one document under one filter. `doc_hash`, `prompt_hash` and `target_hash` identify the document, its prompt
and its target. The results file has a digest of all three over all rows, `task_hashes`, which is checked here.
"""

import hashlib
import json
import math
import re
from collections.abc import Container, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted
from ablation.readers import tabular
from ablation.readers.run import ImportedRun, Problem
from ablation.readers.sheet import (
    CUT_OFF,
    Facts,
    ItemText,
    Sheet,
    Wanted,
    check_values,
    read_beside,
    sheet_items,
    short,
)
from ablation.readers.walk import files_of, is_aside

_NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)\.jsonl")
_OF_PROMPT = ("chat_template_sha", "system_instruction", "fewshot_as_multiturn")
_SETTINGS = ("model", "model_args", "gen_kwargs", "limit", *_OF_PROMPT)
_HASHES = ("doc_hash", "prompt_hash", "target_hash")
_LONG = 100  # characters of a passage that several items may share


class NotPerItem(ConfigError):
    """Raised for a metric that lm-eval computes from all items at once."""


def recognises(path: Path) -> bool:
    """Return whether the first row of a file has the keys that lm-eval writes for each document."""
    row = tabular.first_row(path)
    return {"doc_id", "arguments"} <= row.keys() and ("filter" in row or isinstance(row["arguments"], dict))


def task_of(path: Path) -> str:
    """Return the task that the name of a file of samples states."""
    named = _NAME.fullmatch(path.name)
    return named["task"] if named else path.stem.removeprefix("samples_")


def sheets(path: Path, wanted: Wanted) -> Iterator[Sheet]:
    """Yield the values of a file of samples as a `Sheet`, for the wanted metric and filter, by default the first ones.

    Raises ConfigError if the metric or the filter does not exist, a value is not a finite number, an item occurs more
    often than others, or the results were computed from other rows.
    """
    row = tabular.first_row(path)
    if "doc_hash" not in row:
        raise ConfigError(path, "doc_hash", None, "is missing", "evaluate again with lm-eval 0.4.3 or later")
    task, named = task_of(path), _NAME.fullmatch(path.name)
    if not wanted.wants(task):
        return
    results = _results(path.parent, named["date"]) if named else {}
    numbers = [name for name, value in row.items() if isinstance(value, int | float) and name not in ("doc_id", "idx")]
    metrics = tuple(row.get("metrics") or numbers)  # samples need not list them
    metric = _chosen(path, "metric", wanted.metric, metrics)
    rows = _rows(path, metric, [name for name in _HASHES if name in row])
    rows["filter"] = _filters(path, rows, metric, results.get("results", {}).get(task, {}), named="filter" in row)
    filters = tuple(dict.fromkeys(rows["filter"]))
    chosen = _chosen(path, "filter", wanted.filter, filters)
    task_hash = results.get("task_hashes", {}).get(task)
    if task_hash and "digest" in rows and rows["digest"] != task_hash:
        problem = "does not match task_hashes in its results file, because rows are missing or were changed"
        raise ConfigError(path, "", None, problem, "copy the file again, or remove the results file")
    keep = np.flatnonzero(rows["filter"] == chosen)
    items, codes, repeats, clusters = _items(path, tuple(rows["doc_hash"][keep]), tuple(rows["doc_id"][keep]))
    shared = ""
    if wanted.cluster is None:
        shared = _shared_text(path, row)
    else:
        row_clusters = _document_digests(path, wanted.cluster, row)[keep]
        clusters = dict(zip(items[codes], map(str, row_clusters.tolist()), strict=True))
    values = rows["value"][keep]

    def raw(at: int) -> Any:
        """Return what the file has in place of a number. Raises NotPerItem if that is a list or a map."""
        text = rows["raw"][keep[at]]
        if text and text[0] in '[{"':
            item = short(rows["doc_hash"][keep[at]])
            problem = f"item {item} has no value, because lm-eval computes this metric from all items at once"
            raise NotPerItem(path, metric, text, problem, "name another metric with --metric")
        return text or float(values[at])

    check_values(path, metric, rows["doc_hash"][keep], values, raw)
    sums = np.bincount(codes, weights=values, minlength=len(items))
    first = np.full(len(items), -1)
    first[codes[::-1]] = keep[::-1]
    asked = {name.removesuffix("_hash"): rows[name][first] for name in _HASHES[1:] if name in rows}
    means = sums / repeats

    def texts(chosen: Sequence[str]) -> dict[str, ItemText]:
        places = items.get_indexer(pd.Index(chosen))
        return _texts(path, {int(first[at]): item for at, item in zip(places, chosen, strict=True) if at >= 0}, metric)

    check_values(path, metric, items, means)
    sheet_facts = _facts(results, task, metric, chosen)
    facts = Facts(task_hash=task_hash, metrics=metrics, filters=filters, repeats=repeats, shared=shared, **sheet_facts)
    yield Sheet(path, task, metric, chosen, items, means, None, asked, clusters, facts, texts)


def _chosen(path: Path, kind: str, wanted: str | None, names: Sequence[str]) -> str:
    """Return the wanted metric or filter, by default the first one. Raises ConfigError if it does not exist."""
    name = wanted or next(iter(names), "")
    if name not in names:
        problem = f"the file has no {kind} of this name"
        raise ConfigError(path, kind, name, problem, f"choose from {', '.join(names)}")
    return name


def every_value(path: Path, problem: Problem) -> Iterator[tuple[str, Sheet]]:
    """Yield (name of the value, sheet) for every metric and filter of a file of samples.

    Metrics that lm-eval computes from all items at once are left out and reported to `problem`.
    """
    first = list(sheets(path, Wanted()))
    yield from ((_value_name(sheet), sheet) for sheet in first)
    for sheet in first:
        for metric in sheet.facts.metrics:
            for chosen in sheet.facts.filters:
                if (metric, chosen) == (sheet.metric, sheet.filter):
                    continue
                try:
                    yield from ((_value_name(each), each) for each in sheets(path, Wanted(metric, chosen)))
                except NotPerItem as error:
                    problem(one_line(f"{path}: {metric} is left out ({error.problem})", 400))


def _value_name(sheet: Sheet) -> str:
    return sheet.metric if len(sheet.facts.filters) < 2 else f"{sheet.metric},{sheet.filter}"


def read(path: Path, problem: Problem, old: Container[Path] = ()) -> Iterator[ImportedRun]:
    """Yield one run with the items of all tasks, metrics and filters below a path.

    If a task was evaluated several times, for example by a restarted command, only its newest file counts. Files in
    `old` are ignored. Raises ConfigError if there are no readable samples.
    """
    files = [file for file in files_of("lm_eval", path, problem) if file == path or file not in old]
    by_date = sorted(files, key=lambda file: file.name.rpartition("_")[2])
    newest = {task_of(file): file for file in by_date}
    if not newest or not all(map(recognises, newest.values())):
        remedy = "run lm_eval with --log_samples and --output_path"
        raise ConfigError(path, "", None, "holds no samples_*.jsonl files of lm-eval", remedy)
    values = (value for _, file in sorted(newest.items()) for value in every_value(file, problem))
    tables = [sheet_items(sheet, "lm_eval", name, clustered=True) for name, sheet in values]
    yield ImportedRun(source=path, id="lm_eval", name=path.name, items=pa.concat_tables(tables))


def _rows(path: Path, metric: str, hashes: list[str]) -> dict[str, Any]:
    """Return {column: array of cells} and, if all rows have all hashes, lm-eval's digest of all rows as `digest`."""
    columns = {"doc_id": "BIGINT", "filter": "VARCHAR", **dict.fromkeys(hashes, "VARCHAR"), metric: "VARCHAR"}
    form = ", ".join(f"{tabular.sql_text(column)}: '{kind}'" for column, kind in columns.items())
    value = tabular.sql_name(metric)
    extra_columns = [f"{tabular.sql_digest(name)} AS {name}" for name in hashes if name != "doc_hash"]
    extra_columns += [f"{' || '.join(_HASHES)} AS line"] if len(hashes) == len(_HASHES) else []
    rows = tabular.query(
        path,
        f"""SELECT doc_id, filter, doc_hash, {"".join(f"{part}, " for part in extra_columns)}
            {tabular.sql_number(value)} AS value,
            CASE WHEN {tabular.sql_number(value)} IS NULL THEN {value} END AS raw
            FROM read_json({{file}}, format = 'newline_delimited', maximum_object_size = {tabular.LARGEST_ROW},
                columns = {{{form}}})""",
    )
    lines = rows.pop("line", None)
    if lines is not None and all(lines):
        rows["digest"] = hashlib.sha256("".join(lines).encode()).hexdigest()
    return rows


def _filters(path: Path, rows: dict[str, Any], metric: str, results: dict[str, Any], *, named: bool) -> Any:
    """Return the filter of each row.

    Rows of lm-eval 0.4.3 to 0.4.6 do not name their filter, so it is taken from the results. Raises ConfigError if
    these rows belong to several filters.
    """
    if named:
        return rows["filter"]
    ids, counts = np.unique(rows["doc_id"], return_counts=True)
    if counts.max() > 1:
        twice = int(ids[counts.argmax()])
        problem = f"doc_id {twice} has {counts.max()} rows, which do not name their filters"
        raise ConfigError(path, "filter", None, problem, "evaluate with lm-eval 0.4.7 or later, or with one filter")
    filters = [key.partition(",")[2] for key in results if key.startswith(f"{metric},")]
    return np.full(len(rows["doc_id"]), filters[0] if len(filters) == 1 else "none", dtype=object)


def _document_digests(path: Path, field: str, row: dict[str, Any]) -> Any:
    """Return digests [rows] of the field `doc.FIELD` of each row's document, in the order of the file."""
    fields = [f"doc.{name}" for name in row.get("doc", {})]
    if field not in fields:
        problem = "the documents have no field of this name"
        remedy = f"choose from {', '.join(fields)}" if fields else "leave out --cluster"
        raise ConfigError(path, "--cluster", field, problem, remedy)
    value = tabular.sql_digest(f"doc->>{tabular.sql_text(field.removeprefix('doc.'))}")
    sql = f"""SELECT {value} AS value FROM read_json({{file}}, format = 'newline_delimited',
              maximum_object_size = {tabular.LARGEST_ROW}, columns = {{doc: 'JSON'}})"""
    return tabular.query(path, sql)["value"]


def _shared_text(path: Path, row: dict[str, Any]) -> str:
    """Return a description of the first field whose long texts are shared by several documents; "" if there is none."""
    document = row.get("doc", {})
    for name in document if isinstance(document, dict) else ():
        if isinstance(document[name], str) and len(document[name]) >= _LONG:
            digests = _document_digests(path, f"doc.{name}", row)
            if (different := len(np.unique(digests))) <= len(digests) / 2:
                return f"doc.{name}, which has only {counted(different, 'different text')}"
    return ""


@lru_cache(maxsize=1)  # the same for every metric and filter of a file
def _items(path: Path, keys: tuple[str, ...], ids: tuple[int, ...]) -> tuple[pd.Index, Any, int, dict[str, str]]:
    """Return the sorted items, the index of each row's item, the number of repeats, and clusters of equal documents.

    A document that occurs several times in the data has a `doc_id` for each occurrence; these are different items of
    one cluster.
    """
    missing = [place for place, key in enumerate(keys) if not key]
    if missing:
        raise ConfigError(path, "doc_hash", None, f"is missing in row {missing[0] + 1}", CUT_OFF)
    rows = pd.DataFrame({"key": keys, "id": ids})
    items = rows.drop_duplicates().sort_values(["key", "id"], ignore_index=True)
    place = items.groupby("key").cumcount()
    items["name"] = items["key"].where(place == 0, items["key"] + "#" + (place + 1).astype(str))
    index = pd.Index(sorted(items["name"]))
    codes = index.get_indexer(rows.merge(items, how="left")["name"])
    counts = np.bincount(codes)
    if counts.min() != counts.max():
        often, seldom = short(index[int(counts.argmax())]), short(index[int(counts.argmin())])
        problem = f"item {often} occurs {counts.max()} times, but item {seldom} occurs {counted(counts.min(), 'time')}"
        raise ConfigError(path, "doc_hash", None, problem, "remove duplicates, or evaluate all items equally often")
    equal = items[items["key"].duplicated(keep=False)]
    return index, codes, int(counts.max()), dict(zip(equal["name"], equal["key"], strict=True))


@lru_cache(maxsize=64)
def _results(folder: Path, date: str) -> dict[str, Any]:
    """Return the results that lm-eval wrote beside samples of this date; {} if the file does not exist."""
    # results_<date>.json; with `--output_path foo.json` it is foo_<date>.json.
    results_file = next((file for file in sorted(folder.glob(f"*_{date}.json")) if not is_aside(file.name)), None)
    results: dict[str, Any] = read_beside(results_file, {}) if results_file else {}
    return results


def _facts(results: dict[str, Any], task: str, metric: str, filter_name: str) -> dict[str, Any]:
    task_results = results.get("results", {}).get(task, {})
    config = results.get("config", {}) | {k: results[k] for k in _SETTINGS if k in results}
    settings = {k: config[k] for k in _SETTINGS if config.get(k) not in (None, "", {})}
    if shots := results.get("n-shot", {}).get(task):
        settings["num_fewshot"] = shots
    version = results.get("versions", {}).get(task)
    return {
        "tool": "lm-eval",
        "version": None if version is None else str(version),
        "reported": _number(task_results.get(f"{metric},{filter_name}")),
        "stderr": _number(task_results.get(f"{metric}_stderr,{filter_name}")),
        "larger_is_better": results.get("higher_is_better", {}).get(task, {}).get(metric),
        "settings": settings,
        "groups": dict(_groups(results, task, f"{metric},{filter_name}")),
    }


def _groups(results: dict[str, Any], task: str, key: str) -> Iterator[tuple[str, tuple[float, tuple[str, ...]]]]:
    """Yield (group, (value of the group, its tasks)) for each group with the task, directly or in an inner group."""
    members = results.get("group_subtasks") or {}

    def tasks_of(name: str, above: tuple[str, ...] = ()) -> list[str]:
        inner = [] if name in above else members.get(name) or []
        return [task for each in inner for task in tasks_of(each, (*above, name))] or [name]

    for group, group_results in (results.get("groups") or {}).items():
        value, tasks = _number(group_results.get(key)), tuple(dict.fromkeys(tasks_of(group)))
        if value is not None and task in tasks:
            yield group, (value, tasks)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None  # lm-eval writes `N/A`


def _texts(path: Path, lines: dict[int, str], metric: str) -> dict[str, ItemText]:
    """Return {item: texts}, read from the file again; `lines` is {index of a row in the file: item}."""
    texts: dict[str, ItemText] = {}
    last = max(lines, default=-1)
    with path.open("rb") as handle:
        for place, line in enumerate(line for line in handle if not line.isspace()):
            if place > last:
                break
            if place not in lines:
                continue
            row = json.loads(line)
            if lines[place].startswith(row.get("doc_hash", "?")):
                texts[lines[place]] = _text(row, metric)
    return texts


def _text(row: dict[str, Any], metric: str) -> ItemText:
    """Return the texts of a row.

    With several choices, the answer is the likeliest one, by log-likelihood per character for acc_norm.
    """
    arguments = [list(argument.values()) for argument in row.get("arguments", {}).values()]
    prompt = str(arguments[0][0]) if arguments and arguments[0] else ""
    responses, target = row.get("filtered_resps", []), str(row.get("target", ""))
    if len(arguments) > 1 and len(responses) == len(arguments):
        choices = [str(argument[1]).strip() if len(argument) > 1 else "" for argument in arguments]
        lengths = [max(len(choice), 1) if metric == "acc_norm" else 1 for choice in choices]
        likelihoods = [_likelihood(answer) / length for answer, length in zip(responses, lengths, strict=True)]
        answer = choices[int(np.argmax(likelihoods))]
        wanted = choices[int(target)] if target.isdigit() and int(target) < len(choices) else target
        return ItemText(prompt, wanted, answer)
    return ItemText(prompt, target, " | ".join(str(answer) for answer in responses))


def _likelihood(answer: Any) -> float:
    try:
        return float(answer[0] if isinstance(answer, list) else answer)
    except (TypeError, ValueError, IndexError):
        return -math.inf
