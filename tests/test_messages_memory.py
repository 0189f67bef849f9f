"""Tests that many connections and long polls cost the message service bounded memory, and that it still serves others.

A short form is part of the tests. WAYSTAGE_IDLE=5000 WAYSTAGE_POLLS=1000 pytest -s tests/test_messages_memory.py runs
the long form and prints the figures. There is no database, because connections and polls occupy only the service.
"""

import os
import time

from programs import connect
from test_idle import raise_file_limit, resident_at_rest
from test_programs import serving

IDLE = int(os.environ.get("WAYSTAGE_IDLE", "300"))
POLLS = int(os.environ.get("WAYSTAGE_POLLS", "100"))
# Upper limits, with room for the allocator; docs/messages-limits.md has the measured figures.
IDLE_BYTES_MAX = 24_000
POLL_BYTES_MAX = 80_000


def ask(connection, method, path, read=True):
    """Send a request without a body, and return the head of the reply."""
    connection.sendall(f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nwaystage-sender: me\r\n\r\n".encode())
    return read_head(connection) if read else b""


def read_head(connection):
    """Read a reply with a short body to its announced end."""
    reply = b""
    while b"\r\n\r\n" not in reply:
        piece = connection.recv(65536)
        assert piece, f"closed after {reply!r}"
        reply += piece
    head, _, body = reply.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length")), 0
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def metric(connection, name):
    """Return the value of a metric."""
    page = ask(connection, "GET", "/metrics").decode()
    return float(next(line for line in page.splitlines() if line.startswith(name + " ")).split()[1])


def test_connections_and_polls_cost_bounded_memory():
    assert raise_file_limit(IDLE + POLLS + 200) >= IDLE + POLLS + 200
    arguments = ["--dispatch", "none", "--listen", "127.0.0.1:0", "--idle-timeout", "10m"]
    with serving("messages", *arguments) as (address, process):
        port = int(address.rpartition(":")[2])
        first = connect(port)
        for _ in range(200):
            assert ask(first, "POST", "/v1/queues/q/messages").startswith(b"HTTP/1.1 201")
        empty = resident_at_rest(process)
        idle = [connect(port) for _ in range(IDLE)]
        # A connection that has been used occupies more memory than a new one.
        for connection in idle:
            assert ask(connection, "POST", "/v1/queues/q/messages").startswith(b"HTTP/1.1 201")
        with_idle = resident_at_rest(process)
        polls = [connect(port) for _ in range(POLLS)]
        for index, connection in enumerate(polls):
            ask(connection, "POST", f"/v1/queues/q{index}/messages:pop?wait=50s", read=False)
        while metric(first, "waystage_messages_long_polls") < POLLS:
            time.sleep(0.05)
        with_polls = resident_at_rest(process)
        idle_bytes, poll_bytes = (with_idle - empty) / IDLE, (with_polls - with_idle) / POLLS
        print(
            f"empty {empty / 1e6:.1f} MB; {idle_bytes:.0f} bytes for each of {IDLE} idle connections, "
            f"{poll_bytes:.0f} for each of {POLLS} polls"
        )
        assert metric(first, "waystage_messages_clients") == 1 + IDLE + POLLS
        for connection in [first, *idle[:: max(1, IDLE // 50)]]:
            assert ask(connection, "POST", "/v1/queues/q/messages").startswith(b"HTTP/1.1 201")
        assert idle_bytes < IDLE_BYTES_MAX and poll_bytes < POLL_BYTES_MAX
        for connection in polls:
            connection.close()
        while metric(first, "waystage_messages_long_polls"):
            time.sleep(0.05)
        for connection in idle:
            connection.close()
        while metric(first, "waystage_messages_clients") > 1:
            time.sleep(0.05)
        # The allocator keeps freed memory; it must not grow with the number of past connections.
        assert resident_at_rest(process) < 1.15 * with_polls + 4_000_000
        first.close()
