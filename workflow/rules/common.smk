# The plan, and the functions by which rules look up a stage in it. The rules themselves only name files.
import fcntl
import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tracker.plan import Plan, TrackerError, build_plan, load_settings


def load_plan() -> Plan:
    """Return the plan for configs/ and `--config`; a wrong configuration ends Snakemake with one line.

    Only the process that starts the jobs writes it down and holds the results; a dry run, `--lint` and the processes of the
    jobs change nothing.
    """
    pool = workflow.global_resources["gpu"].value if "gpu" in workflow.global_resources else None
    try:
        plan = build_plan(load_settings(config), pool)
        if plan.settings.wandb:
            os.environ["ABLATION_WANDB"] = plan.settings.wandb  # what the stages read
        # At this point Snakemake itself does not know yet that it only lints.
        executes = not workflow.output_settings.dryrun and "--lint" not in sys.argv
        if workflow.is_main_process and executes:
            hold_results(plan)
            for warning in plan.check_trees():
                print(f"warning: {warning}", file=sys.stderr)
            if plan.settings.retry == "failed":
                plan.retry_failed()
            plan.write()
    except TrackerError as error:
        sys.exit(f"error: {error}")
    if pool is None:  # without a number nothing would be limited
        workflow.register_resource("gpu", plan.settings.gpus)
    return plan


def hold_results(plan: Plan) -> None:
    """Lock the results for the life of this process, so that no second Snakemake runs the same stages.

    Snakemake's own lock is off (the profile's `nolock`): it outlives a kill, this one does not.
    """
    global results_lock
    plan.settings.results.mkdir(parents=True, exist_ok=True)
    results_lock = open(plan.settings.results / ".lock", "a")
    try:
        fcntl.flock(results_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(
            f"error: {plan.settings.results}: another snakemake runs here; wait for it, or set results=... and reports=..."
        )


def folder_of(id: str) -> str:
    """Return the folder of a stage, by its id (`debias.train`), with the wildcard {key}."""
    return f"{PLAN.settings.results}/stages/{id.replace('.', '/')}/{{key}}"


def inputs_of(id: str) -> Callable[[Any], list[str]]:
    """Return the input function of a stage: the status files of the stages that it reads."""
    return lambda wildcards: [f"{folder}/status.json" for folder in PLAN.stage(id, wildcards.key).inputs.values()]


def resource_of(id: str, name: str) -> Callable[[Any], int]:
    """Return the function for threads, mem_mb, runtime (minutes) or gpu of a stage."""
    return lambda wildcards: getattr(PLAN.stage(id, wildcards.key).resources, name)


def label_of(id: str) -> Callable[[Any, Any], str]:
    """Return the function for the variants and the seed that a stage serves.

    It takes `output`, which makes it a derived param: a variant that joins a shared stage changes the label, and only
    params that are not derived make Snakemake run a job again.
    """
    return lambda wildcards, output: PLAN.stage(id, wildcards.key).label


def arguments_of(id: str) -> Callable[[Any, Any], str]:
    """Return the function for the arguments of `trainers.run`; derived, as above (the key names them all)."""

    def arguments(wildcards: Any, output: Any) -> str:
        stage = PLAN.stage(id, wildcards.key)
        words = ["--config", f"{stage.dir}/config.json", "--out", str(stage.dir), "--label", stage.label]
        for name, folder in stage.inputs.items():
            words += ["--input", f"{name}={folder}"]
        return shlex.join(words)

    return arguments


def has_curves(study: str) -> bool:
    """Tell whether a study declares learning curves, and so gets a figure of them."""
    return bool(PLAN.studies[study].definition["curves"])


def render_what_is_there() -> None:
    """Collect and render after an error that kept the rules from doing so: a stage that left no status."""
    if all(status.exists() for status in PLAN.statuses()):
        return
    for command in ("collect", "tables", "figures", "report"):
        subprocess.run(shlex.split(f"{TRACKER} {command} {FOLDERS}"), check=False)


PLAN = load_plan()
STUDIES = list(PLAN.studies)
PLAN_DIGEST = hashlib.sha256(json.dumps(PLAN.as_dict(), sort_keys=True).encode()).hexdigest()[:16]
RESULTS, REPORTS = str(PLAN.settings.results), str(PLAN.settings.reports)

# The interpreter that runs Snakemake also runs the jobs, unless each job has an environment of its own.
PYTHON = "python" if workflow.deployment_settings.deployment_method else shlex.quote(sys.executable)
TRACKER = f"{PYTHON} -m tracker"
FOLDERS = shlex.join(["--results", RESULTS, "--reports", REPORTS])
# exec: the trainer is Snakemake's own child and ends with it, also when Snakemake is killed.
RUN_STAGE = (
    f"exec {PYTHON} -m trainers.run {{params.arguments}}" " --gpus {resources.gpu} --threads {threads} --parent $PPID"
)


wildcard_constraints:
    key="[0-9a-f]{16}",
