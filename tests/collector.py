"""A collector of OpenTelemetry spans for tests, which can misbehave."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# How long a reply of `stall` and of `slow` takes.
STALL_S, SLOW_S = 2.0, 0.3
# What a collector can do with a message. Each name is a reply that `Collector` can be asked for.
REPLIES = ("accept", "busy", "refuse", "close", "garbage", "slow", "stall")


class Collector:
    """A collector on a free port of this host. `reply` returns what it does with the next message."""

    def __init__(self, reply: Callable[[], str] = lambda: "accept"):
        self.bodies: list[bytes] = []
        self.given: dict[str, int] = {}
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, reply))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it receives spans."""
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1/traces"

    def end(self) -> None:
        """Stop listening."""
        self.server.shutdown()
        self.server.server_close()


def _handler(collector: Collector, reply: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            chosen = reply()
            collector.given[chosen] = collector.given.get(chosen, 0) + 1
            if chosen == "close":
                return
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if chosen == "stall":
                time.sleep(STALL_S)
                return
            if chosen == "slow":
                time.sleep(SLOW_S)
            # The proxy may have given up.
            with suppress(OSError):
                if chosen == "garbage":
                    self.wfile.write(b"\x00no HTTP\r\n\r\n")
                elif chosen in ("accept", "slow"):
                    collector.bodies.append(body)
                    self._send(200)
                else:
                    self._send({"busy": 503, "refuse": 400}[chosen])

        def _send(self, status: int) -> None:
            self.send_response(status)
            if status == 503:
                self.send_header("Retry-After", "1")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
