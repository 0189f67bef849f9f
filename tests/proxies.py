"""Helpers of the tests that run `waystage proxy`: servers for it, its output, and a proxy that ends with the test."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import socket
from typing import IO

from programs import WAYSTAGE, connect, free_ports

PATIENCE_S = 20.0


class Lines:
    """The output of a running process, line by line."""

    def __init__(self, stream: IO[str]) -> None:
        self.lines: list[str] = []
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self.reader.start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self.changed:
                    self.lines.append(line.rstrip("\n"))
                    self.changed.notify_all()

    def wait_for(self, text: str) -> str:
        """Return the next line with this text; drop it and the lines before it."""
        with self.changed:
            found = self.changed.wait_for(lambda: any(text in line for line in self.lines), PATIENCE_S)
            assert found, f"{text!r} is not among {self.lines}"
            at = next(index for index, line in enumerate(self.lines) if text in line)
            line = self.lines[at]
            del self.lines[: at + 1]
            return line


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def cache_servers(count: int) -> Iterator[list[int]]:
    """Start servers that end with the test; yields their ports."""
    with ExitStack() as stack:
        ports = free_ports(count)
        for port in ports:
            command = [str(WAYSTAGE), "cache", "--listen", f"127.0.0.1:{port}"]
            stack.enter_context(_ended(subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True)))
            connect(port).close()
        yield ports


@contextmanager
def running_proxy(
    file: Path, *arguments: str, **environment: str
) -> Iterator[tuple[subprocess.Popen[str], Lines]]:
    """Start a proxy; yields its process and the lines of its log. It must exit with code 0 after SIGTERM."""
    process = subprocess.Popen(
        [str(WAYSTAGE), "proxy", "--config", str(file), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdout and process.stderr
    said, log = Lines(process.stdout), Lines(process.stderr)
    with _ended(process):
        said.wait_for("ready on")
        yield process, log
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_S) == 0
    said.reader.join()
    log.reader.join()


def ask(stream: socket, request: bytes, reply: bytes) -> None:
    """Send a request, which must have this reply."""
    stream.sendall(request)
    got = b""
    while len(got) < len(reply):
        piece = stream.recv(4096)
        assert piece, f"closed after {got!r}"
        got += piece
    assert got == reply


def until(what: str, is_so: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.02)
