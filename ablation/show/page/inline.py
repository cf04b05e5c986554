"""Scripts and styles inside a page, the security policy that allows only these, and a server's additions."""

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

MOST_ROWS = 200  # that a browser without JavaScript shows
ASSETS = Path(__file__).parent / "assets"


@dataclass(frozen=True)
class Live:
    """What a server adds to the page to keep it up to date in browsers.

    script: JavaScript of the server. marker: HTML that the server replaces, above the results. seconds: time until a
    browser without JavaScript loads the page again.
    """

    script: str
    marker: str
    seconds: int


def environment(folder: Path) -> Environment:
    """Return the templates of a folder, which escape HTML and control characters (ESC, marks of text direction)."""
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
    """The compressed part of a page, which a script unpacks: folded HTML, and data of the scripts."""

    folded: list[str] = field(default_factory=list)

    def fold(self, html: str) -> Markup:
        """Move HTML to the compressed part; return a placeholder."""
        self.folded.append(str(html))
        return Markup(f'<div data-folded="{len(self.folded) - 1}"></div>')  # a number

    def fold_many(self, html: Markup, count: int) -> Markup:
        """Fold HTML if it has many rows, so that a page with thousands of variants stays small."""
        return self.fold(html) if count > MOST_ROWS else html

    def pack(self, data: Mapping[str, Any]) -> str:
        """Return the folded HTML and `data`, compressed, as text for a script element."""
        text = json.dumps(
            {"folded": self.folded, "data": data}, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        )
        return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode("ascii")


def asset(name: str, folder: Path = ASSETS) -> str:
    """Return the text of a script or style to write into a page."""
    return (folder / name).read_text(encoding="utf-8").replace("\r\n", "\n")


def content_policy(style: str, scripts: Sequence[str], *, served: bool = False) -> str:
    """Return a Content-Security-Policy that runs only the given inline texts and loads nothing.

    served: allow requests to the server of the page.
    """
    allowed = " ".join(_digest(script) for script in scripts)
    asks = " connect-src 'self';" if served else ""
    style_src = f"style-src {_digest(style)};"
    return f"default-src 'none'; script-src {allowed}; {style_src}{asks} base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
