"""Check of a scheduler's profile, called in its `__definitions__` before Snakemake reads the command line."""

import re
import shutil
import sys
from importlib.util import find_spec


def check(requirement: str, *programs: str) -> None:
    """Exit with one line if the plugin or, except in a dry run, one of the scheduler's programs is not installed.

    requirement: argument of `pip install`, such as `snakemake-executor-plugin-slurm>=2.8,<3`.
    """
    package = re.split("[<>=]", requirement)[0]
    if find_spec(package.replace("-", "_")) is None:
        sys.exit(f"error: this profile needs {package}, which is not installed; run pip install '{requirement}'")
    dry_run = {"-n", "-np", "--dry-run", "--dryrun"} & set(sys.argv)
    for program in programs:
        if not dry_run and shutil.which(program) is None:
            sys.exit(
                f"error: {program} is not installed here; start snakemake on a machine that has the "
                "scheduler's commands"
            )
