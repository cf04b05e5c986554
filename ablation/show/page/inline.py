"""The scripts and styles inside a page, the policy that lets these run and nothing else, and what a server adds."""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

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


@dataclass
class Packed:
    """What a page holds compressed, to be opened by its script: HTML that stands folded, and the scripts' data."""

    folded: list[str] = field(default_factory=list)

    def fold(self, html: str) -> Markup:
        """Keep some HTML; return what holds its place."""
        self.folded.append(str(html))
        return Markup(f'<div data-folded="{len(self.folded) - 1}"></div>')  # a number

    def pack(self, data: Mapping[str, Any]) -> str:
        """Return all that was kept, and `data`, as text for a script element."""
        text = json.dumps(
            {"folded": self.folded, "data": data}, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        )
        return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode("ascii")


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
