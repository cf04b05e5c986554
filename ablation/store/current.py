"""The database of a results folder, collected first unless it is intact and up to date."""

import sys
from pathlib import Path

from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.stage_folder import DATABASE
from ablation.plan.collected import PLAN_FILE, is_current, lost, states_now
from ablation.store.database import is_whole


def load_or_collect(results: Path) -> Path:
    """Return the path of the database, collecting first if it is out of date.

    If that would lose stages that were deleted or run again, or if the results cannot be written, a line says so and
    the database stays as it is. Raises TrackerError if there is none.
    """
    database = results / DATABASE
    sources = (database, results / PLAN_FILE, *results.glob("imported/*/study.json"))
    if not any(source.exists() for source in sources):
        raise ConfigError(results, "", None, "nothing was planned, run or imported here", "run `snakemake`")
    whole, states = is_whole(database), states_now(results)
    if whole and is_current(results, states):
        return database
    if whole and (gone := lost(results, states)):
        problem = f"{gone} of its stages were deleted or run again since; `collect` drops them"
    else:
        from ablation.store.collect import collect  # late: reading the database needs no pydantic

        try:
            collect(results)
            return database
        except (TrackerError, OSError) as error:
            if not whole:
                raise
            problem = str(error)
    print(f"note: {database} is out of date: {problem}", file=sys.stderr)
    return database
