"""The database of a results folder, collected where there is none that can be read."""

from pathlib import Path

from contract.errors import ConfigError
from contract.stage_folder import DATABASE
from tracker.store.database import is_whole


def load_or_collect(results: Path) -> Path:
    """Return the path of the database, collecting first where there is none that can be read to its end."""
    database = results / DATABASE
    if not database.exists() and not (results / "plan.json").exists():
        raise ConfigError(results, "", None, "nothing was planned or run here", "run `snakemake`")
    if not is_whole(database):
        from tracker.store.collect import collect  # late: who only reads the database does without pydantic

        collect(results)
    return database
