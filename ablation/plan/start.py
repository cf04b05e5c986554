"""Start of the workflow, before the first job.

load_jobs(workflow, config, scheduler) -> the jobs, in which the rules look up their files and resources.
prepare(plan, states) -> lines to print, after all checks have passed and the plan's files have been written.
follow(plan, states) -> a thread that draws the page after each seed while the grid runs, in a separate process.
"""

import _thread
import atexit
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ablation.config.settings import load_settings
from ablation.contract.display import joined
from ablation.contract.errors import TrackerError, explained
from ablation.plan import retry
from ablation.plan.build import PROJECT, build_plan
from ablation.plan.checks import check_packages, check_pool, check_trees, idle_devices
from ablation.plan.collected import claim_reports
from ablation.plan.cost import say_due
from ablation.plan.jobs import Jobs
from ablation.plan.order import turns
from ablation.plan.plan_file import Plan
from ablation.plan.retry import States, pending, states_of

# The workflow imports only this module, which therefore exports other names as well.
__all__ = ["WORKFLOW", "TrackerError", "build_plan", "explained", "load_jobs", "load_settings", "prepare"]

WORKFLOW = str(Path(__file__).resolve().parents[1] / "workflow")  # rules, profiles, captions
_POLL = 5.0  # seconds between two polls
_SHORT = 60.0  # seconds before the first page
_SHARE = 0.1  # largest share of the time for drawing pages


def load_jobs(workflow: Any, config: Mapping[str, Any], scheduler: type) -> Jobs:
    """Return the jobs of the plan for configs/ and `--config`.

    Only the process that starts jobs writes the plan and locks the results; a dry run, `--lint` and the processes of
    jobs change nothing. Processes of jobs, on a scheduler's nodes, have no `--resources`, so they do not check devices.

    Args:
        workflow: Snakemake's `workflow` object.
        config: the values of `--config`.
        scheduler: Snakemake's scheduler class.

    Raises TrackerError if the configuration is wrong or the grid cannot start, OSError if results cannot be written.
    """
    gpu_resource = workflow.global_resources.get("gpu")
    pool = None if gpu_resource is None else gpu_resource.value
    main, dry_run = workflow.is_main_process, workflow.output_settings.dryrun
    plan = build_plan(load_settings(config), pool if main else sys.maxsize)
    os.environ.pop("ABLATION_WANDB", None)
    if plan.settings.wandb:
        os.environ["ABLATION_WANDB"] = plan.settings.wandb  # stages inherit it
    _say(selection_note(plan) if main else [])
    states = None
    if main and dry_run:
        states = states_of(plan)
        check_pool(plan, states)
        _say(retry.reasons(plan, states))
        atexit.register(say_due, plan, states)  # Snakemake has no handler for the end of a dry run
    elif main and "--lint" not in sys.argv:  # Snakemake's object does not show `--lint` yet
        lock = hold(plan.settings.results)
        end_within(30, scheduler)
        _prefer_own_sacct()
        states = states_of(plan)
        _say(prepare(plan, states))
        os.utime(lock)  # jobs take over results that are newer than the lock, which is from the last accepted start
        follow(plan, states)
    if pool is None and main:  # without `--resources gpu=...` Snakemake would not limit devices
        workflow.register_resource("gpu", plan.settings.gpus)
    return Jobs(plan, workflow, states)


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)


def hold(results: Path) -> int:
    """Lock the results until this process ends, so that no second Snakemake runs the same stages; return the handle.

    The lock replaces Snakemake's own (the profile sets `nolock`), which would remain after a kill.
    """
    results.mkdir(parents=True, exist_ok=True)
    lock = results / ".lock"
    handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        remedy = "wait until it ends, or name other folders with --config results=... reports=..."
        raise TrackerError(f"{results}: another snakemake is running here; {remedy}") from None
    except OSError as error:  # for example Lustre without `flock`
        problem = f"cannot be locked ({error.strerror})"
        remedy = "mount the file system with file locks, or name other folders with --config results=... reports=..."
        raise TrackerError(f"{lock}: {problem}; {remedy}") from None
    return handle


