"""The database of a results folder, collected where there is none that can be read."""

from pathlib import Path

from contract.errors import ConfigError
from contract.stage_folder import DATABASE
from tracker.store.database import is_whole


def load_or_collect(results: Path) -> Path:
    """Return the path of the database, collecting first where there is none that can be read to its end."""
    database = results / DATABASE
    sources = (database, results / "plan.json", *results.glob("imported/*/study.json"))
    if not any(source.exists() for source in sources):
        raise ConfigError(results, "", None, "nothing was planned, run or imported here", "run `snakemake`")
    if not is_whole(database):
        from tracker.store.collect import collect  # late: who only reads the database does without pydantic

        collect(results)
    return database
