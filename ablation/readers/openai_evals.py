"""Reader of OpenAI's evals: the log of `oaieval`, a JSON line with the `spec` of the run and a line for each event.

An item is a sample, named by its `sample_id`. The metrics are the numbers in its events `match` (such as `correct`) and
`metrics`. A sample with an event `error` has no value.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablation.contract.errors import ConfigError
from ablation.readers.run import as_number
from ablation.readers.sheet import REPEATED, Facts, Sample, Sheet, Wanted, intact, sample_sheets, short
from ablation.readers.tabular import first_row, rows_of

_SCORED = ("match", "metrics")


def recognises(path: Path) -> bool:
    """Return whether the first line of a file is the spec of a run of OpenAI's evals."""
    spec = first_row(path).get("spec")
    return isinstance(spec, dict) and {"eval_name", "completion_fns", "run_id"} <= spec.keys()


def sheets(path: Path, wanted: Wanted) -> Iterator[Sheet]:
    """Yield the log's values as a `Sheet`. Raises ConfigError if the log is invalid or lacks what `wanted` names."""
    values: dict[str, dict[str, Any]] = {}
    errors: dict[str, str] = {}
    spec: dict[str, Any] = {}
    for line, row in rows_of(path):
        with intact(path, f"line {line}"):
            spec |= row.get("spec", {})
            if row.get("type") in _SCORED:
                scored = values.setdefault(str(row["sample_id"]), {})
                found = {key: number for key, value in row["data"].items() if (number := as_number(value)) is not None}
                if twice := scored.keys() & found:
                    problem = f"item {short(str(row['sample_id']))} has two values of {min(twice)}"
                    raise ConfigError(path, f"line {line}", None, problem, REPEATED)
                scored |= found
            elif row.get("type") == "error":
                errors[str(row["sample_id"])] = f"{row['data'].get('type')}: {row['data'].get('message')}"
    samples = [
        Sample("all", item, {} if item in errors else values[item], error=errors.get(item))
        for item in dict.fromkeys([*values, *errors])
    ]
    if not samples:
        raise ConfigError(path, "", None, "holds no event of type match or metrics", "run an eval that records one")
    settings = {"eval": str(spec["eval_name"]), "model": ", ".join(map(str, spec["completion_fns"]))}
    facts = Facts(tool="OpenAI evals", settings=settings)
    yield from sample_sheets(path, wanted, samples, lambda *_: facts)
