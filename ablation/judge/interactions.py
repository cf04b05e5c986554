"""Do effects add up? Each declared combination minus the sum of its parts, all against the parts' common parent."""

from collections.abc import Mapping, Sequence
from typing import Any

from ablation.judge.measurements import Measurements, paired_arms, warnings
from ablation.judge.statistics import contrast_arms

COLUMNS = [
    "study",
    "combination",
    "parts",
    "baseline",
    "effect",
    "low",
    "high",
    "p",
    "seeds",
    "items",
    "reason",
]
_NAN = float("nan")


def judge_interactions(study: Measurements) -> list[dict[str, Any]]:
    """Return one row of COLUMNS per declared combination."""
    parents = {variant.name: variant.parent for variant in study.variants}
    combinations = study.analysis.combinations
    return [{"study": study.name} | _interaction(study, parents, name, parts) for name, parts in combinations.items()]


def _interaction(
    study: Measurements, parents: Mapping[str, Any], combination: str, parts: Sequence[str]
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "combination": combination,
        "parts": " + ".join(parts),
        "baseline": None,
        "seeds": 0,
        "items": 0,
    }
    row |= dict.fromkeys(("effect", "low", "high", "p"), _NAN)
    unknown = [name for name in (combination, *parts) if name not in parents]
    baselines = {parents.get(part) for part in parts}
    if unknown or len(parts) < 2 or len(baselines) != 1 or not isinstance(baseline := baselines.pop(), str):
        why = (
            f"no variant {unknown[0]!r}" if unknown else "a combination needs two or more parts with one common parent"
        )
        return row | {"reason": why}
    arms, _, problem = paired_arms(study, [combination, *parts, baseline])
    broken = warnings(study, [combination, *parts, baseline])
    row |= {"baseline": baseline, "reason": "; ".join(filter(None, (problem.text, *map(str, broken))))}
    if not arms:
        return row
    weights = [1.0, *[-1.0] * len(parts), len(parts) - 1.0]
    numbers = contrast_arms(arms, weights, 1 - study.analysis.alpha)
    return row | {name: getattr(numbers, name) for name in ("effect", "low", "high", "p", "seeds", "items")}
