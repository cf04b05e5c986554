"""What the stages of a study ran on and with, counted."""

import json
from typing import Any

from ablation.store.database import Store

MAIN_FACTS = {
    "git.commit",
    "git.dirty",
    "python",
    "packages.torch",
    "packages.transformers",
    "hardware.processor",
    "hardware.gpus",
}


def provenance(store: Store, study: str) -> list[dict[str, Any]]:
    """One entry per leaf of provenance.json: {key, main, values: [(text, number of stages)]}."""
    frame = store.sql(
        "SELECT key, data FROM provenance WHERE key IN (SELECT key FROM run_stages WHERE study = ?) ORDER BY key",
        [study],
    )
    counted: dict[str, dict[str, int]] = {}
    for text in frame["data"]:
        for key, value in _leaves(json.loads(text)):
            values = counted.setdefault(key, {})
            values[value] = values.get(value, 0) + 1
    return [
        {"key": key, "main": key in MAIN_FACTS, "values": sorted(values.items(), key=lambda item: (-item[1], item[0]))}
        for key, values in sorted(counted.items())
        if key.split(".")[0] not in ("argv", "command")
    ]


def _leaves(value: Any, path: str = "") -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [leaf for key in value for leaf in _leaves(value[key], f"{path}.{key}" if path else str(key))]
    if isinstance(value, bool) or value is None:
        return [(path, {None: "none", True: "yes", False: "no"}[value])]
    return [(path, ", ".join(map(str, value)) if isinstance(value, list) else str(value))]
