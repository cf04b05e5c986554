"""Seeds that `decide` adds to some variants: `results/seeds.json`, {study: {variant: number of seeds}}.

load_extra_seeds(results) -> {study: {variant: n}}
save_extra_seeds(results, study, {variant: n})
extended(seeds, n) -> the seeds, continued to n of them
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ablation.contract.atomic import write_text
from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_json

FILE = "seeds.json"
_MAX_SEEDS = 10_000


def load_extra_seeds(results: Path) -> dict[str, dict[str, int]]:
    """Read the file; {} where there is none. A broken one is a ConfigError: silently fewer seeds would undo
    decisions.
    """
    path = results / FILE
    if not path.exists():
        return {}
    remedy = "mend it or delete it (the plan's own seeds stay)"
    try:
        content = read_json(path)
    except (ValueError, OSError) as error:
        raise ConfigError(path, "", None, f"not JSON ({error})", remedy) from None
    if not isinstance(content, dict) or not all(isinstance(variants, dict) for variants in content.values()):
        raise ConfigError(path, "", None, "expected {study: {variant: number of seeds}}", remedy)
    for study, variants in content.items():
        for variant, count in variants.items():
            if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MAX_SEEDS:
                problem = f"expected a number of seeds, 1 to {_MAX_SEEDS}"
                raise ConfigError(path, f"{study}.{variant}", count, problem, remedy)
    return content


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
