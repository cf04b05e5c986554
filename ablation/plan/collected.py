"""Which results a database and a folder of reports hold. Light: whatever shows them first asks here, without pydantic.

`results/collected.json`: what a collect found, and the plan, imports and statuses that its database was built from:
`{corrupt: {key: reason}, stages: digest, ended: number, sources: digest}`. `reports/.results`: the results that these
reports show, since two results that shared one folder would show each other's numbers.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ablation.contract.atomic import LONG_AGO, date, write_json, write_text
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.reading import read_json, read_text, sha256
from ablation.contract.stage_folder import SCHEMA_VERSION
from ablation.contract.status import TO_COME, StageState, read_state

COLLECTED = "collected.json"
PLAN_FILE = "plan.json"
MARKER = ".results"
_MAX_BYTES = 1 << 30
States = Mapping[str, StageState]


def note_collected(results: Path, states: States, read: States, sources: str) -> None:
    """Write `collected.json`. states: with what turned out to be corrupt; read: as the statuses said.

    sources: `sources_of` the results before anything was read of them.
    """
    corrupt = {key: state.reason for key, state in states.items() if state.state == "corrupt"}
    noted = {"stages": digest(read.items()), "ended": _ended(read), "sources": sources}
    write_json(results / COLLECTED, {"corrupt": corrupt, **noted})


def read_collected(results: Path) -> dict[str, Any]:
    """Return the content of collected.json; {} where there is none that can be read: it is only a hint."""
    try:
        content = read_json(results / COLLECTED)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) and isinstance(content.get("corrupt"), dict) else {}


def digest(states: Iterable[tuple[str, StageState]]) -> str:
    """Return a digest of the stages that have ended, with how and when."""
    ended = sorted((key, s.state, s.ended, s.attempt) for key, s in states if s.state not in TO_COME)
    return hashlib.sha256(json.dumps(ended).encode()).hexdigest()[:16]


def sources_of(results: Path) -> str:
    """Return a digest of a database's other sources: the plan, imported runs, and the version of its tables."""
    files = [results / PLAN_FILE, *sorted(results.glob("imported/*/study.json"))]
    noted = [(str(path.relative_to(results)), sha256(path)) for path in files if path.is_file()]
    return hashlib.sha256(json.dumps([SCHEMA_VERSION, *noted]).encode()).hexdigest()[:16]


def states_now(results: Path) -> States:
    """Return the state of each stage of plan.json by its key, read now; none where there is no plan.

    Raises TrackerError where the plan cannot be read, PermissionError where this user may not.
    """
    try:
        plan = read_json(results / PLAN_FILE, _MAX_BYTES)
        folders = {stage["key"]: stage_folder(results, plan["results"], stage["dir"]) for stage in plan["stages"]}
    except FileNotFoundError:
        return {}
    except PermissionError:
        raise
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TrackerError(f"{results / PLAN_FILE}: not a plan ({error}); delete it and run `snakemake`") from None
    return {key: read_state(folder, key) for key, folder in folders.items()}


def stage_folder(results: Path, planned: Path | str, folder: Path | str) -> Path:
    """Return a stage's folder below `results`, even if that was moved after it was `planned`."""
    folder = Path(folder)
    return results / folder.relative_to(planned) if folder.is_relative_to(planned) else folder


def is_copy(results: Path) -> bool:
    """Whether the folder holds a database that was not collected here: nothing else is, but the plan maybe."""
    return not any((results / name).exists() for name in ("stages", "imported", COLLECTED))


def is_current(results: Path, states: States) -> bool:
    """Whether the database matches the current plan, imports, statuses and tables of this version.

    A database without a folder of stages is the only source.
    """
    if not (results / "stages").exists() and not (results / "imported").exists():
        return True
    noted = read_collected(results)
    return (noted.get("stages"), noted.get("sources")) == (digest(states.items()), sources_of(results))


def lost(results: Path, states: States) -> int:
    """Return how many stages in the database have been deleted since, or run again."""
    noted = read_collected(results)
    ended = noted.get("ended")
    if not isinstance(ended, int) or noted.get("sources") != sources_of(results):
        return 0
    return max(0, ended - _ended(states))


def _ended(states: States) -> int:
    return sum(state.state not in TO_COME for state in states.values())


def claim_reports(results: Path, reports: Path) -> None:
    """Record in the folder of reports which results it shows, as a relative path, so that both may move together.

    Reports without such a record are drawn again by the next Snakemake, since they may show any results. Raises
    ConfigError where the folder shows other results, TrackerError where it cannot be written.
    """
    marker, mine = reports / MARKER, os.path.relpath(results.resolve(), reports.resolve())
    try:
        theirs = read_text(marker).strip()
    except FileNotFoundError:
        drawn = [
            reports / "index.html",
            *(path for table in reports.glob("*/table.html") for path in table.parent.iterdir()),
        ]
        date((path for path in drawn if path.is_file()), LONG_AGO)
        write_text(marker, f"{mine}\n")
        return
    except NotADirectoryError:
        raise ConfigError(reports, "", None, "is not a folder", "name another one (reports=... or --reports)") from None
    except (OSError, ValueError) as error:
        raise ConfigError(marker, "", None, f"cannot be read ({error})", "delete it") from None
    if theirs != mine:
        problem = f"this folder shows the results in {os.path.normpath(reports / theirs)}, not those in {results}"
        remedy = "name another one (reports=... or --reports); or delete it, to have it drawn again"
        raise ConfigError(reports, "", None, problem, remedy)
