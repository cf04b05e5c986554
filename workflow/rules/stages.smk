# The plan, and one rule for each kind of stage. ablation/plan/jobs.py has the functions that the rules call.
import os
import shlex
import sys
from typing import Any

from snakemake.scheduling.job_scheduler import JobScheduler

from ablation.plan.start import TrackerError, explained, load_jobs

try:
    JOBS = load_jobs(workflow, config, JobScheduler)
except (TrackerError, OSError) as error:  # OSError means a full disk, or results that cannot be written
    sys.exit(f"error: {explained(error)}")

PLAN = JOBS.plan
STUDIES = list(PLAN.studies)
RESULTS, REPORTS = str(PLAN.settings.results), str(PLAN.settings.reports)
statuses, render_what_is_there = JOBS.statuses, JOBS.render_what_is_there

# Used only with --sdm conda.
ENVIRONMENT = os.path.join(workflow.basedir, "environment.yml")

# `exec` makes the program a child of Snakemake, with which it ends, also when Snakemake is killed.
TRACKER = f"exec {JOBS.python} -m ablation --parent $PPID"
# Errors also go to the terminal, because there is no log on a full disk.
LOGGED = "> {log:q} 2> >(tee -a {log:q} >&2)"
FOLDERS = JOBS.folders
RUN_STAGE = (
    f"exec {JOBS.python} {{params.command}} --since {shlex.quote(f'{RESULTS}/.lock')}"
    " --threads {threads} --wait {resources.runtime} --parent $PPID"
)


wildcard_constraints:
    key="[0-9a-f]{16}",


# The rules are `assets`, then `<study>_<stage>` for the stages that configs/studies/*/_study.yaml declare. In a loop
# Snakemake gives all rules the last shell string, so that is one constant, and functions made with a stage's id give
# the rest (a lambda written here would see the last id).


for id in PLAN.stage_ids():

    rule:
        name:
            id.replace(".", "_")
        input:
            ancient(JOBS.inputs_of(id)),
        output:
            f"{JOBS.folder_of(id)}/status.json",
        log:
            f"{JOBS.folder_of(id)}/log.txt",
        priority: JOBS.priority_of(id)
        group:
            JOBS.group_of(id)
        conda:
            ENVIRONMENT
        threads: JOBS.resource_of(id, "threads")
        resources:
            **JOBS.scheduler_request(id),
            mem_mb=JOBS.resource_of(id, "mem_mb"),
            runtime=JOBS.resource_of(id, "runtime"),
            gpu=JOBS.resource_of(id, "gpu"),
        params:
            label=JOBS.label_of(id),
            command=JOBS.command_of(id),
        message:
            f"{id}  {{params.label}}"
        shell:
            RUN_STAGE
