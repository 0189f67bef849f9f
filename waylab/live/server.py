"""Serves the page, its events and the finished report over HTTP on the loopback interface.

Bounded: the connections, the open pages among them, and the time that a stalled client can take.
"""

import contextlib
import re
import shutil
import socket
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from waylab.live.board import Board, Cursor
from waylab.runfolder import paths

HOST = "127.0.0.1"
# Each connection has a thread. Pages leave some connections for loading the page and the report.
CONNECTIONS_MAX, PAGES_MAX = 32, 24
# A client must send its request, and read each part of the reply, within this time.
STALLED_S = 5.0
# A comment is sent after this time without news, so that the end of a lost connection is noticed.
_SILENCE_S = 10.0
_LOCAL = re.compile(r"(?:127\.0\.0\.1|localhost)(?::\d{1,5})?", re.IGNORECASE)
# Everything is on the page itself; the report in a `blob:` page inherits these rules and evaluates its charts.
_POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_FULL = b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\n\r\ntoo many pages are open\n"


class Places:
    """A number of places, of which each user takes one."""

    def __init__(self, limit: int) -> None:
        self._lock = threading.Lock()
        self._limit = limit
        self.taken = 0

    def take(self) -> bool:
        """Take a place; return whether one was free."""
        with self._lock:
            free = self.taken < self._limit
            self.taken += free
            return free

    def leave(self) -> None:
        """Return a place."""
        with self._lock:
            self.taken -= 1


class PageServer(ThreadingHTTPServer):
    """The server of one run."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, board: Board, directory: Path) -> None:
        self.board = board
        self.directory = directory
        self.page = _page()
        self.pages = Places(PAGES_MAX)
        # One entry for each report that was sent.
        self.reports: list[float] = []
        self._connections = Places(CONNECTIONS_MAX)
        super().__init__((HOST, port), _Handler)

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.server_address[1]}/"

    def server_bind(self) -> None:
        """Bind without looking up the name of this machine, which can take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = HOST, self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, or refuse it if there are too many."""
        if not self._connections.take():
            request.settimeout(0.1)
            with contextlib.suppress(OSError):
                request.sendall(_FULL)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._connections.leave()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.leave()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that went away."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = STALLED_S
    server_version = "waylab"
    sys_version = ""

    def setup(self) -> None:
        """Begin the time within which the whole request must arrive; the timeout of the socket is one of each read."""
        super().setup()
        self._late = threading.Timer(self.timeout, self._give_up)
        self._late.daemon = True
        self._late.start()

    def parse_request(self) -> bool:
        """Parse a request, which has arrived."""
        try:
            return super().parse_request()
        finally:
            self._late.cancel()

    def finish(self) -> None:
        """End the connection."""
        self._late.cancel()
        super().finish()

    def _give_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        """Answer one request."""
        path = self.path.partition("?")[0].partition("#")[0]
        if not self._is_for_us(path):
            self.send_error(HTTPStatus.FORBIDDEN, explain="this page is for this machine only")
        elif path == "/":
            self._send(self.server.page, "text/html; charset=utf-8")
        elif path == "/events":
            self._events()
        elif path == f"/{paths.REPORT}":
            self._report()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_HEAD(self) -> None:
        """Answer a request as GET does, without the content."""
        self.do_GET()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing."""

    def _is_for_us(self, path: str) -> bool:
        """Return whether the request names this machine, and comes from this page or from no page.

        Without the first rule, a site whose name resolves to 127.0.0.1 could read the page (DNS rebinding).
        """
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            # Images and frames of another page have no `Origin`, and could take all places. A link may open the page.
            kind = self.headers.get("Sec-Fetch-Mode"), self.headers.get("Sec-Fetch-Dest")
            if path != "/" or kind != ("navigate", "document"):
                return False
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        if len(hosts) != 1 or not _LOCAL.fullmatch(hosts[0].strip()):
            return False
        return all(origin.strip().lower() == f"http://{hosts[0].strip().lower()}" for origin in origins)

    def _begin(self, kind: str, length: int | None = None) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("X-Content-Type-Options", "nosniff")
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _send(self, content: bytes, kind: str) -> None:
        self._begin(kind, len(content))
        if self.command != "HEAD":
            self.wfile.write(content)

    def _events(self) -> None:
        """Send what is new until the run is over or the client goes away."""
        if self.command == "HEAD":
            self._begin("text/event-stream")
            return
        if not self.server.pages.take():
            self.wfile.write(_FULL)
            return
        try:
            self._begin("text/event-stream")
            cursor = Cursor()
            while not cursor.over:
                self.wfile.write(_text(self.server.board.wait(cursor, _SILENCE_S)))
        finally:
            self.server.pages.leave()

    def _report(self) -> None:
        over, path = self.server.board.over, self.server.directory / paths.REPORT
        if not over or not over.report or not path.is_file():
            self.send_error(HTTPStatus.NOT_FOUND, explain="the report is written at the end of the run")
            return
        with path.open("rb") as file:
            self._begin("text/html; charset=utf-8")
            if self.command == "HEAD":
                return
            shutil.copyfileobj(file, self.wfile)
        self.server.reports.append(time.monotonic())


def _text(news: list[tuple[str, object]]) -> bytes:
    """Return events in the format of server-sent events; a comment if there are none."""
    parts = [b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data)) for name, data in news]
    return b"".join(parts) or b": no news\n\n"


def _page() -> bytes:
    """Return the page with its styles and its script in it."""
    folder = Path(__file__).parent
    page, style, script = (
        (folder / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    return page.replace("/* page.css */", style).replace("/* page.js */", script).encode()
