"""Records of which results a database and a folder of reports hold; it does not import pydantic, which is slow.

`results/collected.json` lists the sources of the database and the damaged stages: `{files: {path: digest}, stages:
{key: length and time of each file}, corrupt: {key: reason}}`. A database is current if the list describes the present
files. `reports/.results` names the results that the reports show, so that no other results are drawn into the folder.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ablation.config.judging_rules import RULES
from ablation.contract.atomic import LONG_AGO, date, write_json, write_text
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.reading import read_json, read_text, sha256
from ablation.contract.stage_folder import SCHEMA_VERSION
from ablation.contract.status import COLLECTED_FILES, STATUS, replaced

COLLECTED = "collected.json"
PLAN_FILE = "plan.json"
HISTORY_FILE = "analysis_history.json"
MARKER = ".results"
_MAX_BYTES = 1 << 30


class Sources(NamedTuple):
    """The files and stages from which a database was collected.

    files: {path below the results: digest, or length and time} of the plan, the history of analyses and imported files,
    with the versions of tables and rules. stages: {key: length and time of each collected file}; "" for a stage that
    has not ended.
    """

    files: dict[str, str]
    stages: dict[str, str]

    @property
    def digest(self) -> str:
        """Return a digest of the sources, 16 hex digits."""
        return hashlib.sha256(json.dumps(self, sort_keys=True).encode()).hexdigest()[:16]

    def lost(self, earlier: "Sources") -> list[str]:
        """Return the keys of planned stages that had ended at the time of `earlier` but have no result now."""
        return [key for key, signature in self.stages.items() if not signature and earlier.stages.get(key)]


def sources_now(results: Path) -> Sources:
    """Return the sources that a database collected now would have. Raises the errors of `planned_folders`."""
    stages = {key: _signature(folder) for key, folder in planned_folders(results).items()}
    return Sources(source_files(results), stages)


def source_files(results: Path) -> dict[str, str]:
    """Return the `Sources.files` that a database collected now would have."""
    files = {"tables": SCHEMA_VERSION, "rules": str(len(RULES))}
    files |= {name: sha256(results / name) for name in (PLAN_FILE, HISTORY_FILE) if (results / name).is_file()}
    for path in (results / "imported").rglob("*.[jp]*"):  # JSON and Parquet
        with suppress(OSError):
            status = path.stat()
            files[str(path.relative_to(results))] = f"{status.st_size} {status.st_mtime_ns}"
    return files


def _signature(folder: Path) -> str:
    if replaced(folder):
        return ""
    signatures = {}
    for name in COLLECTED_FILES:
        with suppress(OSError):
            file = os.stat(f"{folder}/{name}")  # faster than Path.stat, as there may be ten thousand stages
            signatures[name] = f"{name} {file.st_size} {file.st_mtime_ns}"
    return "; ".join(signatures.values()) if STATUS in signatures else ""


def planned_folders(results: Path) -> dict[str, Path]:
    """Return {key: folder} for the stages in plan.json; empty if there is no plan.

    Raises TrackerError if the plan is damaged, PermissionError if this user may not read it.
    """
    try:
        plan = read_json(results / PLAN_FILE, _MAX_BYTES)
        return {stage["key"]: stage_folder(results, plan["results"], stage["dir"]) for stage in plan["stages"]}
    except FileNotFoundError:
        return {}
    except PermissionError:
        raise
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TrackerError(f"{results / PLAN_FILE}: is not a plan ({error}); delete it and run `snakemake`") from None


def note_collected(folder: Path, sources: Sources, corrupt: Mapping[str, str]) -> None:
    """Write `collected.json` beside a database. `corrupt` is {key: reason} for stages with damaged files."""
    write_json(folder / COLLECTED, {**sources._asdict(), "corrupt": corrupt})


def read_collected(folder: Path) -> dict[str, Any]:
    """Return the content of collected.json; {} if the file is missing or cannot be read."""
    try:
        content = read_json(folder / COLLECTED, _MAX_BYTES)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) and isinstance(content.get("corrupt"), dict) else {}


def noted_sources(folder: Path) -> Sources | None:
    """Return the sources of the database in a folder from collected.json; None if that file does not list them."""
    files, stages = map(read_collected(folder).get, Sources._fields)
    return Sources(files, stages) if isinstance(files, dict) and isinstance(stages, dict) else None


def stage_folder(results: Path, planned: Path | str, folder: Path | str) -> Path:
    """Return a stage's folder below `results`, even if the results were moved after the stage was planned."""
    folder = Path(folder)
    return results / folder.relative_to(planned) if folder.is_relative_to(planned) else folder


def is_alone(results: Path) -> bool:
    """Return whether a folder of results has neither stages nor imported runs; it may have a database."""
    return not any((results / name).exists() for name in ("stages", "imported"))


def is_copy(results: Path) -> bool:
    """Return whether a folder has no sources of a database, so that a database in it is a copy from elsewhere."""
    return is_alone(results) and not (results / COLLECTED).exists()


def claim_reports(results: Path, reports: Path) -> None:
    """Record which results a folder of reports shows, as a relative path, so that both folders can move together.

    Reports without such a record may show other results, so the next Snakemake draws them again. Raises ConfigError if
    the folder shows other results or cannot be used.
    """
    marker, relative = reports / MARKER, os.path.relpath(results.resolve(), reports.resolve())
    try:
        shown = read_text(marker).strip()
    except FileNotFoundError:
        drawn = [
            reports / "index.html",
            *(path for table in reports.glob("*/table.html") for path in table.parent.iterdir()),
        ]
        date((path for path in drawn if path.is_file()), LONG_AGO)
        write_text(marker, f"{relative}\n")
        return
    except NotADirectoryError:
        raise ConfigError(
            reports, "", None, "is not a folder", "name another folder (reports=... or --reports)"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(marker, "", None, f"cannot be read ({error})", "delete this file") from None
    if shown != relative:
        problem = f"this folder shows the results in {os.path.normpath(reports / shown)}, not those in {results}"
        remedy = "name another folder (reports=... or --reports), or delete this one so that it is drawn again"
        raise ConfigError(reports, "", None, problem, remedy)
