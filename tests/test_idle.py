"""Idle connections beside active ones, and a client that sends and never reads, with the real program.

The short forms are part of the tests. The long ones: WAYSTAGE_IDLE=10000 WAYSTAGE_ACTIVE=200 WAYSTAGE_FLOOD_MB=100
pytest -s tests/test_idle.py prints the figures.
"""

import os
import resource
import selectors
import socket
import subprocess
import threading
import time
from pathlib import Path

from programs import connect, need, twemproxy
from test_programs import backend, serving

IDLE = int(os.environ.get("WAYSTAGE_IDLE", "1000"))
ACTIVE = int(os.environ.get("WAYSTAGE_ACTIVE", "50"))
ROUNDS = 20
PIPELINE = 20
FLOOD_BYTES = int(os.environ.get("WAYSTAGE_FLOOD_MB", "20")) << 20
VALUE_BYTES = 2000
CLIENT_BUFFER_BYTES = 1 << 20
# Upper limits of memory, without the kernel's own buffers.
MEMORY_MAX = 16 * CLIENT_BUFFER_BYTES
# Measured: under 0.4 kB with 10 000 connections, plus the memory that the allocator keeps of the active connections.
IDLE_BYTES_MAX = 4000
# Long, so that no backend times out on a busy machine.
PATIENT = ["--backend-timeout", "60s"]


