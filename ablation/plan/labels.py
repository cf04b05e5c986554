"""Names of jobs in the terminal: the variants and the seed that they serve."""

from collections.abc import Mapping, Sequence
from typing import Any


def stage_label(variants: Sequence[str], of: int, seed: int | None) -> str:
    """`v8 seed 0`; `v4, v5 and 3 more, seed 0`; `all variants`. of: how many variants the study has."""
    with_seed = "" if seed is None else f"seed {seed}"
    if len(variants) == 1:
        return f"{variants[0]} {with_seed}".strip()
    if len(variants) == of:
        shown = "all variants"
    elif len(variants) <= 3:
        shown = f"{', '.join(variants[:-1])} and {variants[-1]}"
    else:
        shown = f"{variants[0]}, {variants[1]} and {len(variants) - 2} more"
    return f"{shown}, {with_seed}" if with_seed else shown


def asset_label(asset: Mapping[str, Any]) -> str:
    """`model openai-community/gpt2`: its kind and its first source."""
    source = asset["sources"][0]
    name = next((source[key] for key in ("repo", "package", "path", "architecture") if key in source), "")
    return f"{asset.get('kind', 'asset')} {name}".strip()
