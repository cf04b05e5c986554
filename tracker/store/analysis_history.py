"""When a study's analysis plan changed although there were results: `results/analysis_history.json`.

    record_analysis(results, study, digest, analysis, edges, has_results, now)
        -> [{digest, analysis, since, edges}], oldest first

Entries are added when results are collected, so more than one entry means that the plan was changed after results
existed. The edges that are compared belong to the plan: to remove a variant shrinks the family that is corrected for.
Edges that join the family only make its correction stricter, and are noted in the last entry.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contract.atomic import write_text
from contract.errors import ConfigError
from contract.reading import read_json

FILE = "analysis_history.json"


def record_analysis(
    results: Path,
    study: str,
    digest: str,
    analysis: dict[str, Any],
    edges: Sequence[tuple[str, str]],
    *,
    has_results: bool,
    now: str,
    record: bool = True,
) -> list[dict[str, Any]]:
    """Add the plan where it is new, or edges have gone, and results exist; return the study's history.

    Without `record` the file stays as it is, and the history is what it would be.
    """
    path = results / FILE
    content = _read(path)
    history = content.get(study, [])
    listed = sorted(map(list, edges))
    before = history[-1].get("edges", listed) if history else listed
    if not has_results:
        return history
    if not history or history[-1]["digest"] != digest or any(edge not in listed for edge in before):
        changed = [*history, {"digest": digest, "analysis": analysis, "since": now, "edges": listed}]
    else:
        changed = [*history[:-1], history[-1] | {"edges": listed}]
    if changed != history:
        history = changed
        text = json.dumps(content | {study: history}, indent=1, sort_keys=True)
        if record:
            write_text(path, text + "\n")
        history = json.loads(text)[study]  # in the order of the file, as every later collect reads it
    return history


def _read(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The file's content; a broken one is a ConfigError: a history that is lost would hide a change after the fact."""
    try:
        content = read_json(path)
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as error:
        problem, remedy = f"not JSON ({error})", "restore it; or delete it, and say in the report that it was lost"
        raise ConfigError(path, "", None, problem, remedy) from None
    histories = content.values() if isinstance(content, dict) else [None]
    if not all(isinstance(history, list) and all(map(_is_entry, history)) for history in histories):
        raise ConfigError(path, "", None, "expected {study: [analysis plans]}", "restore it or delete it")
    return content


def _is_entry(entry: Any) -> bool:
    kinds = {"digest": str, "analysis": dict, "since": str}
    return isinstance(entry, dict) and all(isinstance(entry.get(name), kind) for name, kind in kinds.items())
