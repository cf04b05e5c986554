"""The database of a results folder, collected first unless it is intact and up to date."""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ablation.contract.errors import ConfigError, TrackerError, check_decoded
from ablation.contract.stage_folder import DATABASE
from ablation.contract.status import TO_COME
from ablation.plan.collected import PLAN_FILE, States, is_copy, is_current, lost, states_now
from ablation.store.database import Store, is_whole

_ASIDE: dict[Path, TemporaryDirectory[str]] = {}  # by results folder; each is removed when the process ends


def load_or_collect(results: Path, *, strict: bool = False) -> Path:
    """Return the path of a database of the results, collecting first if there is none that is up to date.

    If the results cannot be written, it is a temporary one. If stages were deleted or run again, which a collect would
    drop, or if nothing can be collected, a line says so and the database stays as it is.

    strict: for whatever lets others pass. The files of all stages are looked at, and a database that is not up to date
    is an error. Raises TrackerError, also where there is no database at all.
    """
    check_decoded(results)
    database = results / DATABASE
    sources = (database, results / PLAN_FILE, *results.glob("imported/*/study.json"))
    if not any(source.exists() for source in sources):
        remedy = "run `snakemake`, or import runs"
        raise ConfigError(results, "", None, "nothing was planned, run or imported here", remedy)
    usable, states = is_whole(database), states_now(results)
    copy = is_copy(results)
    if copy and not usable and not (results / PLAN_FILE).exists():
        Store(database).close()  # says why it cannot be used, as one of another version
    if usable and is_current(results, states) and (copy or not strict):
        if copy and strict:
            print(f"note: {database} is a copy: what it was collected from is not here", file=sys.stderr)
        return database
    if usable and (gone := lost(results, states) or (strict and _ended_before(database, states))):
        problem, remedy = f"{gone} of its stages were deleted or run again since", "`ablation collect` drops them"
        error: TrackerError | OSError = ConfigError(database, "", None, f"is out of date: {problem}", remedy)
    else:
        from ablation.store.collect import collect  # late: reading the database needs no pydantic

        before = _write_time_and_stages(database) if usable and is_current(results, states) else None
        try:
            collected = collect(results).database
            if before is not None and before[1] == _write_time_and_stages(database)[1]:
                # Only dates of statuses had changed: tables and figures need not be drawn again.
                os.utime(database, ns=(before[0], before[0]))
            return collected
        except (TrackerError, OSError) as failed:
            problem, error = str(failed), failed
        try:
            return _collected_aside(results)
        except (TrackerError, OSError):  # as before: it is not for want of a place to write
            pass
    if strict or not usable:
        raise error
    print(f"note: {database} is out of date: {problem}", file=sys.stderr)
    return database


def _ended_before(database: Path, states: States) -> int:
    """Return how many stages ended according to the database, but not according to the results folder now."""
    with Store(database) as store:
        states_then = dict(store.rows("SELECT key, state FROM stages")[1])
    to_come = [key for key, state in states.items() if state.state in TO_COME]
    return sum(states_then.get(key, "missing") not in TO_COME for key in to_come)


def _write_time_and_stages(database: Path) -> tuple[int, list[tuple[Any, ...]]]:
    """Return when the database was written, and what it knows of the stages."""
    with Store(database) as store:
        return database.stat().st_mtime_ns, store.rows("SELECT key, state, reason FROM stages ORDER BY key")[1]


def collect_beside(results: Path, folder: Path) -> Path:
    """Collect into a folder, without changing the results; return the database. What the page reads is beside it."""
    from ablation.store.collect import collect_apart

    for name in ("stages", "imported"):
        (folder / name).unlink(missing_ok=True)
        if (results / name).exists():
            (folder / name).symlink_to((results / name).resolve())
    return collect_apart(results, folder / DATABASE).database


def _collected_aside(results: Path) -> Path:
    folder = _ASIDE.setdefault(results.resolve(), TemporaryDirectory(prefix="ablation-"))
    return collect_beside(results, Path(folder.name))


def check_study(store: Store, command: str, study: str | None) -> None:
    """Refuse the name of a study that is not in the database, or whose import is damaged; None asks for all."""
    if study is not None:
        from ablation.config.names import check_name  # late: it takes pydantic

        if study not in store.studies():
            from ablation.store.imports.stored import FOLDER, MANIFEST, read_study

            imported = store.path.parent / FOLDER / study
            if (imported / MANIFEST).is_file():
                read_study(imported)
        check_name(study, store.studies(), command, "STUDY", "is not in the database")
