"""Reader of SWE-bench: reports of runs, folders with a report for each instance, and results of SWE-bench Pro.

    <model>.<run>.json                       `resolved_ids`, `unresolved_ids`, `error_ids`, `empty_patch_ids`; since
                                             SWE-bench 5 also `infra_failure_ids`, which repeats ids of the others
    <run>/<model>/<instance>/report.json     the report of one instance; the folder <model> is the evaluation
    eval_results.json                        SWE-bench Pro: {instance: resolved}, with {instance: reason} for errors
                                             in `infra_errors.json`

An item is an instance. Its value is 1 if it was resolved, and 0 if not, for example because it has no patch. Instances
of one repository form a cluster. An instance with an error or `infra_failure`, or without a report in its folder, has
no value. Any other object {item: true, false or a number} is read like `eval_results.json`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted
from ablation.readers.run import as_number
from ablation.readers.sheet import (
    Facts,
    Sample,
    Sheet,
    Wanted,
    json_start,
    read_beside,
    read_evaluation,
    sample_sheets,
    short,
)

_LISTS = {"resolved_ids": 1.0, "unresolved_ids": 0.0, "empty_patch_ids": 0.0, "error_ids": None}
_FIRST = re.compile(rb'\s*\{\s*"(?:[^"\\]|\\.)+"\s*:\s*(?P<value>true|false|[-\d.])')
_OF_INSTANCE = re.compile(rb'\s*\{\s*"(?:[^"\\]|\\.)+"\s*:\s*\{\s*"patch_is_None"')
_NAME = re.compile(r"(?:instance_)?(?P<repository>[\w.-]+?__[\w.-]+?)-(?:\d+|[0-9a-f]{7,}.*)")
_AGAIN = "evaluate the instance again"
_FEWEST = 20  # numbers in an object of items; a summary of metrics has fewer


def recognises(path: Path) -> bool:
    """Return whether a path holds results of SWE-bench, or a JSON object of booleans or of at least 20 numbers."""
    if path.is_dir():
        return any(map(is_part, path.glob("*/report.json")))
    start = json_start(path)
    if b'"total_instances"' in start and b'"resolved_instances"' in start:
        return True
    first = _FIRST.match(start)
    if first is None or first["value"] in (b"true", b"false"):
        return first is not None
    try:
        values = json.loads(path.read_bytes()).values()
    except (ValueError, RecursionError):
        return False
    return len(values) >= _FEWEST and all(isinstance(value, int | float) for value in values)


def is_part(path: Path) -> bool:
    """Return whether a file is the report of one instance; the instance's evaluation is two folders above."""
    return path.name == "report.json" and _OF_INSTANCE.match(json_start(path)) is not None


def whole(path: Path) -> Path:
    """Return the folder of the evaluation that the report of one instance belongs to."""
    return path.parent.parent


def sheets(path: Path, wanted: Wanted) -> Iterator[Sheet]:
    """Yield the values of an evaluation as a `Sheet`.

    Raises ConfigError if an instance has two outcomes, a count does not match its list, or the metric does not exist.
    """
    outcomes = dict(_outcomes(path))
    named = {item: match["repository"] for item in outcomes if (match := _NAME.fullmatch(item))}
    repositories = len(set(named.values())) if len(named) == len(outcomes) else 0
    clustered = f"instances of the same repository form a cluster; there are {repositories} clusters"
    remarks = (clustered,) if repositories > 1 else ()

    def samples() -> Iterator[Sample]:
        for item, outcome in outcomes.items():
            error = outcome if isinstance(outcome, str) else None
            values = {} if error is not None else {"resolved" if named else "value": as_number(outcome)}
            cluster = named[item] if repositories > 1 else None
            yield Sample("all", item, values, error=error, cluster=cluster)

    tool = "SWE-bench" if named else ""
    facts = Facts(tool=tool, larger_is_better=True if named else None, remarks=remarks)
    yield from sample_sheets(path, wanted, samples(), lambda *_: facts)


def _outcomes(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield (instance, outcome); the outcome is whether the instance is resolved, or why it was not judged."""
    if path.is_dir():
        for folder in sorted(each for each in path.iterdir() if each.is_dir()):
            report = folder / "report.json"
            yield from _of_instance(report) if report.is_file() else [(folder.name, "the instance has no report.json")]
        return
    content = read_evaluation(path)
    if "resolved_instances" in content:
        yield from _of_report(path, content)
        return
    for item, value in content.items():
        if not isinstance(value, int | float):
            remedy = "write true, false or a number for each item"
            raise ConfigError(path, short(item), value, "is not true, false or a number", remedy)
    errors = read_beside(path.with_name("infra_errors.json"), {})
    if both := sorted(errors.keys() & content.keys()):
        problem, remedy = "is also in infra_errors.json", "remove it from one of the two files"
        raise ConfigError(path, short(both[0]), content[both[0]], problem, remedy)
    yield from content.items()
    yield from ((item, f"infrastructure: {reason}") for item, reason in errors.items())


def _of_instance(report: Path) -> Iterator[tuple[str, Any]]:
    content = read_evaluation(report)
    for item, record in content.items():
        if not isinstance(record, Mapping) or not isinstance(record.get("resolved"), bool):
            raise ConfigError(report, short(item), None, "the key resolved is not true or false", _AGAIN)
        broken = f"infrastructure: {record.get('infra_failure_reason')}" if record.get("infra_failure") else None
        yield item, broken or record["resolved"]


def _of_report(path: Path, content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    found: dict[str, str] = {}
    broken, why = set(content.get("infra_failure_ids", ())), content.get("failure_reasons", {})
    for name, value in _LISTS.items():
        ids, count = content.get(name), content.get(name.replace("_ids", "_instances"))
        if not isinstance(ids, list):
            raise ConfigError(path, name, None, "is missing", "evaluate again with SWE-bench 2.0 or later")
        if len(ids) != count:
            problem = f"lists {counted(len(ids), 'instance')}, but the report counts {count}"
            raise ConfigError(path, name, None, problem, "evaluate again")
        for item in ids:
            if str(item) in found:
                problem = "occurs twice" if found[str(item)] == name else f"is also in {found[str(item)]}"
                raise ConfigError(path, name, short(str(item)), problem, _AGAIN)
            found[str(item)] = name
            error = "the harness has no result, because the evaluation ended with an error" if value is None else None
            yield str(item), f"infrastructure: {why.get(item, 'infra_failure')}" if item in broken else error or value
