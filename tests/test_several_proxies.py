"""Two proxies before the same servers: what docs/consistency.md promises for `writes = "all"`, `reads = "primary"`.

Each key has one writer. Clients of both proxies read it while servers are killed and frozen, and one proxy reloads.
"""

import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from fault_proxy import Process
from fault_servers import Server
from programs import connect, free_ports

SECONDS = 4.0
SERVERS = 3
WRITERS = 4
KEYS_OF_WRITER = 4
# How long a server is away. The longer time is more than the timeouts.
AWAY_S = (0.1, 0.9)


class History:
    """The versions of each key: the newest that was acknowledged, and those whose writes failed."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, int] = {}
        self.failed: dict[str, set[int]] = {}
        self.lock = threading.Lock()

    def record(self, key: str, version: int, is_stored: bool) -> None:
        """Record the reply to a write."""
        with self.lock:
            if is_stored:
                self.acknowledged[key] = version
            else:
                self.failed.setdefault(key, set()).add(version)

    def oldest_allowed(self, key: str) -> int:
        """Return the version that a read which starts now must have, unless it has one of a failed write."""
        with self.lock:
            return self.acknowledged.get(key, 0)

    def has_failed(self, key: str, version: int) -> bool:
        """Whether the write of this version failed; it may be applied at any time."""
        with self.lock:
            return version in self.failed.get(key, ())


def write(port: int, writer: int, until: float, history: History) -> int:
    """Write ascending versions of the own keys; return how many writes were acknowledged."""
    source, stored = random.Random(writer), 0
    with connect(port) as stream, stream.makefile("rb") as replies:
        version = 0
        while time.monotonic() < until:
            version += 1
            key = f"{writer}:{source.randrange(KEYS_OF_WRITER)}"
            stream.sendall(f"set {key} 0 0 {len(str(version))}\r\n{version}\r\n".encode())
            is_stored = replies.readline() == b"STORED\r\n"
            history.record(key, version, is_stored)
            stored += is_stored
            time.sleep(source.random() * 0.004)
    return stored


def read(port: int, reader: int, until: float, history: History) -> tuple[int, list[str]]:
    """Read all keys at random; return the number of values, and those that were too old."""
    source, values, stale = random.Random(reader + 100), 0, []
    with connect(port) as stream, stream.makefile("rb") as replies:
        while time.monotonic() < until:
            key = f"{source.randrange(WRITERS)}:{source.randrange(KEYS_OF_WRITER)}"
            oldest = history.oldest_allowed(key)
            stream.sendall(f"get {key}\r\n".encode())
            if not replies.readline().startswith(b"VALUE"):
                continue
            version = int(replies.readline())
            assert replies.readline() == b"END\r\n"
            values += 1
            if version < oldest and not history.has_failed(key, version):
                stale.append(f"{key} has version {version}, after {oldest} was acknowledged")
    return values, stale


def disturb(servers: list[Server], proxy: Process, until: float) -> None:
    """Kill and freeze servers, one at a time, and reload the proxy between."""
    source = random.Random(7)
    while time.monotonic() < until:
        server = source.choice(servers)
        source.choice([server.restart, server.freeze])(source.choice(AWAY_S))
        proxy.process.send_signal(signal.SIGHUP)
        time.sleep(0.2)


@pytest.mark.parametrize("replicas", [1, 2])
def test_no_proxy_returns_a_value_older_than_a_write_that_the_other_acknowledged(
    replicas: int, tmp_path: Path
) -> None:
    with ExitStack() as ends:
        servers = [Server() for _ in range(SERVERS)]
        ports = free_ports(2)
        proxies = []
        for number, port in enumerate(ports):
            file = tmp_path / f"{number}.toml"
            addresses = ", ".join(f'"127.0.0.1:{server.port}"' for server in servers)
            file.write_text(
                f'listen = "127.0.0.1:{port}"\nloops = 1\n[[pools]]\nname = "main"\nservers = [{addresses}]\n'
                f'replicas = {replicas}\nwrites = "all"\nreads = "primary"\n'
                'timeouts = { connect = "300ms", read = "300ms", write = "300ms", reply = "600ms" }\n'
            )
            proxies.append(Process(["--config", str(file)]))
        for each in (*servers, *proxies):
            ends.callback(each.end if isinstance(each, Server) else each.kill)
        history, until = History(), time.monotonic() + SECONDS
        with ThreadPoolExecutor() as threads:
            disturbing = threads.submit(disturb, servers, proxies[0], until)
            writing = [threads.submit(write, ports[n % 2], n, until, history) for n in range(WRITERS)]
            reading = [threads.submit(read, ports[n % 2], n, until, history) for n in range(4)]
        disturbing.result()
        assert sum(each.result() for each in writing) > 0
        results = [each.result() for each in reading]
        assert sum(values for values, _ in results) > 0
        assert not [line for _, stale in results for line in stale]
