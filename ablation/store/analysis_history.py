"""Record the changes to analysis plans that are made after results exist, in `results/analysis_history.json`.

The file maps each study to a list of {digest, analysis, since, comparisons, seeds, rules}, oldest first.

Entries are added when results are collected, so a second entry means that the plan was changed after results existed.
Removing a comparison is such a change, because fewer comparisons are then corrected for. Comparisons that are added
only make the correction stricter, so they are recorded in the last entry. Adding seeds to a variant is a change unless
the plan has `interim_analyses`. `rules` is the number of rules of judging that were in force
(`ablation.config.judging_rules`).
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from ablation.config.judging_rules import RECORDED, RULES
from ablation.config.variant_tree import compared
from ablation.contract.atomic import write_text
from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_json
from ablation.plan.collected import HISTORY_FILE
from ablation.plan.plan_file import StudyRecord

_KINDS = {"digest": str, "analysis": dict, "since": str, "comparisons": list, "seeds": dict, "rules": int}


class StoredStudy(StudyRecord):
    """A study in the database, with all analysis plans that it has had since results existed.

    Attributes:
        analysis_history: {digest, analysis, since, comparisons, seeds, rules} of each plan; the last one is current.
        imported: a note for readers that the runs were imported; empty for a planned study.
        kept: whether final metrics of some imported runs are from a kept model instead of the last one.
        run_url: address of a run's page in its experiment tracker, with {id} for the run; empty if it is not known.
    """

    analysis_history: list[dict[str, Any]]
    imported: str = ""
    kept: bool = False
    run_url: str = ""


def record_analysis(
    results: Path,
    study: StudyRecord,
    runs: Iterable[str],
    parents: Mapping[str, str | None],
    *,
    has_results: bool,
    record: bool,
) -> list[dict[str, Any]]:
    """Return the history of a study's analysis plan, after adding the plan if it has changed and results exist.

    `runs` has the variant of each run. The file is changed only if `record` is true.
    """
    path = results / HISTORY_FILE
    content = _read(path)
    history = content.get(study.name, [])
    if not has_results:
        return history
    analysis, seeds = study.analysis.model_dump(mode="json"), Counter(runs)
    comparisons = sorted(map(list, compared(study.analysis.comparisons, parents)))
    noted: dict[str, Any] = {"comparisons": comparisons, "seeds": dict(seeds), "rules": len(RULES)}
    before = noted | {"rules": RECORDED} | history[-1] if history else noted
    grown = any(count > before["seeds"].get(name, count) for name, count in seeds.items())
    more = grown and not analysis.get("interim_analyses")
    gone = any(comparison not in comparisons for comparison in before["comparisons"])
    if not history or before["digest"] != study.analysis_digest or gone or more or before["rules"] != len(RULES):
        now = datetime.now(UTC).isoformat(timespec="seconds")
        changed = [*history, {"digest": study.analysis_digest, "analysis": analysis, "since": now, **noted}]
    else:
        changed = [*history[:-1], history[-1] | noted]
    if changed != history:
        history = changed
        text = json.dumps(content | {study.name: history}, indent=1, sort_keys=True)
        if record:
            write_text(path, text + "\n")
        history = json.loads(text)[study.name]  # as read back from the file by every later collect
    return history


def merged_history(results: Path, other: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the histories of two results folders, merged by time, so that plan changes in either folder count."""
    entries, other_history = _read(results / HISTORY_FILE), _read(other / HISTORY_FILE)
    merged: dict[str, list[dict[str, Any]]] = {}
    for study in entries | other_history:
        for entry in sorted([*entries.get(study, []), *other_history.get(study, [])], key=lambda entry: entry["since"]):
            history = merged.setdefault(study, [])
            if not history or any(history[-1].get(name) != entry.get(name) for name in entry if name != "since"):
                history.append(entry)
    return merged


def write_history(results: Path, content: Mapping[str, Any]) -> None:
    """Write the history of all studies, unless the file already holds the same history."""
    if content != _read(results / HISTORY_FILE):
        write_text(results / HISTORY_FILE, json.dumps(content, indent=1, sort_keys=True) + "\n")


def seeds_added(history: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return {variant: (seeds before, seeds now)} of variants that got seeds without planned interim analyses."""
    added: dict[str, tuple[int, int]] = {}
    for old, new in pairwise(history):
        if not new["analysis"].get("interim_analyses"):
            were = old.get("seeds", {})
            later = {name: count for name, count in new.get("seeds", {}).items() if count > were.get(name, count)}
            added |= {name: (added.get(name, (were[name],))[0], count) for name, count in later.items()}
    return added


def _read(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the history of all studies. Raises ConfigError for a broken file, because a lost history hides changes."""
    remedy = "restore the file, or delete it and state in the report that the history was lost"
    try:
        content = read_json(path)
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as error:
        raise ConfigError(path, "", None, f"cannot be read ({error})", remedy) from None
    if not isinstance(content, dict) or not all(map(_are_plans, content.values())):
        raise ConfigError(path, "", None, "does not map studies to lists of analysis plans", remedy)
    return content


def _are_plans(entries: Any) -> bool:
    return isinstance(entries, list) and all(
        isinstance(entry, dict)
        and {"digest", "analysis", "since"} <= entry.keys()
        and all(isinstance(entry[name], kind) for name, kind in _KINDS.items() if name in entry)
        for entry in entries
    )
