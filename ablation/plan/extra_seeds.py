"""Seeds that `decide` adds to some variants: `results/seeds.json`, {study: {variant: number of seeds}}."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from ablation.contract.atomic import write_text
from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_bytes

FILE = "seeds.json"
_MAX_SEEDS = 10_000
_CONTENT = TypeAdapter(dict[str, dict[str, Annotated[int, Field(ge=1, le=_MAX_SEEDS)]]])


def load_extra_seeds(results: Path) -> dict[str, dict[str, int]]:
    """Read the file; {} where there is none. A broken one is a ConfigError: fewer seeds would undo decisions."""
    path = results / FILE
    try:
        return _CONTENT.validate_json(read_bytes(path), strict=True)
    except FileNotFoundError:
        return {}
    except (ValidationError, OSError) as error:
        key, value, why = "", None, str(error)
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False)[0]
            key, value, why = ".".join(map(str, first["loc"])), first["input"], first["msg"]
        problem = f"expected a number of seeds, 1 to {_MAX_SEEDS}, for each study and variant ({why})"
        raise ConfigError(path, key, value, problem, "mend it or delete it (the plan's own seeds stay)") from None


def save_extra_seeds(results: Path, study: str, counts: Mapping[str, int]) -> None:
    """Merge one study's numbers into the file, never lowering one."""
    content = load_extra_seeds(results)
    merged = dict(content.get(study, {}))
    for variant, count in counts.items():
        merged[variant] = max(count, merged.get(variant, 0))
    write_text(results / FILE, json.dumps(content | {study: merged}, indent=1, sort_keys=True) + "\n")


def extended(seeds: Sequence[int], count: int) -> tuple[int, ...]:
    """The given seeds, then the next integers that are not among them, until there are `count`."""
    result, candidate = list(seeds), 0
    while len(result) < count:
        if candidate not in seeds:
            result.append(candidate)
        candidate += 1
    return tuple(result)
