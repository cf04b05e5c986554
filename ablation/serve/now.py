"""The running stages, their progress and time left: looked up on request, at most every few seconds."""

import hashlib
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ablation.contract.errors import TrackerError
from ablation.contract.reading import duration
from ablation.contract.stage_folder import DATABASE, Progress
from ablation.contract.status import FAILED
from ablation.plan.collected import PLAN_FILE
from ablation.store.progress import StageView, look, summary

RARELY = 2.0  # seconds between two looks at the stage folders, at least
SHARE = 0.05  # share of one processor that looking may take
_OBSERVED = 15.0  # seconds after which a stage's pace is the one observed here, not its average since it started
_SILENT = 120.0  # seconds without progress, after which no time left is given
_BESIDE = (PLAN_FILE, "imported/*/study.json")  # sources of a page other than the stages
_MOST = 40  # rows of a list; of ten thousand stages a cluster may run hundreds


@dataclass(frozen=True)
class RunningStage:
    """A running stage. left, silent: seconds, or None if unknown or not applicable."""

    stage: str
    run: str
    done: float | None
    total: float | None
    unit: str
    left: float | None
    silent: float | None

    @property
    def steps(self) -> str:
        """`7 of 12 steps`."""
        return "starting" if self.done is None else f"{self.done:g} of {self.total:g} {self.unit}"

    @property
    def words(self) -> str:
        """The time left, or why there is none."""
        if self.silent is not None:
            return f"no step for {duration(self.silent)}"
        if self.left is None:
            return "not known yet"
        if self.left <= 0:
            return "longer than its pace predicted"
        return f"about {duration(self.left)}"


@dataclass(frozen=True)
class Now:
    """The grid as it is. results: a digest of a page's sources, None if there is nothing to draw.

    studies: {study, stages, ok, failed, running, waiting}: how many stages are in which state. running and failed are
    cut; `total` has their full length. failed: {stage, run, state, reason}. problem: why the stages cannot be read.
    """

    results: str | None
    text: str
    studies: Sequence[Mapping[str, Any]] = ()
    running: Sequence[RunningStage] = ()
    failed: Sequence[Mapping[str, str]] = ()
    problem: str = ""

    def total(self, name: str) -> int:
        """The sum of `ok`, `failed`, `running`, `waiting` or `stages` over the studies."""
        return sum(study[name] for study in self.studies)


class Watcher:
    """Looks at a results folder for all requests; the more expensive a look, the older `now` may be."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._alone = threading.Lock()
        self._due = 0.0
        self._known: Now | None = None
        self._seen: dict[Path, Progress] = {}

    def now(self) -> Now:
        """Return the grid as it is, or was a few seconds ago."""
        with self._alone:
            if self._known is None or time.monotonic() >= self._due:
                before = time.thread_time()
                self._known = self._look(time.time())
                self._due = time.monotonic() + max(RARELY, (time.thread_time() - before) / SHARE)
            return self._known

    def _look(self, now: float) -> Now:
        if not (self._results / PLAN_FILE).exists():
            return _without_plan(self._results)
        try:
            views = look(self._results, now)
        except (TrackerError, OSError) as error:
            return Now(None, "The stages cannot be looked at.", problem=str(error))
        views = [self._paced(view, now) for view in views]
        self._seen = {view.folder: self._seen.get(view.folder, view.progress) for view in views if view.progress}
        running = [_running(view, now) for view in views if view.state.state == "running"]
        failed = [view for view in views if view.state.state in FAILED and view.state.state != "blocked"]
        return Now(
            _digest_of(self._results, views),
            summary(views, now),
            [_study(name, views) for name in dict.fromkeys(view.study for view in views)],
            running[:_MOST],
            [
                {"stage": view.kind, "run": view.label, "state": view.state.state, "reason": view.state.reason}
                for view in failed[:_MOST]
            ],
        )

    def _paced(self, view: StageView, now: float) -> StageView:
        """Use the pace observed here: for a resumed stage there is no other."""
        progress, first = view.progress, self._seen.get(view.folder)
        if progress is None or first is None or first.started != progress.started:
            self._seen.pop(view.folder, None)
            return view
        took, made = progress.updated - first.updated, progress.done - first.done
        if took < _OBSERVED or made <= 0:
            return view
        left = (progress.total - progress.done) * took / made - max(0.0, now - progress.updated)
        return replace(view, left=max(0.0, left))


def _running(view: StageView, now: float) -> RunningStage:
    progress = view.progress
    if progress is None:
        return RunningStage(view.kind, view.label, None, None, "", None, None)
    a_step = (progress.updated - progress.started) / progress.done if progress.done > 0 else 0.0
    silent = now - progress.updated
    known = silent if silent > max(_SILENT, 3 * a_step) else None
    left = view.left if known is None else None
    return RunningStage(view.kind, view.label, progress.done, progress.total, progress.unit, left, known)


def _study(name: str, views: Sequence[StageView]) -> dict[str, Any]:
    states = [view.state.state for view in views if view.study == name]
    counts = {"ok": states.count("ok"), "running": states.count("running"), "waiting": states.count("missing")}
    return {"study": name, "stages": len(states), "failed": sum(state in FAILED for state in states)} | counts


def _without_plan(results: Path) -> Now:
    """Runs made elsewhere, or only a database; or nothing yet."""
    if (results / DATABASE).exists() or any(results.glob(_BESIDE[-1])):
        return Now(_digest_of(results, ()), "Nothing runs here: these results were made elsewhere.")
    text = "Nothing has been planned yet. The report comes when the first stages have ended."
    return Now(None, text, problem=f"{results}: nothing has been planned, run or imported here")


def _digest_of(results: Path, views: Sequence[StageView]) -> str:
    """A digest of a page's sources: how stages ended, what running ones logged, and the other files."""
    states = [(view.folder.name, view.state.state, view.state.ended, view.state.attempt) for view in views]
    logged = [_stamp(view.folder / "metrics.parquet") for view in views if view.state.state == "running"]
    names = _BESIDE if views else (*_BESIDE, DATABASE)
    beside = [_stamp(path) for name in names for path in sorted(results.glob(name))]
    return hashlib.sha256(json.dumps([states, logged, beside]).encode()).hexdigest()[:16]


def _stamp(path: Path) -> Any:
    try:
        found = path.stat()
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_size, found.st_ino]
