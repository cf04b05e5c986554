# The plan, and the functions by which rules look up a stage in it. The rules themselves only name files.
import _thread
import contextlib
import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snakemake.scheduling.job_scheduler import JobScheduler

from ablation.plan.start import (
    COMMAND,
    FORK_CLIENT,
    WORKFLOW,
    Groups,
    Plan,
    States,
    TrackerError,
    Waits,
    build_plan,
    check_nodes,
    check_pool,
    explained,
    groups_of,
    load_settings,
    prepare,
    reasons,
    refuse_hiding,
    request_of,
    selection_note,
    states_of,
    to_do,
    waits_of,
)


def load_plan() -> tuple[Plan, States | None]:
    """Return the plan for configs/ and `--config`; a wrong configuration ends Snakemake with one line.

    With it, if jobs are about to start or to be named, the states of its stages.

    Only the process that starts the jobs writes it down and holds the results; a dry run, `--lint` and the processes of the
    jobs change nothing. The latter, which a scheduler starts on its nodes, are not told of `--resources`: nothing is
    checked or limited there.
    """
    pool = workflow.global_resources["gpu"].value if "gpu" in workflow.global_resources else None
    if not workflow.is_main_process:
        pool = sys.maxsize
    states = None
    try:
        refuse_hiding()
        plan = build_plan(load_settings(config), pool)
        if plan.settings.wandb:
            os.environ.update(ABLATION_WANDB=plan.settings.wandb)  # what the stages read
        # At this point Snakemake itself does not know yet that it only lints.
        executes = not workflow.output_settings.dryrun and "--lint" not in sys.argv
        if workflow.is_main_process:
            for line in selection_note(plan):
                print(line, file=sys.stderr)
        if workflow.is_main_process and executes:
            last = hold_results(plan)
            end_within(30)
            prefer_own_sacct()
            try:
                states = states_of(plan)
                said = prepare(plan, states)
            except (TrackerError, OSError):  # refused: no grid has started
                with contextlib.suppress(PermissionError):  # the file is another user's
                    os.utime(results_lock.fileno(), ns=(last, last))
                raise
            for line in said:
                print(line, file=sys.stderr)
        elif workflow.is_main_process and workflow.output_settings.dryrun:
            states = states_of(plan)
            check_pool(plan, states)
            for line in reasons(plan, states):
                print(line, file=sys.stderr)
    except (TrackerError, OSError) as error:  # OSError: a full disk, or results that cannot be written
        sys.exit(f"error: {explained(error)}")
    if pool is None:  # without a number nothing would be limited
        workflow.register_resource("gpu", plan.settings.gpus)
    return plan, states


