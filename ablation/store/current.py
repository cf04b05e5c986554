"""Find the database of a results folder, and collect first unless the database is intact and up to date."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from ablation.contract.errors import ConfigError, TrackerError, check_decoded
from ablation.contract.numbers import counted
from ablation.contract.stage_folder import DATABASE
from ablation.contract.status import TO_COME
from ablation.plan.collected import PLAN_FILE, Sources, is_alone, is_copy, noted_sources, sources_now
from ablation.store.database import Store, is_whole

_ASIDE: dict[Path, TemporaryDirectory[str]] = {}  # by results folder; each is removed when the process ends


def load_or_collect(results: Path, *, strict: bool = False) -> Path:
    """Return the path of a database that is up to date with the results, after collecting if necessary.

    If the results folder cannot be written, the database is temporary. If collecting fails, or would drop stages that
    were deleted or run again, a note is printed and the existing database is returned; if `strict` is true (for gates),
    this is an error.

    Raises TrackerError or OSError, also if there is neither a database nor anything to collect.
    """
    check_decoded(results)
    database = results / DATABASE
    if not any(source.exists() for source in (database, results / PLAN_FILE, *results.glob("imported/*/study.json"))):
        problem = "contains neither a plan nor a database nor imported runs"
        raise ConfigError(results, "", None, problem, "run `snakemake`, or import runs with `ablation import`")
    usable, now, noted = is_whole(database), sources_now(results), noted_sources(results)
    if is_copy(results) and not usable and not (results / PLAN_FILE).exists():
        Store(database).close()  # says why it cannot be used, as one of another version
    if usable and (is_copy(results) or (is_alone(results) and not strict)):
        if strict:
            why = "the stage folders from which it was collected are missing"
            print(f"note: {database} is a copy that cannot be checked, because {why}", file=sys.stderr)
        return database
    if usable and noted == now and holds(database, now):
        return database
    if usable and strict and noted is None:  # without the list, the database says which stages had ended
        noted = Sources(now.files, ended(database))
    gone = now.lost(noted) if usable and noted is not None and (strict or noted.files == now.files) else []
    if gone:
        was = "was" if len(gone) == 1 else "were"
        problem = f"{counted(len(gone), 'stage')} {was} deleted or started again after the database was written"
        remedy = "run `ablation collect` to bring the database up to date"
        error: TrackerError | OSError = ConfigError(database, "", None, f"is out of date, because {problem}", remedy)
        problem += f"; {remedy}"
    else:
        from ablation.store.collect import collect  # late: reading the database needs no pydantic

        try:
            return collect(results).database
        except (TrackerError, OSError) as failed:
            problem, error = str(failed), failed
        try:
            folder = _ASIDE.setdefault(results.resolve(), TemporaryDirectory(prefix="ablation-"))
            return collect_beside(results, Path(folder.name))
        except (TrackerError, OSError):  # as before: it is not for want of a place to write
            pass
    if strict or not usable:
        raise error
    print(f"note: {database} is out of date: {problem}", file=sys.stderr)
    return database


def holds(database: Path, sources: Sources) -> bool:
    """Return whether a database was made from these sources."""
    with Store(database) as store:
        return store.rows("SELECT value FROM meta WHERE key = 'sources'")[1] == [(sources.digest,)]


def ended(database: Path) -> dict[str, str]:
    """Return {stage key: state} of the stages that had ended when a database was made."""
    query = f"SELECT key, state FROM stages WHERE state NOT IN {TO_COME}"
    with Store(database) as store:
        return {key: state for key, state in store.rows(query)[1]}


def collect_beside(results: Path, folder: Path) -> Path:
    """Collect into another folder, which also gets links to stages and imports; return the path of the database."""
    from ablation.store.collect import collect_apart

    for name in ("stages", "imported"):
        (folder / name).unlink(missing_ok=True)
        if (results / name).exists():
            (folder / name).symlink_to((results / name).resolve())
    return collect_apart(results, folder / DATABASE).database


def check_study(store: Store, command: str, study: str | None) -> None:
    """Raise ConfigError if a study is not in the database, or if its import is damaged; accept None (all studies)."""
    if study is not None:
        from ablation.config.names import check_name  # late: it takes pydantic

        if study not in store.studies():
            from ablation.store.imports.stored import FOLDER, MANIFEST, read_study

            imported = store.path.parent / FOLDER / study
            if (imported / MANIFEST).is_file():
                read_study(imported)
        check_name(study, store.studies(), command, "STUDY", "is not in the database")
