"""Helpers of the tests that use the Rust program from Python: its path, free ports, and connecting to a server."""

import os
import shutil
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WAYSTAGE = Path(os.environ.get("WAYSTAGE_BIN", ROOT / "target/release/waystage"))
# Debian installs some servers in folders that are only in root's PATH.
SEARCHED = os.environ["PATH"] + ":/usr/sbin"
MEMCACHED = ["memcached", "-u", "root", "-U", "0", "-l", "127.0.0.1", "-p"]
# The ports that `free_ports` has returned.
_GIVEN: set[int] = set()
_GIVEN_LOCK = threading.Lock()


def find(program: str) -> str | None:
    """Return the path of a program, or None."""
    return shutil.which(program, path=SEARCHED)


def missing(*programs: str) -> list[str]:
    """Return those that are not installed. With WAYSTAGE_REQUIRE_PEERS, as in .ci/run, a missing one is a failure."""
    absent = [program for program in programs if not find(program)]
    assert not absent or "WAYSTAGE_REQUIRE_PEERS" not in os.environ, f"{absent} are required here"
    return absent


def need(*programs: str, instead: str) -> None:
    """Skip a test whose programs are not installed; `instead` says what covers it meanwhile."""
    absent = missing(*programs)
    if absent:
        pytest.skip(f"{', '.join(absent)} not installed; {instead}")


def free_ports(count: int) -> list[int]:
    """Return ports that are free at this moment, and that this process was not given before.

    A port is free until its server listens, and again while the server is killed. Two servers could get the same port
    without the second condition, and the clients of one would then read the values of the other.
    """
    with _GIVEN_LOCK:
        probes: list[socket.socket] = []
        while len(probes) < count:
            probe = socket.create_server(("127.0.0.1", 0))
            if probe.getsockname()[1] in _GIVEN:
                probe.close()
            else:
                probes.append(probe)
                _GIVEN.add(probe.getsockname()[1])
        ports = [probe.getsockname()[1] for probe in probes]
        for probe in probes:
            probe.close()
    return ports


def twemproxy(folder: Path, servers: Iterable[str], **settings: object) -> tuple[int, list[str]]:
    """Configure a twemproxy with one pool; return its port and its command line."""
    port, statistics_port = free_ports(2)
    lines = [f"  {name}: {value}" for name, value in settings.items()]
    lines += ["  servers:", *(f"   - {server}:1" for server in servers)]
    configuration = folder / "nutcracker.yml"
    configuration.write_text("\n".join(["pool:", f"  listen: 127.0.0.1:{port}", *lines, ""]))
    command = [
        find("nutcracker") or "nutcracker",
        "-c",
        str(configuration),
        "-o",
        str(folder / "nutcracker.log"),
    ]
    return port, [*command, "-m", "16384", "-a", "127.0.0.1", "-s", str(statistics_port)]


def connect(port: int) -> socket.socket:
    """Connect to a program that may still be starting."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=10)
        except OSError:
            assert time.monotonic() < deadline, f"no server listens on port {port}"
            time.sleep(0.02)
