"""One connection to a host: the `ssh` client, and behind it the keeper (`crates/keeper`), which answers requests.

The lab copies `waystage` first, in the same connection. If the connection ends for any reason, the keeper kills its
programs and removes its folder. Knows nothing of roles and trials.
"""

import hashlib
import json
import os
import secrets
import select
import shlex
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

from waylab.spec import HostSettings
from waylab.testbed.processes import TestbedError, popen_tied

Reply = dict[str, Any]

_SSH = "ssh"
# Without questions, because nobody could answer them. -C compresses records, logs and the program on their way.
_OPTIONS = ["-T", "-C", "-a", "-x"]
_SETTINGS = [
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "RequestTTY=no",
    "LogLevel=ERROR",
]
# Authentication on a slow host; and the progress that a copy must make.
_CONNECTED_WITHIN_S = 40.0
_ANSWERED_WITHIN_S = 15.0
_PROGRESS_WITHIN_S = 20.0
# How long the keeper lets the lab be silent, and how often the lab therefore sends something.
_SILENCE_S, _SIGN_OF_LIFE_S = 60, 10.0
_ENDED_WITHIN_S = 5.0
_CHUNK_BYTES = 1 << 16
# Reads exactly the program, and answers before the lab sends more. It survives its keeper, to remove the folder if the
# keeper is killed. $1 is the folder, $2 the length of the program.
_SCRIPT = (
    'umask 077; mkdir "$1" && cd "$1" || exit 1; head -c "$2" > waystage; '
    'if [ "$(wc -c < waystage)" -ne "$2" ]; then '
    'echo "the program cannot be written to $1" >&2; cd /; rm -rf "$1"; exit 1; fi; '
    'chmod 700 waystage; echo copied; ./waystage keeper --folder "$1" --silence "$3"; code=$?; '
    'cd /; rm -rf "$1"; exit "$code"'
)
_COPIED = b"copied\n"
_TEMPORARY = "/tmp"


class HostLostError(TestbedError):
    """A host that does not answer any more, or that could not be reached."""


