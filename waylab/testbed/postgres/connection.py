"""One connection to a PostgreSQL over its unix socket: simple queries, answers as text. No password is known to it.

Enough of protocol 3.0 (PostgreSQL documentation, chapter "Frontend/Backend Protocol") for queries to our own server.
"""

import socket
import struct
from pathlib import Path
from types import TracebackType

from waylab.testbed.processes import TestbedError

_PROTOCOL = 3 << 16
_ANSWERS_WITHIN_S = 60.0


class Connection:
    """A context; every error is a TestbedError of one line."""

    def __init__(self, socket_path: Path, user: str, database: str) -> None:
        self._database = database
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_ANSWERS_WITHIN_S)
        self._waiting = b""
        try:
            self._socket.connect(str(socket_path))
            parameters = f"user\0{user}\0database\0{database}\0\0".encode()
            self._socket.sendall(struct.pack("!II", 8 + len(parameters), _PROTOCOL) + parameters)
            self._answer()
        except OSError as error:
            self.close()
            raise TestbedError(f"database: cannot be reached at {socket_path}: {error}") from None
        except TestbedError:
            self.close()
            raise

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it; the server notices by itself."""
        self._socket.close()

    def query(self, text: str) -> list[list[str | None]]:
        """Send one statement and return its rows."""
        statement = text.encode() + b"\0"
        try:
            self._socket.sendall(b"Q" + struct.pack("!I", 4 + len(statement)) + statement)
            return self._answer()
        except OSError as error:
            raise TestbedError(f"database: {error} during the statement: {text[:80]}") from None

    def _answer(self) -> list[list[str | None]]:
        """Read until the server is ready for the next statement."""
        rows, failure = [], ""
        while True:
            kind, content = self._message()
            if kind == b"D":
                rows.append(_row(content))
            elif kind == b"E":
                failure = _reason(content)
                if failure.startswith("FATAL"):
                    break
            elif kind == b"R" and content[:4] != b"\0\0\0\0":
                failure = "wants a password, but the lab's own server has none"
                break
            elif kind == b"Z":
                break
        if failure:
            raise TestbedError(f"database {self._database}: {failure}")
        return rows

    def _message(self) -> tuple[bytes, bytes]:
        head = self._exactly(5)
        (length,) = struct.unpack("!I", head[1:])
        return head[:1], self._exactly(length - 4)

    def _exactly(self, count: int) -> bytes:
        while len(self._waiting) < count:
            read = self._socket.recv(1 << 16)
            if not read:
                raise OSError("the server closed the connection")
            self._waiting += read
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken


def _row(content: bytes) -> list[str | None]:
    (count,) = struct.unpack_from("!H", content)
    place, values = 2, []
    for _ in range(count):
        (length,) = struct.unpack_from("!i", content, place)
        place += 4
        values.append(None if length < 0 else content[place : place + length].decode())
        place += max(0, length)
    return values


def _reason(content: bytes) -> str:
    fields = {part[:1]: part[1:].decode(errors="replace") for part in content.split(b"\0") if part}
    return f"{fields.get(b'V', fields.get(b'S', 'ERROR'))}: {fields.get(b'M', 'no reason given')}"
