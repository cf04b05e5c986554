# The plan, and the commands of the rules. What the rules ask of the plan is Python in ablation/plan/jobs.py.
import os
import shlex
import sys
from typing import Any

from snakemake.scheduling.job_scheduler import JobScheduler

from ablation.plan.start import TrackerError, explained, load_jobs

try:
    JOBS = load_jobs(workflow, config, JobScheduler)
except (TrackerError, OSError) as error:  # OSError: a full disk, or results that cannot be written
    sys.exit(f"error: {explained(error)}")

PLAN = JOBS.plan
STUDIES = list(PLAN.studies)
RESULTS, REPORTS = str(PLAN.settings.results), str(PLAN.settings.reports)
statuses, render_what_is_there = JOBS.statuses, JOBS.render_what_is_there

ENVIRONMENT = os.path.join(
    workflow.basedir, "environment.yml"
)  # next to the Snakefile; looked at with --sdm conda only

# exec: what Snakemake starts is its own child and ends with it, also when Snakemake is killed.
TRACKER = f"exec {JOBS.python} -m ablation --parent $PPID"
# Errors also go to the terminal: on a full disk there is no log to read them from.
LOGGED = "> {log:q} 2> >(tee -a {log:q} >&2)"
FOLDERS = JOBS.folders
RUN_STAGE = (
    f"exec {JOBS.python} {{params.start}} {{params.arguments}} --since {shlex.quote(f'{RESULTS}/.lock')}"
    " --threads {threads} --wait {resources.runtime} --parent $PPID"
)


def kept_report(file: str, **words: Any) -> str:
    """Mark a file for `snakemake --report`; `update` keeps it until its new version replaces it."""
    return update(report(file, **words))


wildcard_constraints:
    key="[0-9a-f]{16}",
