"""The system calls of the proxy that receive and send, for each request, as strace counts them.

Only one client at a time waits for replies, and each request, pipeline and reply is one small write. So a busy machine
changes nothing: it delays calls, and does not add any. Calls that depend on time, such as epoll_wait, are not counted.

The bounds were seen to fail with worse proxies, over 100 rounds:

- A proxy that reads each socket until it is empty fails in every case: 4.07 receives for a get, 4.07 for a pipeline,
  6.10 for ten keys, 4.30 in a slot and 34.23 for 16 gets in slots.
- A proxy that writes each request to the server alone fails in the pipeline only, with 17.47 sends.
- A proxy that writes each reply to the client alone fails in the pipeline, with 17.12 sends. 16 gets in slots then need
  32.24 sends instead of 20.05, which is within the bound: how many replies leave together depends on the servers.

The bounds of sends in the other cases were not seen to fail.
"""

import re
import signal
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from programs import WAYSTAGE, connect, free_ports, need

ROUNDS = 300
# The program opens connections and reads files when it starts.
STARTS_MAX = 60
CALL = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", re.MULTILINE)
RECEIVE = ("recvfrom", "recvmsg", "readv")
SEND = ("sendto", "sendmsg", "writev")
KEYS_10 = b" ".join(b"key-%d" % number for number in range(10))


def answer(connection: socket.socket) -> None:
    """Answer all requests of one read with one write: every key is a miss."""
    with connection:
        while received := connection.recv(65536):
            lines = received.split(b"\r\n")[:-1]
            connection.sendall(
                b"".join(b"VERSION 1.6.0\r\n" if line == b"version" else b"END\r\n" for line in lines)
            )


@contextmanager
def servers(count: int):
    """Start servers that have no values; yields their ports."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]

    def serve(listener: socket.socket) -> None:
        try:
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
        except OSError:
            return

    for listener in listeners:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
    try:
        yield [listener.getsockname()[1] for listener in listeners]
    finally:
        for listener in listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()


def ask(client: socket.socket, request: bytes, reply: bytes) -> None:
    """Send a request in one write, and read the reply."""
    client.sendall(request)
    received = b""
    while len(received) < len(reply):
        received += client.recv(65536)
    assert received == reply


def counted(
    folder: Path, ports: list[int], arguments: list[str], request: bytes, reply: bytes
) -> tuple[int, int]:
    """Return the calls that receive, and those that send, in this many rounds of a request."""
    out = folder / "strace.out"
    (port,) = free_ports(1)
    proxy = [
        str(WAYSTAGE),
        "proxy",
        "--listen",
        f"127.0.0.1:{port}",
        "--loops",
        "1",
        "--backend-timeout",
        "60s",
    ]
    for server in ports:
        proxy += ["--server", f"127.0.0.1:{server}"]
    trace = ["strace", "-f", "-c", "-o", str(out), "-e", f"trace={','.join(RECEIVE + SEND)}"]
    tracer = subprocess.Popen(
        [*trace, *proxy, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with connect(port) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            until_up(client, len(ports))
            for _ in range(ROUNDS):
                ask(client, request, reply)
        (pid,) = map(int, Path(f"/proc/{tracer.pid}/task/{tracer.pid}/children").read_text().split())
        subprocess.run(["kill", "-s", str(int(signal.SIGTERM)), str(pid)], check=True)
        tracer.wait(60)
    finally:
        tracer.kill()
        tracer.wait()
    calls = {name: int(count) for count, name in CALL.findall(out.read_text())}
    return sum(calls.get(name, 0) for name in RECEIVE), sum(calls.get(name, 0) for name in SEND)


def until_up(client: socket.socket, count: int) -> None:
    """Wait until keys of every server are answered without an error."""
    misses = b"END\r\n"
    for _ in range(20):
        client.sendall(b"".join(b"get up-%d\r\n" % key for key in range(10 * count)))
        lines = b""
        while lines.count(b"\r\n") < 10 * count:
            lines += client.recv(65536)
        if lines == misses * 10 * count:
            return
        time.sleep(0.2)
    pytest.fail(f"the servers stay down: {lines!r}")


@pytest.mark.parametrize(
    ("name", "count", "arguments", "request_line", "repeated", "calls"),
    [
        # One from the client, and one from the server.
        ("a get", 1, [], b"get key", 1, (2, 2)),
        ("a pipeline of 16 gets", 1, [], b"get key", 16, (2, 2)),
        # One from the client, and one from each of three servers, for all the keys that are there.
        ("a get of ten keys", 3, [], b"get " + KEYS_10, 1, (4, 4)),
        # A slot has one request at a time. Replies that are there together leave with one call.
        ("a get in a slot", 1, ["--dispatch", "shared", "--workers", "4"], b"get key", 1, (2, 2)),
        ("16 gets in slots", 1, ["--dispatch", "shared", "--workers", "4"], b"get key", 16, (17, 32)),
    ],
)
def test_a_request_needs_few_calls(tmp_path, name, count, arguments, request_line, repeated, calls):
    """The numbers are upper bounds, and without sharing calls a pipeline would need sixteen times as many."""
    need("strace", instead="the system calls of a request are not counted")
    request, reply = (request_line + b"\r\n") * repeated, b"END\r\n" * repeated
    with servers(count) as ports:
        received, sent = counted(tmp_path, ports, arguments, request, reply)
    print(f"{name}: {received / ROUNDS:.2f} calls receive, {sent / ROUNDS:.2f} send")
    assert ROUNDS < received <= ROUNDS * calls[0] + STARTS_MAX, name
    assert ROUNDS < sent <= ROUNDS * calls[1] + STARTS_MAX, name
