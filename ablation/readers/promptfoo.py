"""Reader of promptfoo: `output.json` of `promptfoo eval -o`, a result for each provider, prompt, test and repeat.

An item is a test, named by its description or its variables; repeats are its samples. The systems to compare are the
providers (`--by provider`), the prompts (`--by prompt`), or each provider with each prompt (`--by provider,prompt`). A
result with an error (`failureReason` 2) has no value, unlike one that failed an assertion. The metrics are `success`
(the default), `score`, and named scores.
"""

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.readers.sheet import (
    Facts,
    ItemText,
    Sample,
    Sheet,
    Wanted,
    digest,
    intact,
    json_start,
    read_evaluation,
    sample_sheets,
)

_ERROR = 2  # of `failureReason`; 1 is an assertion
_NAME = 60  # characters of an item's name


def recognises(path: Path) -> bool:
    """Return whether a file begins like the output of promptfoo."""
    start = json_start(path)
    return start.lstrip()[:1] == b"{" and b'"evalId"' in start and b'"results"' in start


def sheets(path: Path, wanted: Wanted) -> Iterator[Sheet]:
    """Yield the values of each provider and prompt as a `Sheet`.

    Raises ConfigError if the file is invalid or lacks what `wanted` names.
    """
    samples = list(_samples(path))
    if not samples:
        raise ConfigError(path, "results", None, "is empty", "run the evaluation again")
    facts = Facts(tool="promptfoo", larger_is_better=True)
    yield from sample_sheets(path, wanted, samples, lambda *_: facts, partial(_samples, path))


def _samples(path: Path) -> Iterator[Sample]:
    content = read_evaluation(path)
    repeats: Counter[tuple[str, ...]] = Counter()
    names: dict[str, str] = {}
    with intact(path, remedy="run the evaluation again with promptfoo 0.121 or later"):
        for row in sorted(content["results"]["results"], key=lambda row: row["testIdx"]):
            test = row["testCase"]
            key = json.dumps([test.get("description"), row["vars"], test.get("assert")], sort_keys=True)
            item = names.setdefault(key, _name(test.get("description"), row["vars"], set(names.values())))
            settings = {
                "provider": row["provider"].get("label") or row["provider"]["id"],
                "prompt": one_line(row["prompt"]["label"], 200),
            }
            place = (item, *settings.values())
            repeats[place] += 1
            error = one_line(row.get("error"), 200) if row["failureReason"] == _ERROR else None
            values = {"success": row["success"], "score": row["score"], **(row.get("namedScores") or {})}
            words = ItemText(json.dumps(row["vars"]), "", str((row.get("response") or {}).get("output", "")))
            yield Sample("all", item, {} if error else values, words, repeats[place], error=error, settings=settings)


def _name(description: str | None, variables: dict[str, Any], taken: set[str]) -> str:
    """Return the name of a test, with a number if another test has the same name, for example with other assertions."""
    text = description or ", ".join(f"{name}={value}" for name, value in sorted(variables.items())) or "test"
    name = " ".join(text.split())
    if len(name) > _NAME:
        name = f"{name[:_NAME]}…{digest(text) % 16**6:06x}"
    number = next(
        count for count in range(1, len(taken) + 2) if (f"{name} #{count}" if count > 1 else name) not in taken
    )
    return f"{name} #{number}" if number > 1 else name
