"""Serve the report page on localhost while the grid runs; another process redraws it (`ablation.serve.draw`).

Only GET and HEAD of `/` and `/now` are answered; the base class refuses other methods. A request whose `Host` is not
localhost is refused, because a web site whose name resolves to this machine must not read the results.
"""

import re
import socketserver
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from markupsafe import escape

from ablation.contract.display import joined, printable
from ablation.contract.errors import TrackerError
from ablation.plan.collected import PLAN_FILE
from ablation.serve.draw import ASKED, MARKER, PAGE, SCRIPT
from ablation.show.page.inline import asset, content_policy
from ablation.store.progress import describe

ADDRESS = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost", "[::1]")
_SHARE = 0.05  # of one processor that looking at the stages may take
_STYLE = asset("page.css")
_NOW = '<section class="now" id="now" data-page="{}"><h2>What runs now</h2><pre>{}</pre><p class="note"></p></section>'
_WAITING = f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Ablation report</title>
<meta http-equiv="Content-Security-Policy" content="{escape(content_policy(_STYLE, [SCRIPT], served=True))}">
<noscript><meta http-equiv="refresh" content="30"></noscript><style>{_STYLE}</style></head><body><main>{MARKER}
<p>The report has not been drawn yet. It will appear here.</p></main><script>{SCRIPT}</script></body></html>"""


class Server(ThreadingHTTPServer):
    """Server of the page in `folder` and of the jobs of `results`. Raises TrackerError if the port cannot be used."""

    daemon_threads = True

    def __init__(self, port: int, results: Path, folder: Path) -> None:
        self.results, self.folder = results, folder
        self._alone, self._due, self._text = threading.Lock(), 0.0, ""
        try:
            super().__init__((ADDRESS, port), Handler)
        except (OSError, OverflowError) as error:
            reason = str(getattr(error, "strerror", None) or error).lower()
            remedy = "pass another number with --port, or --port 0 for a free port"
            raise TrackerError(f"port {port} cannot be used ({reason}); {remedy}") from None

    def server_bind(self) -> None:
        """Bind the socket without a DNS lookup of the host name, which the base class does."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, self.server_address[1]

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def now(self) -> str:
        """Return the text of `ablation status`, which may be a few seconds old if reading the stages takes long."""
        with self._alone:
            if time.monotonic() >= self._due:
                before = time.thread_time()
                self._text = "\n".join(map(printable, self._look().splitlines()))
                self._due = time.monotonic() + max(1.0, (time.thread_time() - before) / _SHARE)
            return self._text

    def _look(self) -> str:
        if not (self.results / PLAN_FILE).exists():
            return f"{self.results} has no plan yet. Run snakemake; the report appears with the first results.\n"
        try:
            return describe(self.results)
        except (TrackerError, OSError) as error:
            return f"The stages cannot be read: {error}\n"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors, because a browser may disconnect before it has the whole answer."""


class Handler(BaseHTTPRequestHandler):
    """Handler of the requests of a browser."""

    server: Server
    timeout = 60.0

    def do_GET(self) -> None:
        """Answer `/` with the page, and `/now` with the version of the page and the running jobs."""
        if re.sub(r":\d*$", "", self.headers.get("Host", "").lower()) not in NAMES:
            self._send(HTTPStatus.FORBIDDEN, "plain", f"this server answers only to {joined(NAMES)}\n")
            return
        path = self.path.partition("?")[0]
        if path not in ("/", "/now"):
            self._send(HTTPStatus.NOT_FOUND, "plain", "not found\n")
            return
        (self.server.folder / ASKED).touch()
        page = self.server.folder / PAGE
        version = str(page.stat().st_mtime_ns) if page.exists() else ""
        if path == "/now":
            self._send(HTTPStatus.OK, "plain", f"{version}\n{self.server.now()}")
            return
        before, _, after = (page.read_text(encoding="utf-8") if version else _WAITING).partition(MARKER)
        self._send(HTTPStatus.OK, "html", f"{before}{_NOW.format(version, escape(self.server.now()))}{after}")

    do_HEAD = do_GET

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode("utf-8", errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", f"text/{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")  # more in the page's head
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        """Return a name without versions, so that browsers do not see which server this is."""
        return "ablation"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing, because a line for every request would hide other output on the terminal."""
