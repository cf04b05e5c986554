"""The scripts and styles inside a page, the policy that allows only these, and what a server adds."""

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ablation.contract.display import printable

MOST_ROWS = 200  # in sight of a browser without JavaScript
ASSETS = Path(__file__).parent / "assets"


@dataclass(frozen=True)
class Live:
    """Additions to a page that a server refreshes; a page in a file has none of them.

    script: the server's own. marker: HTML whose place the server fills, above the results. seconds: after which a
    browser without scripts loads the page again.
    """

    script: str
    marker: str
    seconds: int


def environment(folder: Path) -> Environment:
    """Return the templates of a folder; values are escaped, and so are characters that a browser obeys or cannot show.

    These are marks of text direction, and characters such as ESC.
    """
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        finalize=lambda value: type(value)(printable(value)) if isinstance(value, str) else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@dataclass
class Packed:
    """The compressed part of a page, which its script unpacks: folded HTML, and the scripts' data."""

    folded: list[str] = field(default_factory=list)

    def fold(self, html: str) -> Markup:
        """Store some HTML; return its placeholder."""
        self.folded.append(str(html))
        return Markup(f'<div data-folded="{len(self.folded) - 1}"></div>')  # a number

    def fold_many(self, html: Markup, count: int) -> Markup:
        """Fold HTML with many rows, so that a page with thousands of variants stays small."""
        return self.fold(html) if count > MOST_ROWS else html

    def pack(self, data: Mapping[str, Any]) -> str:
        """Return all stored HTML, and `data`, as text for a script element."""
        text = json.dumps(
            {"folded": self.folded, "data": data}, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        )
        return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode("ascii")


def asset(name: str, folder: Path = ASSETS) -> str:
    """Return an inline script or style."""
    return (folder / name).read_text(encoding="utf-8").replace("\r\n", "\n")


def content_policy(style: str, scripts: Sequence[str], *, served: bool = False) -> str:
    """Return a Content-Security-Policy that runs only these inline texts and loads nothing.

    The scripts of a page that is `served` may ask its own server.
    """
    allowed = " ".join(_digest(script) for script in scripts)
    asks = " connect-src 'self';" if served else ""
    style_src = f"style-src {_digest(style)};"
    return f"default-src 'none'; script-src {allowed}; {style_src}{asks} base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
