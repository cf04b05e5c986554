"""Redraw the page of a served results folder, in a separate process with a lower priority than the grid.

    python -m ablation.serve.draw RESULTS FOLDER PARENT SECONDS

Writes FOLDER/page.html when the results have changed, at most every SECONDS, and only while a browser shows the page:
the server touches FOLDER/asked at each request. If the database of the results is not complete, the page is drawn from
a new database in FOLDER, so the results stay unchanged. The process ends with the process PARENT.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablation.contract.atomic import write_text
from ablation.contract.errors import TrackerError
from ablation.contract.process import end_with_parent, is_locked
from ablation.contract.stage_folder import DATABASE
from ablation.plan.collected import is_alone, noted_sources, planned_folders, sources_now
from ablation.show.page.content import read_page
from ablation.show.page.inline import Live, asset
from ablation.show.page.render import draw as draw_page
from ablation.store.current import collect_beside, holds
from ablation.store.database import Store

PAGE, ASKED = "page.html", "asked"
MARKER = "<!-- what runs now -->"  # texts of configurations and logs cannot contain it, because `<` is escaped
SCRIPT = asset("live.js", Path(__file__).parent / "assets")
NICENESS = 10
SHARE = 0.1  # of one processor that drawing may take
LOOKED_AT = 60.0  # seconds after a request during which the page counts as shown


def main(arguments: Sequence[str]) -> int:
    """Redraw the page, as needed, until the parent process ends; after a failure, print one line and try again."""
    results, folder, every = Path(arguments[0]), Path(arguments[1]), float(arguments[3])
    end_with_parent(int(arguments[2]))
    os.nice(max(0, NICENESS - os.nice(0)))
    drawn: Any = None
    said = ""
    while True:
        spent, pause = time.process_time(), 1.0
        asked = folder / ASKED
        if asked.exists() and time.time() - asked.stat().st_mtime < max(LOOKED_AT, 2 * every):
            try:
                if (sources := drawn_from(results)) != drawn:
                    draw(results, folder, every)
                    drawn, said = sources, ""
            except (TrackerError, OSError) as error:
                if said != (said := str(error)):
                    print(f"note: the page cannot be drawn yet: {said}", file=sys.stderr, flush=True)
            pause = max(every, (time.process_time() - spent) / SHARE)
        time.sleep(pause)


def drawn_from(results: Path) -> Any:
    """Return the sources of the database and the times of logs; while these stay the same, so does the page."""
    logs = results.glob("stages/*/*/*/metrics.parquet")
    stamps = sorted((str(path), path.stat().st_mtime_ns) for path in (results / DATABASE, *logs) if path.exists())
    return sources_now(results), stamps


def draw(results: Path, folder: Path, seconds: float) -> Path:
    """Write the page of the current results into `folder`; return the path of the page.

    seconds: time after which a browser without JavaScript loads the page again.
    """
    with Store(database_now(results, folder)) as store:
        page = draw_page(read_page(store), Live(SCRIPT, MARKER, max(2, round(seconds))))
    write_text(folder / PAGE, page, sync=False)
    return folder / PAGE


def database_now(results: Path, folder: Path) -> Path:
    """Return the path of a complete database: the database of the results, or else a new one in `folder`."""
    database = results / DATABASE
    if database.exists() and (is_alone(results) or _is_current(results)):
        return database
    return collect_beside(results, folder)


def _is_current(results: Path) -> bool:
    """Return whether the database of the results can be opened and is complete, and no stage is running."""
    sources = sources_now(results)
    if noted_sources(results) != sources:
        return False
    waiting = (folder for key, folder in planned_folders(results).items() if not sources.stages[key])
    if any(is_locked(folder) for folder in waiting):
        return False
    try:
        return holds(results / DATABASE, sources)
    except TrackerError:  # of another version
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