def end_within(seconds: float, scheduler: type) -> None:
    """Let SIGTERM end Snakemake: no more jobs start, and jobs that still run after this many seconds are ended.

    Snakemake's own handler would run in the main thread and take a lock that this thread may already hold, so it could
    wait forever. Here it runs in a separate thread.
    """
    gracefully = scheduler.exit_gracefully  # type: ignore[attr-defined]

    def end() -> None:
        time.sleep(seconds)
        os.write(2, b"error: ended by SIGTERM; run the same command to continue\n")
        os._exit(128 + signal.SIGTERM)  # jobs on this machine end with this process; a scheduler's jobs continue

    def handle(scheduler: Any, *signal_and_frame: Any) -> None:
        _thread.start_new_thread(gracefully, (scheduler,))  # `threading` would take locks here
        _thread.start_new_thread(end, ())

    scheduler.exit_gracefully = handle  # type: ignore[attr-defined]


def _prefer_own_sacct() -> None:
    """Put the profile's `sacct` (which explains why) before Slurm's on the path; do nothing without Slurm."""
    if shutil.which("sbatch"):
        folder = os.path.join(WORKFLOW, "profiles", "slurm", "bin")
        os.environ.update(PATH=os.pathsep.join([folder, *os.get_exec_path()]))


def selection_note(plan: Plan) -> list[str]:
    """Return a line for each study with the parents that are selected in addition to the named variants."""
    return [
        f"{study}: {joined(parents)} {'runs' if len(parents) == 1 else 'run'} as well, because a variant is judged "
        "against its parent"
        for study, parents in plan.parents_added.items()
    ]


def prepare(plan: Plan, states: States, root: Path | None = None) -> list[str]:
    """Set aside results that are to be made again, write plan.json and config.json, and return lines for the user.

    states: the current states of all stages, which are updated in place; stages that run again become `missing`. Raises
    ConfigError if a study refuses uncommitted files and there are some below `root`, by default the project; if a
    stage's folder is a link; if the folder of reports shows other results; or if a stage that is to run needs more
    devices than there are, or a package that is not installed.
    """
    claim_reports(plan.settings.results, plan.settings.reports)
    retry.refuse_links(plan)
    actions = retry.decide(plan, states)
    states.update(actions.states)
    # All checks come before results are set aside, so that a refused start changes nothing.
    check_packages(plan, states)
    check_pool(plan, states)
    warnings = check_trees(plan, root or plan.settings.configs.parent, states)
    warnings += idle_devices(pending(plan, states), root or PROJECT)
    retry.apply(plan, actions)
    return [*actions.lines(plan), *(f"warning: {warning}" for warning in warnings)]


def follow(plan: Plan, states: States, *, short: float = _SHORT, poll: float = _POLL) -> threading.Thread | None:
    """Start and return the thread that draws the page while the grid runs; None if no page is due before its end."""
    waiting = parts(plan, states)
    if not waiting:
        return None
    command = [sys.executable, "-m", "ablation", "--parent", str(os.getpid()), "report", "--so-far"]
    command += ["--results", str(plan.settings.results), "--reports", str(plan.settings.reports)]
    thread = threading.Thread(target=_follow, args=(waiting, command, short, poll), name="pages", daemon=True)
    thread.start()
    return thread


def parts(plan: Plan, states: States) -> list[list[Path]]:
    """Return groups of status files, each followed by a page: the first study's first seed, then each seed.

    The last group is left out, because the grid draws the page at its end.
    """
    order = turns(plan)
    statuses: dict[tuple[int, bool], list[Path]] = {}
    for stage in pending(plan, states):
        seed, study = order[stage.address]
        statuses.setdefault((seed, seed + study > 0), []).append(stage.status)
    return [statuses[part] for part in sorted(statuses)[:-1]]


def _follow(waiting: list[list[Path]], command: list[str], short: float, poll: float) -> None:
    due = time.monotonic() + short
    while waiting:
        time.sleep(poll)
        for part in waiting:
            while part and part[-1].exists():
                part.pop()
        if all(waiting) or time.monotonic() < due:
            continue
        waiting = [part for part in waiting if part]
        begun = time.monotonic()
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, check=False)
        due = time.monotonic() + (time.monotonic() - begun) / _SHARE
