"""Draws the page once, in a process of its own that gives way to the grid's: the server starts it.

    python -m tracker.serve.draw RESULTS FOLDER PARENT SECONDS

Writes FOLDER/page.html. Of the results nothing is changed: the database that the page is drawn from is FOLDER's, or the
one of the results where it already holds all of them.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from contract.atomic import write_text
from contract.errors import TrackerError
from contract.lifetime import end_with_parent
from contract.reading import read_json
from contract.stage_folder import DATABASE
from contract.status import read_state
from tracker.judge.certificate.files import CERTIFICATE
from tracker.plan.plan_file import PLAN_FILE, digest_of_plan, read_plan
from tracker.plan.retry import COLLECTED, digest
from tracker.serve.live import live_parts
from tracker.show.page.render import render
from tracker.store.collect import collect_apart
from tracker.store.database import Store

PAGE = "page.html"
NICENESS = 10


def main(arguments: Sequence[str]) -> int:
    """Draw; known errors become one line on stderr and status 2."""
    results, folder, parent, seconds = arguments
    end_with_parent(int(parent))
    os.nice(max(0, NICENESS - os.nice(0)))
    try:
        draw(Path(results), Path(folder), float(seconds))
    except (TrackerError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def draw(results: Path, folder: Path, seconds: float) -> Path:
    """Write the page of the results as they are now into `folder`; `seconds` as of `live_parts`. Return its path."""
    with Store(_database(results, folder)) as store:
        page = render(store, live=live_parts(seconds))
    write_text(folder / PAGE, page, sync=False)
    return folder / PAGE


def _database(results: Path, folder: Path) -> Path:
    ours = results / DATABASE
    if ours.exists() and (not (results / "stages").exists() or _is_current(results)):
        return ours
    for name in (CERTIFICATE, "stages", "imported"):  # the page looks for these beside its database
        (folder / name).unlink(missing_ok=True)
        if (results / name).exists():
            (folder / name).symlink_to((results / name).resolve())
    return collect_apart(results, folder / DATABASE).database


def _is_current(results: Path) -> bool:
    """Whether the results' own database is of this plan and holds every stage that has ended, while none runs."""
    try:
        plan = read_plan(results / PLAN_FILE)
        states = {key: read_state(place, key) for key, place in plan.folders(results).items()}
        if any(state.state == "running" for state in states.values()):
            return False
        if read_json(results / COLLECTED)["stages"] != digest(states.items()):
            return False
        with Store(results / DATABASE) as store:
            return store.meta().get("plan digest") == digest_of_plan(plan.text())
    except (TrackerError, OSError, ValueError, KeyError, TypeError):
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
