"""The scripts and styles inside a page, the policy that lets these run and nothing else, and what a server adds."""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ASSETS = Path(__file__).parent / "assets"


@dataclass(frozen=True)
class Live:
    """What makes a page one that a server refreshes; a page in a file has none of it.

    style, script: texts of the server's own. marker: HTML whose place the server fills, above the results. seconds:
    after which a browser without scripts loads the page again.
    """

    style: str
    script: str
    marker: str
    seconds: int


def asset(name: str, folder: Path = ASSETS) -> str:
    """An inline script or style; none may hold what would end its element early."""
    text = (folder / name).read_text(encoding="utf-8").replace("\r\n", "\n")
    if re.search(r"</(script|style)|<!--", text, re.IGNORECASE):
        raise ValueError(f"{name} holds text that HTML would read as the end of its element")
    return text


def content_policy(style: str, scripts: Sequence[str], *, served: bool = False) -> str:
    """A Content-Security-Policy that runs these inline texts and nothing else, and loads nothing from anywhere.

    The scripts of a page that is `served` may ask its own server.
    """
    allowed = " ".join(_digest(script) for script in scripts)
    asks = " connect-src 'self';" if served else ""
    style_src = f"style-src {_digest(style)};"
    return f"default-src 'none'; script-src {allowed}; {style_src}{asks} base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
