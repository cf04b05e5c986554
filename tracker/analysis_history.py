"""When a study's analysis plan changed although there were results: `results/analysis_history.json`.

    record_analysis(results, study, digest, analysis, has_results, now) -> [{digest, analysis, since}], oldest first

Entries are added when results are collected, so more than one entry means that the plan was changed after results
existed.
"""

import json
import os
from pathlib import Path
from typing import Any

FILE = "analysis_history.json"


def record_analysis(
    results: Path, study: str, digest: str, analysis: dict[str, Any], *, has_results: bool, now: str
) -> list[dict[str, Any]]:
    """Add the plan where it is new and results exist; return the study's history."""
    path = results / FILE
    content: dict[str, list[dict[str, Any]]] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    history = content.get(study, [])
    if has_results and (not history or history[-1]["digest"] != digest):
        history = [*history, {"digest": digest, "analysis": analysis, "since": now}]
        aside = results / f".{FILE}.{os.getpid()}"
        aside.write_text(json.dumps(content | {study: history}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        aside.replace(path)
    return history
