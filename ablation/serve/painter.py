"""Keeps the page up to date while somebody looks: a process per drawing, and the section that changes between two."""

import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ablation.serve.now import Watcher
from ablation.show.page.inline import Live, asset, content_policy, environment

HERE = Path(__file__).parent
TEMPLATES = environment(HERE / "templates")
MARKER = "<!-- what runs now -->"  # no text of a configuration or a log can hold it: `<` is escaped


def live_parts(seconds: float) -> Live:
    """Return what makes a page a served one; without scripts it reloads every `seconds`."""
    return Live(asset("live.js", HERE / "assets"), MARKER, max(2, round(seconds)))


def show_waiting(seconds: float) -> str:
    """Return the page that stands in until the first is drawn, with the marker in it."""
    live, style = live_parts(seconds), asset("page.css")
    policy = content_policy(style, [live.script], served=True)
    return TEMPLATES.get_template("waiting.html.j2").render(style=style, csp=policy, live=live)


SHARE = 0.1  # share of one processor that drawing may take
LOOKED_AT = 60.0  # seconds after its last request, while a page still counts as looked at
RETRY = 60.0  # seconds after a drawing that failed, at least
_TICK = 0.5
_MOST_WORDS = 500


@dataclass(frozen=True)
class Page:
    """A page around the section that changes. version: a digest of it, empty before the first; drawn: when, as text."""

    before: str
    after: str
    version: str
    drawn: str


class Painter:
    """Draws when results have changed, at most once in `every` seconds and only while somebody looks."""

    def __init__(self, results: Path, watcher: Watcher, every: float) -> None:
        self._results, self._watcher, self._every = results, watcher, every
        before, _, after = show_waiting(every).partition(MARKER)
        self.page = Page(before, after, "", "")
        self.problem = ""
        self.drawing = False
        self._asked = time.monotonic()
        self._due = 0.0
        self._drawn_of: str | None = None
        self._child: subprocess.Popen[str] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="painter")
        self._folder = tempfile.TemporaryDirectory(prefix="ablation-serve-")

    def start(self) -> None:
        """Begin to draw."""
        self._thread.start()

    def end(self) -> None:
        """Stop drawing, and leave nothing behind."""
        self._ended.set()
        if self._child is not None:
            self._child.kill()
        if self._thread.is_alive():
            self._thread.join()
        self._folder.cleanup()

    def asked(self) -> None:
        """Note that somebody looks."""
        self._asked = time.monotonic()

    def section(self, page: Page) -> str:
        """Return the section on top of a page as HTML: what runs now, and whether the page is up to date."""
        said = {"version": page.version, "drawn": page.drawn, "problem": self.problem, "drawing": self.drawing}
        return TEMPLATES.get_template("now.html.j2").render(now=self._watcher.now(), **said)

    def _run(self) -> None:
        while not self._ended.is_set():
            looked_at = time.monotonic() - self._asked < max(LOOKED_AT, 2 * self._every)
            if looked_at and time.monotonic() >= self._due:
                found = self._watcher.now().results
                if found is not None and found != self._drawn_of:
                    self._draw(found)
            self._ended.wait(_TICK)

    def _draw(self, of: str) -> None:
        begun, spent, when = time.monotonic(), _children(), datetime.now()
        self.drawing = True
        try:
            self.problem = self._paint() or self._take(when)
        except OSError as error:
            self.problem = str(error)
        self.drawing = False
        pause = max(self._every, (_children() - spent) / SHARE)
        if self.problem:
            self._due = time.monotonic() + max(pause, RETRY)
        else:
            self._drawn_of, self._due = of, begun + pause

    def _take(self, when: datetime) -> str:
        """Take over the drawn page; return what is wrong with it, or nothing."""
        page = (Path(self._folder.name) / "page.html").read_text(encoding="utf-8")
        before, marker, after = page.partition(MARKER)
        self.page = Page(before, after, hashlib.sha256(page.encode()).hexdigest()[:16], f"{when:%H:%M:%S}")
        return "" if marker else "it has no place for what runs now"

    def _paint(self) -> str:
        """Draw in another process; return what went wrong, or nothing."""
        words = [str(self._results), self._folder.name, str(os.getpid()), str(self._every)]
        self._child = subprocess.Popen(
            [sys.executable, "-m", "ablation.serve.draw", *words],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C goes to the server, which ends it
        )
        if self._ended.is_set():
            self._child.kill()
        _, said = self._child.communicate()
        if self._child.returncode == 0:
            return ""
        if not self._ended.is_set():
            print(said, end="", file=sys.stderr, flush=True)
        last = said.strip().rpartition("\n")[2].removeprefix("error: ")
        return last[:_MOST_WORDS] or f"it was ended by signal {-self._child.returncode}"


def _children() -> float:
    """CPU seconds of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
