"""The part of a served page that changes between two drawings: texts for the page, and its content as HTML."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ablation.serve.now import Now
from ablation.show.page.inline import Live, asset, content_policy
from ablation.show.text import shown

HERE = Path(__file__).parent
MARKER = "<!-- what runs now -->"  # no text of a configuration or a log can hold it: `<` is escaped


def live_parts(seconds: float) -> Live:
    """Return what makes a page a served one; without scripts it reloads every `seconds`."""
    style, script = (asset(name, HERE / "assets") for name in ("live.css", "live.js"))
    return Live(style, script, MARKER, max(2, round(seconds)))


def show_now(now: Now, version: str, *, drawn: str, problem: str, drawing: bool) -> str:
    """Return the section on top of the page as HTML.

    version: of the page that is drawn, empty before the first. drawn: its time, as text. problem: why the last drawing
    failed, or nothing. drawing: whether one is in progress.
    """
    words: dict[str, Any] = {"version": version, "drawn": drawn, "problem": problem, "drawing": drawing}
    return _environment().get_template("now.html.j2").render(now=now, **words)


def show_waiting(seconds: float) -> str:
    """Return the page that stands in until the first is drawn, with the marker in it."""
    live = live_parts(seconds)
    style = f"{asset('page.css')}\n{live.style}"
    policy = content_policy(style, [live.script], served=True)
    return _environment().get_template("waiting.html.j2").render(style=style, csp=policy, live=live)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
