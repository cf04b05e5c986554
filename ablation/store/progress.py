"""Report the progress of the grid, its running stages and the time left, from the stage folders as they are now.

`failures` reads the database instead, because a grid continues after a failure, and its last job reports all failures.
"""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted, duration, stated
from ablation.contract.stage_folder import Progress, read_attempt, read_progress
from ablation.contract.status import FAILED, TO_COME, StageState, read_state
from ablation.plan.collected import PLAN_FILE
from ablation.plan.plan_file import PlannedStage, read_plan

BAR = 24
WATCH_SECONDS = 5


@dataclass(frozen=True)
class StageView:
    """The current state of one planned stage.

    `left` is the estimated time in seconds that a running stage still needs; None if unknown or if the stage was
    restarted, because its steps may be from earlier attempts.
    """

    kind: str
    study: str
    label: str
    folder: Path
    state: StageState
    progress: Progress | None
    left: float | None


def stage_views(results: Path, now: float) -> list[StageView]:
    """Return the state of every stage in the plan; `now` is in seconds since the epoch."""
    plan = read_plan(results / PLAN_FILE)
    places = plan.folders(results)
    return [_view(stage, places[stage.key], now) for stage in plan.stages]


def _view(stage: PlannedStage, folder: Path, now: float) -> StageView:
    state = read_state(folder, stage.key)
    progress = read_progress(folder) if state.state == "running" else None
    left = progress.seconds_left(now) if progress and read_attempt(folder) == 1 else None
    return StageView(stage.id, stage.study, stage.label, folder, state, progress, left)


def seconds_left(views: list[StageView], now: float) -> tuple[float, int]:
    """Return (estimated seconds until the grid is done, number of stages left out of the estimate).

    A running stage counts with its own estimate, if known. Any other stage to come counts with the median time of the
    finished stages of its kind, or else the expected time of the running ones; without either, the stage is left out.
    The number of stages that run at a time is assumed to stay as it is now.
    """
    took: dict[str, list[float]] = {}
    for view in views:
        if view.state.state == "ok" and view.state.wall_s is not None:
            took.setdefault(view.kind, []).append(view.state.wall_s)
    for view in views:
        if view.kind not in took and view.progress and view.left is not None:
            took.setdefault(view.kind, []).append(now - view.progress.started + view.left)
    work, unknown = [], 0
    for view in views:
        if view.state.state == "running" and view.left is not None:
            work.append(view.left)
        elif view.state.state in TO_COME:
            if view.kind in took:
                work.append(median(took[view.kind]))
            else:
                unknown += 1
    slots = max(1, sum(view.state.state == "running" for view in views))
    return max(sum(work) / slots, max(work, default=0.0)), unknown


def describe(results: Path, now: float | None = None) -> str:
    """Return the text that `status` prints: a line for each study, running stages, failures, and the time left."""
    now = time.time() if now is None else now
    views = stage_views(results, now)
    return "\n".join([*_studies(views), *_running(views), *_failures(views), "", summary(views, now)]) + "\n"


def as_rows(results: Path) -> list[dict[str, Any]]:
    """Return a row for the current state of every planned stage."""
    views = stage_views(results, time.time())
    return [
        {
            "study": view.study,
            "stage": view.kind,
            "label": view.label,
            "folder": view.folder,
            "state": view.state.state,
            "reason": view.state.reason,
            "done": view.progress and view.progress.done,
            "total": view.progress and view.progress.total,
            "seconds_left": view.left,
        }
        for view in views
    ]


def watch(results: Path) -> Iterator[str]:
    """Yield the status text every few seconds until nothing is left to run."""
    while True:
        yield describe(results)
        if all(view.state.state not in TO_COME for view in stage_views(results, time.time())):
            return
        time.sleep(WATCH_SECONDS)


def _studies(views: list[StageView]) -> list[str]:
    names = list(dict.fromkeys(view.study for view in views))
    width = max(map(len, names), default=0)
    lines = []
    for name in names:
        states = Counter(view.state.state for view in views if view.study == name)
        total, done = states.total(), states["ok"]
        bar = "#" * (BAR * done // total)
        counts = [f"{done}/{total} done"] + [f"{states[s]} {s}" for s in (*FAILED, *TO_COME) if states[s]]
        lines.append(f"{name:<{width}}  [{bar:<{BAR}}]  {', '.join(counts)}")
    return lines


def _running(views: list[StageView]) -> list[str]:
    running = [view for view in views if view.state.state == "running"]
    lines = []
    for view in running:
        now = view.progress
        far = f"{stated(now.done)}/{stated(now.total)} {now.unit}" if now else "starting"
        left = "" if view.left is None else f", {duration(view.left)} left"
        lines.append(f"  {view.kind}  {view.label}: {far}{left}")
    return ["", "running", *lines] if lines else []


def _failures(views: list[StageView]) -> list[str]:
    failed = [view for view in views if view.state.state in FAILED]
    blocked = sum(view.state.state == "blocked" for view in failed)
    lines = []
    for view in failed:
        if view.state.state != "blocked":
            lines.append(f"  {view.kind}  {view.label}: {view.state.state}: {view.state.reason or 'no reason given'}")
            lines.append(f"    {view.folder / 'log.txt'}")
    if blocked:
        lines.append(f"  {blocked} more {'stage is' if blocked == 1 else 'stages are'} blocked by failed stages")
    return ["", "failed (`snakemake ... --config retry=failed` runs them again)", *lines] if lines else []


def summary(views: list[StageView], now: float) -> str:
    """Return one line that states how many stages are left to run and about how long they take."""
    waiting = sum(view.state.state in TO_COME for view in views)
    if not waiting:
        return "nothing is left to run"
    left, unknown = seconds_left(views, now)
    if unknown == waiting:
        return f"{counted(waiting, 'stage')} to run; the time left is unknown until one stage of each kind has finished"
    more = f", not counting {counted(unknown, 'stage')} of kinds that have never finished" if unknown else ""
    busy = any(view.state.state == "running" for view in views)
    guess = f"about {duration(left)} {'left' if busy else 'of work'}{more}"
    return f"{counted(waiting, 'stage')} to run, {guess}" + ("" if busy else "; nothing is running now")


def failures(database: Path) -> tuple[str, bool]:
    """Return (report on failed stages, whether no stage failed). Stages that never ran are only counted.

    Raises ConfigError if no stage has run.
    """
    from ablation.store.database import Store  # late: progress needs no database

    query = """SELECT state, study, stage, label, reason, dir FROM stages
               WHERE study NOT IN (SELECT study FROM studies WHERE definition->>'imported' <> '') ORDER BY rowid"""
    with Store(database) as store:
        stages = store.rows(query)[1]
    failed = [row for state in FAILED for row in stages if row[0] == state]
    done, waiting = (sum(row[0] in states for row in stages) for states in (("ok",), TO_COME))
    if not done and not failed:
        remedy = "run `snakemake`, or `ablation gate STUDY` for imported runs"
        raise ConfigError(database, "stages", None, "no stage of the plan has run", remedy)
    lines = []
    for state, study, stage, label, reason, folder in failed:
        identity = study if study == stage else f"{study}.{stage}"
        lines.append(f"{state}: {identity} {label}: {reason or 'no reason given'} ({folder})")
    counts = f"{counted(done, 'stage')} ok, {len(failed)} not ok" + (f", {waiting} not run" if waiting else "")
    if lines:
        lines.append("`snakemake ... --config retry=failed` runs the failed stages again")
    return "\n".join([*lines, counts]) + "\n", not failed
