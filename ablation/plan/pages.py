"""The page while the grid runs: a thread of the process that starts the jobs has it drawn after each seed.

Drawing is a process of its own that gives way to the stages. It reads their folders and writes the page, nothing else.
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from ablation.plan.order import turns
from ablation.plan.plan import Plan
from ablation.plan.retry import States, pending

_LOOK = 5.0  # seconds between two looks
_SHORT = 60.0  # seconds, in which a grid may end without a page before the last
_SHARE = 0.1  # share of the time that drawing may take


def follow(plan: Plan, states: States, *, short: float = _SHORT, look: float = _LOOK) -> threading.Thread | None:
    """Start the thread that draws; None if only the last page is still to come."""
    waiting = parts(plan, states)
    if not waiting:
        return None
    command = [sys.executable, "-m", "ablation", "--parent", str(os.getpid()), "report", "--so-far"]
    command += ["--results", str(plan.settings.results), "--reports", str(plan.settings.reports)]
    thread = threading.Thread(target=_follow, args=(waiting, command, short, look), name="pages", daemon=True)
    thread.start()
    return thread


def parts(plan: Plan, states: States) -> list[list[Path]]:
    """Return the statuses to come after which a page is drawn: the first study's with its first seed, then each seed's.

    Not the last seed's, which the grid's own page shows.
    """
    order = turns(plan)
    found: dict[tuple[int, bool], list[Path]] = {}
    for stage in pending(plan, states):
        seed, study = order[stage.id, stage.key]
        found.setdefault((seed, seed + study > 0), []).append(stage.status)
    return [found[part] for part in sorted(found)[:-1]]


def _follow(waiting: list[list[Path]], command: list[str], short: float, look: float) -> None:
    due = time.monotonic() + short
    while waiting:
        time.sleep(look)
        for part in waiting:
            while part and part[-1].exists():
                part.pop()
        if all(waiting) or time.monotonic() < due:
            continue
        waiting = [part for part in waiting if part]
        begun = time.monotonic()
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, check=False)
        due = time.monotonic() + (time.monotonic() - begun) / _SHARE
