"""Draws the page once, in a process of its own that gives way to the grid's: the server starts it.

    python -m ablation.serve.draw RESULTS FOLDER PARENT SECONDS

Writes FOLDER/page.html. The results stay unchanged: the page is drawn from a database in FOLDER, or from the results'
own if that is complete.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ablation.contract.atomic import write_text
from ablation.contract.errors import TrackerError
from ablation.contract.process import end_with_parent
from ablation.contract.stage_folder import DATABASE
from ablation.plan.collected import is_current, states_now
from ablation.serve.painter import live_parts
from ablation.show.page.content import read_page
from ablation.show.page.render import draw as draw_page
from ablation.store.current import collect_beside
from ablation.store.database import Store

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
    with Store(database_now(results, folder)) as store:
        page = draw_page(read_page(store), live_parts(seconds))
    write_text(folder / PAGE, page, sync=False)
    return folder / PAGE


def database_now(results: Path, folder: Path) -> Path:
    """Return a complete database: the results' own, or one that is collected into `folder`."""
    ours = results / DATABASE
    if ours.exists() and _is_current(results):
        return ours
    return collect_beside(results, folder)


def _is_current(results: Path) -> bool:
    """Whether the results' own database can be opened and is complete, while no stage runs."""
    states = states_now(results)
    if not is_current(results, states) or any(state.state == "running" for state in states.values()):
        return False
    try:
        with Store(results / DATABASE):
            return True
    except TrackerError:  # of another version
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