def hold_results(plan: Plan) -> int:
    """Lock the results for the life of this process, so that no second Snakemake runs the same stages.

    Snakemake's own lock is off (the profile's `nolock`): it outlives a kill, this one does not. Returns when the last one
    started, in nanoseconds; 0 where none has.
    """
    global results_lock
    plan.settings.results.mkdir(parents=True, exist_ok=True)
    lock = plan.settings.results / ".lock"
    last = lock.stat().st_mtime_ns if lock.exists() else 0
    results_lock = open(lock, "a")
    try:
        fcntl.flock(results_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(
            f"error: {plan.settings.results}: another snakemake runs here; wait for it, or set results=... and reports=..."
        )
    except OSError as error:  # Lustre without `flock`, say
        problem = f"cannot be locked ({error.strerror})"
        sys.exit(f"error: {lock}: {problem}; mount its file system with locks, or set results=... and reports=...")
    os.utime(results_lock.fileno())  # results younger than this are of this run, or of a killed one's jobs
    return last


def end_within(seconds: float) -> None:
    """Let SIGTERM end Snakemake: it starts no more jobs, and what still runs after so many seconds ends with it.

    Its own handler takes a lock that the main thread, which Python runs it in, may be holding already: then it waits for
    itself, for good, and holds the results (docs/faults.md). A thread of its own waits for nobody but the others.
    """
    gracefully = JobScheduler.exit_gracefully

    def end() -> None:
        time.sleep(seconds)
        os.write(2, b"error: ended by SIGTERM; repeat the call to go on\n")
        os._exit(128 + signal.SIGTERM)  # jobs on this machine end with it, those of a scheduler go on

    def handle(scheduler: JobScheduler, *signal_and_frame: Any) -> None:
        _thread.start_new_thread(gracefully, (scheduler,))  # `threading` would take locks here
        _thread.start_new_thread(end, ())

    JobScheduler.exit_gracefully = handle


def prefer_own_sacct() -> None:
    """Let the Slurm plugin find our `sacct` first; the file says why. Without Slurm nothing happens."""
    if shutil.which("sbatch"):
        folder = os.path.join(WORKFLOW, "profiles", "slurm", "bin")
        os.environ.update(PATH=os.pathsep.join([folder, *os.get_exec_path()]))


def statuses(wildcards: Any) -> list[str]:
    """Return the status files that the grid consists of; where only jobs are asked for, without those that start none.

    It is an input function, so that it is called when Snakemake knows what it was asked for.
    """
    global STATES
    if runs_here() and workflow.scheduling_settings is not None:
        # 100 jobs a second by default: each round of the scheduler starts a timer, and each timer another round.
        workflow.scheduling_settings.max_jobs_per_timespan = None
    if not only_jobs():
        return PLAN.statuses()
    if STATES is None:
        STATES = states_of(PLAN)
    try:
        check_nodes(PLAN, STATES, on_slurm=runs_on_slurm())
    except TrackerError as error:
        sys.exit(f"error: {error}")
    return [stage.status for stage in to_do(PLAN, STATES)]


def only_jobs() -> bool:
    """Tell whether jobs are to start (or, in a dry run, to be named) for what is missing, and nothing else.

    Then stages that have ended can be left out of Snakemake's graph, of which it takes a millisecond and more for each.
    Summaries, graphs, reports and `--delete-all-output` (which execute nothing), `--forcerun`, `--until`, `--touch` and the
    like, and reasons to run that only Snakemake knows of, are about all stages.
    """
    asked = workflow.dag_settings
    return (
        workflow.is_main_process
        and workflow.execution_settings is not None
        and not workflow.touch
        and not (asked.forceall or asked.forcerun or asked.until or asked.omit_from or asked.batch)
        and {str(trigger) for trigger in asked.rerun_triggers} <= {"mtime", "params"}
    )


def folder_of(id: str) -> str:
    """Return the folder of a stage, by its id (`debias.train`), with the wildcard {key}."""
    return f"{PLAN.settings.results}/stages/{id.replace('.', '/')}/{{key}}"


def inputs_of(id: str) -> Callable[[Any], list[str]]:
    """Return the input function of a stage: the status files of the stages that it reads, and of the first run."""

    def statuses(wildcards: Any) -> list[str]:
        folders = [*PLAN.stage(id, wildcards.key).inputs.values(), *first_run(id, wildcards.key)]
        return [f"{folder}/status.json" for folder in folders]

    return statuses


def first_run(id: str, key: str) -> list[Path]:
    """Return the folders of the first run whose files must have been read before a command of another starts."""
    return [PLAN.stage(*address).dir for address in waits().get((id, key), ())]


def waits() -> Waits:
    """Return which commands wait for the first run of their study."""
    global STATES, WAITS
    if WAITS is None:
        commands = any(stage.entry == COMMAND for stage in PLAN.stages.values())
        if STATES is None and commands:
            STATES = states_of(PLAN)
        WAITS = waits_of(PLAN, STATES) if commands else {}
    return WAITS


def resource_of(id: str, name: str) -> Callable[[Any], int]:
    """Return the function for threads, mem_mb, runtime (minutes) or gpu of a stage."""
    return lambda wildcards: getattr(PLAN.stage(id, wildcards.key).resources, name)


def runs_here() -> bool:
    """Tell whether this Snakemake runs the jobs itself; of a dry run only `--jobs`, or the profile, says so."""
    if workflow.output_settings.dryrun:
        return workflow.resource_settings.nodes is None
    return workflow.is_main_process and workflow.local_exec


def runs_on_slurm() -> bool:
    """Tell whether Slurm runs the jobs. A dry run does not know its scheduler: with `--jobs`, or a profile, it may be."""
    if workflow.output_settings.dryrun:
        return not runs_here()
    return workflow.executor_plugin.name == "slurm"


def nodes_of(id: str) -> dict[str, Any]:
    """Return the resources of a stage on several machines, in the words of the Slurm plugin; none for others.

    With `mpi` it starts the job in the batch script, on the first machine, and no step around it: the stage starts a step
    of its own on all of them. `--gpus`, of the plugin, are all devices of the job.
    """
    needs = next((stage.resources for address, stage in PLAN.stages.items() if address[0] == id), None)
    if needs is None or needs.nodes == 1:
        return {}
    extra = (workflow.resource_settings.default_resources or {}).get("slurm_extra")
    nodes, words = needs.nodes, f"{extra.raw} " if extra is not None and extra.raw else ""

    def asked(wildcards: Any) -> str:
        each = PLAN.stage(id, wildcards.key).resources.gpu // nodes  # a variant may have another `gpu`
        return f"{words}--gpus-per-node={each} --ntasks-per-node=1"

    return {
        "nodes": nodes,
        "mpi": "srun",
        "tasks": nodes,
        "tasks_per_gpu": 0,  # or `tasks` would be for each device
        "slurm_extra": asked,
    }


def group_of(id: str) -> Callable[[Any], str | None]:
    """Return the function for the name of a stage's group: on a scheduler it is submitted as one job."""

    def name(wildcards: Any) -> str | None:
        group = groups().get((id, wildcards.key))
        return group.name if group else None

    return name


def groups() -> Groups:
    """Return the groups of stages; none where this Snakemake runs the jobs itself."""
    global GROUPS
    if GROUPS is None:
        GROUPS = {} if runs_here() else groups_of(PLAN, {address for ahead in waits().values() for address in ahead})
    return GROUPS


def scheduler_request(id: str) -> dict[str, Callable[[Any], int | str]]:
    """Return the resources by which the profile asks its scheduler, in its own words, for what a stage needs.

    They are the default resources that contain `{gpu}`, `{mem_mb}`, `{runtime}` (minutes) or `{seconds}`, as in
    `lsf_extra: -gpu num={gpu}`; what contains `{gpu}` is empty, or 0, where the stage needs no device. A plugin that
    reads `gpu`, `mem_mb` and `runtime` itself needs none.
    """
    defaults = workflow.resource_settings.default_resources or {}
    words = {name: str(default.raw) for name, default in defaults.items()}
    asked = {name: word for name, word in words.items() if re.search(r"\{(gpu|mem_mb|runtime|seconds)\}", word)}

    def in_words(word: str) -> Callable[[Any], int | str]:
        def request(wildcards: Any) -> int | str:
            # What plain numbers come to in a group Snakemake finds itself; minutes, and text, must be the group's.
            plain = word in ("{gpu}", "{mem_mb}")
            needs = request_of(PLAN, {} if plain else groups(), (id, wildcards.key))
            if "{gpu}" in word and not needs.gpu:
                return 0 if word == "{gpu}" else ""
            numbers = {"gpu": needs.gpu, "mem_mb": needs.mem_mb, "runtime": needs.runtime}
            text = word.format(**numbers, seconds=60 * needs.runtime)
            return int(text) if text.isdigit() else text

        return request

    return {name: in_words(word) for name, word in asked.items()}


def label_of(id: str) -> Callable[[Any, Any], str]:
    """Return the function for the variants and the seed that a stage serves.

    It takes `output`, which makes it a derived param: a variant that joins a shared stage changes the label, and only
    params that are not derived make Snakemake run a job again.
    """
    return lambda wildcards, output: PLAN.stage(id, wildcards.key).label


def arguments_of(id: str) -> Callable[[Any, Any], str]:
    """Return the function for the arguments of `ablation.runner.run`; derived, as above (the key names them all)."""

    def arguments(wildcards: Any, output: Any) -> str:
        words = PLAN.stage(id, wildcards.key).arguments
        for folder in first_run(id, wildcards.key):
            words += ["--first", str(folder)]
        return shlex.join(words)

    return arguments


def start_of(id: str) -> Callable[[Any, Any], str]:
    """Return the function for what Python starts: a fork of a process that has torch imported, or a process of its own.

    A command is a process of its own in any case. Derived, as above.
    """
    return lambda wildcards, output: FORK if FORKS and PLAN.stage(id, wildcards.key).entry != COMMAND else ALONE


def has_curves(study: str) -> bool:
    """Tell whether a study declares learning curves, and so gets a figure of them."""
    return bool(PLAN.studies[study].written.curves)


def kept_report(file: str, **words: Any) -> str:
    """Mark a file for `snakemake --report`; `update` keeps it until its new version replaces it."""
    return update(report(file, **words))


def render_what_is_there() -> None:
    """Collect and render after an error that kept the rules from doing so: a stage that left no status."""
    if all(status.exists() for status in PLAN.statuses()):
        return
    for command in ("collect", "tables", "figures", "report"):
        subprocess.run(shlex.split(f"{PYTHON} -m ablation {command} {FOLDERS}"), check=False)


PLAN, STATES = load_plan()
GROUPS: Groups | None = None
WAITS: Waits | None = None
STUDIES = list(PLAN.studies)
PLAN_DIGEST = PLAN.digest
RESULTS, REPORTS = str(PLAN.settings.results), str(PLAN.settings.reports)

ENVIRONMENT = os.path.join(workflow.basedir, "environment.yml")  # beside the Snakefile; looked at with --sdm conda only

# The interpreter that runs Snakemake also runs the jobs, unless each job has an environment of its own.
PYTHON = "python" if workflow.deployment_settings.deployment_method else shlex.quote(sys.executable)
# exec: what Snakemake starts is its own child and ends with it, also when Snakemake is killed.
TRACKER = f"exec {PYTHON} -m ablation --parent $PPID"
# Errors also go to the terminal: on a full disk there is no log to read them from.
LOGGED = "> {log:q} 2> >(tee -a {log:q} >&2)"
FOLDERS = shlex.join(["--results", RESULTS, "--reports", REPORTS])
# Where this Snakemake runs the jobs itself they start from a process that has torch imported; never on a scheduler's nodes,
# where each job has a Snakemake of its own, and not in an environment of the job.
FORKS = (
    PLAN.settings.fork_server
    and workflow.is_main_process
    and not workflow.deployment_settings.deployment_method
    and sys.platform == "linux"
)
FORK = f"-I -S {shlex.quote(FORK_CLIENT)}"
ALONE = "-m ablation.runner.run"
RUN_STAGE = (
    f"exec {PYTHON} {{params.start}} {{params.arguments}} --since {shlex.quote(f'{RESULTS}/.lock')}"
    " --threads {threads} --wait {resources.runtime} --parent $PPID"
)


wildcard_constraints:
    key="[0-9a-f]{16}",