def raise_file_limit(wanted):
    """Raise the limit of open files to this number, or as far as permitted; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def resident_bytes(process):
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def resident_at_rest(process):
    """Return the resident memory when it no longer changes."""
    before = -1
    while (now := resident_bytes(process)) != before:
        before = now
        time.sleep(0.2)
    return now


def ask(connection, request, expected):
    """Send a request, and read exactly the expected reply."""
    connection.sendall(request)
    read_exactly(connection, expected)


def read_exactly(connection, expected):
    """Read as many bytes as expected, and compare them."""
    reply = b""
    while len(reply) < len(expected):
        piece = connection.recv(len(expected) - len(reply))
        assert piece, f"closed after {reply[-100:]!r}"
        reply += piece
    assert reply == expected


def work(connections):
    """Send rounds of pipelined requests on all connections at once, and check every reply."""
    request = b"".join(b"set k%d 0 0 1\r\nx\r\nget k%d\r\n" % (index, index) for index in range(PIPELINE))
    reply = b"".join(b"STORED\r\nVALUE k%d 0 1\r\nx\r\nEND\r\n" % index for index in range(PIPELINE))
    selector = selectors.DefaultSelector()
    missing = {}
    for connection in connections:
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ)
        connection.send(request)
        missing[connection] = [ROUNDS, b""]
    while missing:
        ready = selector.select(timeout=20)
        assert ready, f"{len(missing)} connections wait for replies"
        for key, _ in ready:
            state = missing[key.fileobj]
            state[1] += key.fileobj.recv(1 << 16)
            assert reply.startswith(state[1])
            if state[1] == reply:
                state[0], state[1] = state[0] - 1, b""
                if state[0]:
                    key.fileobj.send(request)
                else:
                    selector.unregister(key.fileobj)
                    del missing[key.fileobj]
    for connection in connections:
        connection.setblocking(True)
        connection.settimeout(20)


def test_idle_connections_use_little_memory_and_do_not_slow_active_ones():
    allowed = raise_file_limit(IDLE + ACTIVE + 200) - ACTIVE - 200
    idle_count = min(IDLE, allowed)
    flags = ["--listen", "127.0.0.1:0", "--loops", 2, "--clients-max", IDLE + ACTIVE + 10, *PATIENT]
    with backend() as servers, serving("proxy", *flags, "--server", servers[0]) as (address, process):
        port = int(address.split(":")[1])
        active = [connect(port) for _ in range(ACTIVE)]
        work(active)
        before = resident_at_rest(process)
        idle = [connect(port) for _ in range(idle_count)]
        new = resident_at_rest(process)
        # Idle after use: the memory of requests must have been freed.
        for connection in idle:
            ask(connection, b"get none\r\n", b"END\r\n")
        used = resident_at_rest(process)
        began = time.monotonic()
        work(active)
        took_s = time.monotonic() - began
        for connection in idle:
            ask(connection, b"mn\r\n", b"MN\r\n")
        after = resident_at_rest(process)
        figures = {"never used": new, "used": used, "after work": after}
        each = {name: (bytes_ - before) / idle_count for name, bytes_ in figures.items()}
        count = ACTIVE * ROUNDS * PIPELINE * 2
        print(
            f"\n{idle_count} idle of {IDLE} wanted, {ACTIVE} active: {before} bytes before; for each idle one {each}"
        )
        print(f"{count} requests of the active ones in {took_s:.2f} s")
        assert max(each.values()) < IDLE_BYTES_MAX, each
        for connection in active + idle:
            connection.close()


def test_a_connection_that_is_idle_after_use_costs_less_than_in_twemproxy(tmp_path):
    need("nutcracker", instead="the memory of idle connections has a limit in another test")
    count = min(IDLE, raise_file_limit(IDLE + 300) - 300)
    flags = ["--listen", "127.0.0.1:0", "--loops", 1, "--clients-max", IDLE + 10, *PATIENT]
    with backend() as servers, serving("proxy", *flags, "--server", servers[0]) as (address, ours):
        port, command = twemproxy(tmp_path, servers, timeout=60_000, backlog=1024)
        with subprocess.Popen(command) as theirs:
            try:
                each = {
                    name: bytes_of_idle(process, proxy_port, count)
                    for name, process, proxy_port in (
                        ("waystage", ours, int(address.split(":")[1])),
                        ("twemproxy", theirs, port),
                    )
                }
            finally:
                theirs.terminate()
    print(f"\n{count} idle connections, bytes of memory for each, new and after one request: {each}")
    assert each["waystage"][1] < each["twemproxy"][1], each


def bytes_of_idle(process, port, count):
    """Return the memory for each of so many connections: new, and after all have sent a request at once."""
    connect(port).close()
    before = resident_at_rest(process)
    idle = [connect(port) for _ in range(count)]
    new = resident_at_rest(process)
    for connection in idle:
        connection.sendall(b"get none\r\n")
    for connection in idle:
        read_exactly(connection, b"END\r\n")
    used = resident_at_rest(process)
    for connection in idle:
        connection.close()
    return (new - before) / count, (used - before) / count


def flood(connection, piece, limit):
    """Send until no byte is accepted for a second; return the number of bytes accepted."""
    connection.settimeout(1)
    taken = 0
    while taken < limit:
        try:
            taken += connection.send(piece[taken % len(piece) :])
        except TimeoutError:
            break
    return taken


def test_a_client_that_never_reads_uses_at_most_the_configured_memory():
    flags = ["--listen", "127.0.0.1:0", "--loops", 1, "--client-buffer", CLIENT_BUFFER_BYTES, *PATIENT]
    with backend() as servers, serving("proxy", *flags, "--server", servers[0]) as (address, process):
        port = int(address.split(":")[1])
        greedy, other = socket.socket(), connect(port)
        # Small kernel buffers, so that the proxy's own buffers fill.
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            greedy.setsockopt(socket.SOL_SOCKET, option, 1 << 16)
        greedy.connect(("127.0.0.1", port))
        value = b"x" * VALUE_BYTES
        ask(other, b"set big 0 0 %d\r\n" % VALUE_BYTES + value + b"\r\n", b"STORED\r\n")
        request = b"get big" + b" " * 991 + b"\r\n"
        reply = b"VALUE big 0 %d\r\n" % VALUE_BYTES + value + b"\r\nEND\r\n"
        ask(greedy, request * 100, reply * 100)
        before = resident_bytes(process)
        taken = flood(greedy, request * 100, FLOOD_BYTES)
        grown = resident_bytes(process) - before
        ask(other, b"get none\r\n", b"END\r\n")
        print(f"\n{taken} bytes were taken of a client that does not read, for {grown} bytes of memory")
        assert taken < FLOOD_BYTES, "the proxy must stop reading"
        # Buffered replies and replies in flight, each up to the limit, plus one read.
        assert grown < MEMORY_MAX, grown
        # When the client reads at last, every request has exactly one reply.
        greedy.settimeout(300)
        rest = FLOOD_BYTES // len(request) * len(request) - taken
        sender = threading.Thread(
            target=greedy.sendall, args=((request * (rest // len(request) + 2))[-rest:],)
        )
        sender.start()
        for _ in range(FLOOD_BYTES // len(request)):
            read_exactly(greedy, reply)
        sender.join()
        most = resident_bytes(process) - before
        print(f"{FLOOD_BYTES} bytes of requests answered, {most} bytes more in memory")
        assert most < MEMORY_MAX, most
        ask(greedy, b"mn\r\n", b"MN\r\n")
        greedy.close()
        other.close()
