"""What the tests that cross halves share: where the program is, free ports, and waiting for a server."""

import os
import shutil
import socket
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WAYSTAGE = Path(os.environ.get("WAYSTAGE_BIN", ROOT / "target/release/waystage"))
# Debian puts some servers where only root looks.
SEARCHED = os.environ["PATH"] + ":/usr/sbin"
MEMCACHED = ["memcached", "-u", "root", "-U", "0", "-l", "127.0.0.1", "-p"]


def find(program):
    """Where a program is, or none."""
    return shutil.which(program, path=SEARCHED)


def missing(*programs):
    """Which of these are not installed. Where WAYSTAGE_REQUIRE_PEERS is set, as in .ci/run, none may be."""
    absent = [program for program in programs if not find(program)]
    assert not absent or "WAYSTAGE_REQUIRE_PEERS" not in os.environ, f"{absent} are required here"
    return absent


def need(*programs, stand_in):
    """Skip a test that needs programs which are not installed; say what stands in for it."""
    absent = missing(*programs)
    if absent:
        pytest.skip(f"{', '.join(absent)} not installed; {stand_in}")


def free_ports(count):
    """Ports that were free a moment ago."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def connect(port):
    """Connect to a program that may still be starting."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=10)
        except OSError:
            assert time.monotonic() < deadline, f"nobody listens on port {port}"
            time.sleep(0.02)
