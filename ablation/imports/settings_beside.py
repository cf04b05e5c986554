"""Settings of a run that lie beside its log as JSON or YAML."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ablation.config.yaml_io import parse_foreign
from ablation.contract.reading import one_line, read_text
from ablation.imports.run import Problem


def read_settings(candidates: Iterable[Path], problem: Problem) -> dict[str, Any]:
    """Return the content of the first of the files that is there and is a mapping; {} where there is none."""
    for path in candidates:
        if not path.is_file():
            continue
        try:
            text = read_text(path)
            content = as_plain(json.loads(text) if path.suffix == ".json" else parse_foreign(text))
        except (OSError, ValueError, RecursionError) as error:
            problem(f"{path}: cannot be read ({one_line(error, 200)})")
            continue
        if isinstance(content, dict):
            return content
        problem(f"{path}: holds no mapping")
    return {}


def as_plain(value: Any) -> Any:
    """Return a value as JSON has it: keys are text; dates and the like become text."""
    if isinstance(value, dict):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [as_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