class KeeperConnection:
    """An open connection to one host."""

    def __init__(self, name: str, settings: HostSettings, waystage: Path) -> None:
        self.name = name
        self.destination = settings.ssh
        self.folder = f"{settings.folder or _TEMPORARY}/waylab-{secrets.token_hex(6)}-{name}"
        self._lock = threading.Lock()
        self._buffer = b""
        self._lost: str | None = None
        self._last_s = time.monotonic()
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        content = _content(waystage)
        self.sha256 = hashlib.sha256(content).hexdigest()
        script = shlex.join(["sh", "-c", _SCRIPT, "waylab", self.folder, str(len(content)), str(_SILENCE_S)])
        options = [part for setting in _SETTINGS for part in ("-o", setting)]
        command = [_SSH, *_OPTIONS, *options, "--", self.destination, script]
        try:
            self._ssh = popen_tied(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0
            )
        except OSError as error:
            raise TestbedError(
                f"ssh: cannot be started: {error.strerror}; install the OpenSSH client"
            ) from None
        assert self._ssh.stdin and self._ssh.stdout, "both are pipes"
        self._input, self._output = self._ssh.stdin, self._ssh.stdout
        os.set_blocking(self._input.fileno(), False)
        os.set_blocking(self._output.fileno(), False)
        try:
            self._copy(content)
        except BaseException:
            self.close()
            raise
        self._stopped = threading.Event()
        self._alive = threading.Thread(target=self._show_life, name=f"ssh-{name}", daemon=True)
        self._alive.start()

    @property
    def lost(self) -> str | None:
        """Why the connection does not exist any more, in one line; None while it does."""
        return self._lost

    def request(self, message: str, within_s: float = _ANSWERED_WITHIN_S, **content: object) -> Reply:
        """Send a request and return the reply.

        Raises:
            TestbedError: if the host refuses it, with its reason.
            HostLostError: if there is no reply.
        """
        with self._lock:
            return self._exchange(message, content, within_s)

    def read_file(self, path: str, to: Path) -> None:
        """Copy a file of the host."""
        with to.open("wb") as file:
            while True:
                with self._lock:
                    found = self._exchange("read", {"path": path, "offset": file.tell()}, _ANSWERED_WITHIN_S)
                    part = self._take(int(found["bytes"]), _PROGRESS_WITHIN_S)
                if not part:
                    return
                file.write(part)

    def write_program(self, path: str, program: Path) -> None:
        """Copy a program to the host."""
        content = _content(program)
        with self._lock:
            self._exchange("write", {"path": path, "bytes": len(content)}, _ANSWERED_WITHIN_S, content)

    def close(self) -> None:
        """End the connection and thereby everything on the host that was started through it."""
        if hasattr(self, "_stopped"):
            self._stopped.set()
        self._lost = self._lost or f"host {self.name}: the connection was closed"
        for stream in (self._input, self._output):
            stream.close()
        try:
            # It ends when the keeper has killed its programs and removed its folder.
            self._ssh.wait(_ENDED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._ssh.kill()
            self._ssh.wait()
        self._errors.close()

    def _show_life(self) -> None:
        """Send a request now and then, so that the keeper notices that the lab still exists."""
        while not self._stopped.wait(_SIGN_OF_LIFE_S):
            if time.monotonic() - self._last_s < _SIGN_OF_LIFE_S:
                continue
            try:
                self.request("clock")
            except (TestbedError, OSError, ValueError):
                return

    def _copy(self, content: bytes) -> None:
        # The script reads nothing before it has its folder; a failure there is the more useful message.
        self._send(content, _CONNECTED_WITHIN_S)
        self._wait_for(lambda: b"\n" in self._buffer, _CONNECTED_WITHIN_S)
        # A login shell may print something, too.
        while _COPIED not in self._buffer:
            self._wait_for(lambda: _COPIED in self._buffer, _CONNECTED_WITHIN_S)
        self._buffer = self._buffer.partition(_COPIED)[2]

    def _exchange(self, message: str, content: Reply, within_s: float, after: bytes = b"") -> Reply:
        if self._lost:
            raise HostLostError(self._lost)
        try:
            self._send(json.dumps({message: content}).encode() + b"\n" + after, _PROGRESS_WITHIN_S)
            self._wait_for(lambda: b"\n" in self._buffer, within_s)
            line, _, self._buffer = self._buffer.partition(b"\n")
            found: Reply = json.loads(line)
        except ValueError:
            raise self._fail("its keeper sent a reply that cannot be read") from None
        except BaseException as error:
            # Another request would receive the reply to this one.
            if not self._lost:
                self._lost = f"host {self.name}: the connection was given up: {error!r}"
            raise
        self._last_s = time.monotonic()
        ((kind, reply),) = found.items()
        if kind == "error":
            raise TestbedError(f"host {self.name}: {reply['line']}")
        return dict(reply)

    def _take(self, count: int, within_s: float) -> bytes:
        self._wait_for(lambda: len(self._buffer) >= count, within_s)
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def _send(self, content: bytes, within_s: float) -> None:
        """Write everything; the time is for each part of it."""
        rest = memoryview(content)
        while rest:
            _, ready, _ = select.select([], [self._input], [], within_s)
            if not ready:
                raise self._fail(f"took nothing for {within_s:g} s")
            try:
                rest = rest[os.write(self._input.fileno(), rest[:_CHUNK_BYTES]) :]
            except OSError:
                raise self._fail("the connection ended") from None

    def _wait_for(self, complete: Any, within_s: float) -> None:
        """Read until the buffer is complete; the time is for each part of it."""
        while not complete():
            ready, _, _ = select.select([self._output], [], [], within_s)
            if not ready:
                raise self._fail(f"did not answer within {within_s:g} s")
            part = os.read(self._output.fileno(), _CHUNK_BYTES)
            if not part:
                raise self._fail("the connection ended")
            self._buffer += part

    def _fail(self, what: str) -> HostLostError:
        """Return the error for a connection that is of no more use, with the last line that ssh or the host printed."""
        try:
            self._ssh.wait(1.0 if what.endswith("ended") else 0.0)
        except subprocess.TimeoutExpired:
            pass
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines()]
        lines = [line for line in lines if line]
        said = f": {lines[-1][:300]}" if lines else ""
        self._lost = f"host {self.name} ({self.destination}): {what}{said}"
        return HostLostError(self._lost)


def _content(program: Path) -> bytes:
    try:
        return program.read_bytes()
    except OSError as error:
        raise TestbedError(f"{program}: cannot be read: {error.strerror}") from None
