# The plan, and a rule for each of its stages. What the rules ask of the plan is Python in ablation/plan/jobs.py.
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
    f"exec {JOBS.python} {{params.command}} --since {shlex.quote(f'{RESULTS}/.lock')}"
    " --threads {threads} --wait {resources.runtime} --parent $PPID"
)


wildcard_constraints:
    key="[0-9a-f]{16}",


# One rule for every stage that the plan knows: `assets`, then `<study>_<stage>`, as configs/studies/*/_study.yaml declare them.
# In a loop Snakemake gives all rules the last shell string, so it is one constant; what differs between stages comes from
# functions that are made with the stage's id (a lambda written here would see the last one).


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
