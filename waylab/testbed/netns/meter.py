"""Measures a link with TCP: rate each way and round trip. A program by itself, started inside a namespace.

    meter.py serve ADDRESS                     runs until a signal
    meter.py measure ADDRESS:PORT UP DOWN      prints one JSON object; UP and DOWN are seconds

Imports only the standard library, so that it starts fast. Rates are payload at the receiver, without the first fifth
of the time.
"""

import json
import socket
import struct
import sys
import threading
import time

SKIPPED_SHARE = 0.2
# The queue of a slow link may contain many seconds of data; the measurement does not wait until it is empty.
LONGEST_SHARE = 1.5
ROUND_TRIPS = 200
# A link with a long delay has fewer round trips.
ROUND_TRIPS_MIN = 11
ROUND_TRIPS_S = 2.0
# A broken link must not block the lab.
TIMEOUT_S = 10.0
_CHUNK = bytes(1 << 14)
_SECONDS = struct.Struct("!d")
_PING, _UP, _DOWN = b"P", b"U", b"D"


def serve(address: str) -> None:
    """Serve measurements, each on a connection of its own, one after the other or at once."""
    with socket.create_server((address, 0)) as server:
        host, port = server.getsockname()
        print(f"meter ready on {host}:{port}", flush=True)
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_serve_one, args=(connection,), daemon=True).start()


def measure(address: str, up_s: float, down_s: float) -> dict[str, float]:
    """Measure the link between here and a meter that serves."""
    host, _, port = address.rpartition(":")
    server = (host, int(port))
    with _connection(server, _PING, up_s) as connection:
        trips_s = _round_trips_s(connection)
        segment_bytes = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    with _connection(server, _UP, up_s) as connection:
        _send(connection, up_s)
        connection.shutdown(socket.SHUT_WR)
        up_bytes_per_s = _SECONDS.unpack(_exactly(connection, _SECONDS.size))[0]
    with _connection(server, _DOWN, down_s) as connection:
        down_bytes_per_s = _receive(connection, down_s)
    return {
        "up_payload_mbit": up_bytes_per_s * 8e-6,
        "down_payload_mbit": down_bytes_per_s * 8e-6,
        "round_trip_min_ms": trips_s[0] * 1e3,
        "round_trip_median_ms": trips_s[len(trips_s) // 2] * 1e3,
        "segment_bytes": segment_bytes,
    }


def _serve_one(connection: socket.socket) -> None:
    with connection:
        connection.settimeout(TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wanted = connection.recv(1)
        seconds = _SECONDS.unpack(_exactly(connection, _SECONDS.size))[0]
        if wanted == _UP:
            connection.sendall(_SECONDS.pack(_receive(connection, seconds)))
            # Closed with data unread, the connection would be reset and the result lost.
            while connection.recv(1 << 18):
                pass
        elif wanted == _DOWN:
            _send(connection, seconds)
        else:
            while byte := connection.recv(1):
                connection.sendall(byte)


def _connection(server: tuple[str, int], wanted: bytes, seconds: float) -> socket.socket:
    connection = socket.create_connection(server, timeout=TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(wanted + _SECONDS.pack(seconds))
    return connection


def _round_trips_s(connection: socket.socket) -> list[float]:
    """Return the times of round trips, the shortest first."""
    trips_s: list[float] = []
    end = time.perf_counter() + ROUND_TRIPS_S
    while len(trips_s) < ROUND_TRIPS_MIN or (len(trips_s) < ROUND_TRIPS and time.perf_counter() < end):
        trips_s.append(_round_trip_s(connection))
    return sorted(trips_s)


def _round_trip_s(connection: socket.socket) -> float:
    start = time.perf_counter()
    connection.sendall(b".")
    _exactly(connection, 1)
    return time.perf_counter() - start


def _send(connection: socket.socket, seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        connection.sendall(_CHUNK)


def _receive(connection: socket.socket, seconds: float) -> float:
    """Return bytes per second without the first part, which includes the slow start and the shaper's burst."""
    buffer = bytearray(1 << 18)
    first = last = start = time.perf_counter()
    count = 0
    try:
        while (left := start + LONGEST_SHARE * seconds - time.perf_counter()) > 0:
            connection.settimeout(left)
            got = connection.recv_into(buffer)
            if not got:
                break
            last = time.perf_counter()
            if last - start < SKIPPED_SHARE * seconds:
                first = last
            else:
                count += got
    except TimeoutError:
        pass
    connection.settimeout(TIMEOUT_S)
    return count / (last - first) if last > first else 0.0


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = connection.recv(size - len(content))
        if not part:
            raise ConnectionError("the other end of the measurement has closed the connection")
        content += part
    return content


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        print(json.dumps(measure(sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))))
