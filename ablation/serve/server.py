"""A small HTTP server on 127.0.0.1: the page, the running stages as HTML and as JSON, and nothing else.

Only GET and HEAD of four fixed paths are answered; the base class refuses other methods. A request whose `Host` is not
this machine's own name is refused: another site whose name resolves to this machine must not read the results.
"""

import gzip
import hashlib
import re
import socketserver
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ablation.contract.errors import TrackerError
from ablation.contract.reading import json_text
from ablation.serve.now import Watcher
from ablation.serve.painter import Painter

ADDRESS = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost", "[::1]")
_QUIET = 60.0  # seconds, after which a connection without a request is closed
_LARGE = 10_000  # bytes, from which an answer is compressed
_HTML, _JSON, _TEXT = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"
_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}
_NOTHING_RUNS = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"


class Server(ThreadingHTTPServer):
    """Listens on this machine alone. Raises TrackerError where it cannot."""

    daemon_threads = True

    def __init__(self, port: int, watcher: Watcher, painter: Painter) -> None:
        self.watcher, self.painter = watcher, painter
        try:
            super().__init__((ADDRESS, port), Handler)
        except (OSError, OverflowError) as error:
            reason = str(getattr(error, "strerror", None) or error).lower()
            remedy = "name another one with --port, or --port 0 for any that is free"
            raise TrackerError(f"port {port} cannot be used ({reason}); {remedy}") from None

    def server_bind(self) -> None:
        """Bind; unlike the base class, without a DNS lookup of our own name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, self.server_address[1]

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away in the middle of an answer is not an error."""


class Handler(BaseHTTPRequestHandler):
    """One connection of a browser."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = _QUIET

    def do_GET(self) -> None:
        """Answer with the page or what runs now."""
        if re.sub(r":\d*$", "", self.headers.get("Host", "").lower()) not in NAMES:
            self._send(HTTPStatus.FORBIDDEN, _TEXT, f"this server answers to {' and '.join(NAMES)} only\n")
            return
        answer = {"/": self._page, "/now": self._now, "/status.json": self._status}.get(self.path.partition("?")[0])
        if self.path == "/favicon.ico":
            self._send(HTTPStatus.NO_CONTENT, None, "")
        elif answer is None:
            self._send(HTTPStatus.NOT_FOUND, _TEXT, "not found\n")
        else:
            self.server.painter.asked()
            answer()

    do_HEAD = do_GET

    def _page(self) -> None:
        painter = self.server.painter
        page = painter.page  # once: the painter may take over another meanwhile
        policy = {"Content-Security-Policy": "frame-ancestors 'none'"}  # more in its head
        self._send(HTTPStatus.OK, _HTML, f"{page.before}{painter.section(page)}{page.after}", policy)

    def _now(self) -> None:
        painter = self.server.painter
        section = painter.section(painter.page)
        self._send(HTTPStatus.OK, _HTML, section, {"Content-Security-Policy": _NOTHING_RUNS})

    def _status(self) -> None:
        painter, now = self.server.painter, self.server.watcher.now()
        page = painter.page
        drawn = {"version": page.version, "drawn": page.drawn, "problem": painter.problem}
        text = json_text({**asdict(now), "page": drawn}) + "\n"
        self._send(HTTPStatus.OK, _JSON, text, {"Content-Security-Policy": _NOTHING_RUNS})

    def _send(self, status: HTTPStatus, kind: str | None, text: str, headers: dict[str, str] | None = None) -> None:
        body = text.encode("utf-8", errors="replace")
        tag = f'W/"{hashlib.sha256(body).hexdigest()[:16]}"'
        if status == HTTPStatus.OK and tag in self.headers.get("If-None-Match", ""):
            status, body, kind = HTTPStatus.NOT_MODIFIED, b"", None
        self.send_response(status)
        for name, value in {**_HEADERS, **(headers or {})}.items():
            self.send_header(name, value)
        if status in (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED):
            self.send_header("ETag", tag)
        if kind is not None:
            self.send_header("Content-Type", kind)
            if len(body) >= _LARGE and "gzip" in self.headers.get("Accept-Encoding", ""):
                body = gzip.compress(body, compresslevel=1)
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        """Do not reveal versions."""
        return "ablation"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Do not log to the terminal, where a line every few seconds would hide what matters."""
