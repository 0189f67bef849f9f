"""Where programs run: a host has an address and starts processes; a testbed has hosts, and goes away again.

The base classes are this machine as it is. Knows nothing of roles.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from waylab.runfolder.trial import TestbedFacts
from waylab.testbed.processes import Process

_Result = TypeVar("_Result")


class Host:
    """This machine: programs find each other over the loopback."""

    # Whether nobody but the hosts of this run can reach it.
    own_network = False

    def __init__(self, name: str = "here", address: str = "127.0.0.1") -> None:
        self.name = name
        self.address = address

    def start(
        self,
        name: str,
        command: list[str],
        logs: Path,
        paused: bool = False,
        user: tuple[int, int] | None = None,
    ) -> Process:
        """Start a program on this host, its output kept in `logs`; `user` is another user and group than ours."""
        return Process(name, command, logs, host=self.name, paused=paused, user=user)

    def free_port(self) -> int:
        """Let the kernel name a port that nobody on this host uses."""
        return self.inside(lambda: _free_port(self.address))

    def answers(self, port: int) -> bool:
        """Say whether a memcached server on this host answers `version`."""
        return self.inside(lambda: _answers(self.address, port))

    def inside(self, function: Callable[[], _Result]) -> _Result:
        """Call a function that opens sockets or reads network settings, as a program of this host would."""
        return function()


@dataclass(frozen=True)
class HostCounters:
    """What one host has sent and received so far, and for how long its quota of CPU time was used up."""

    host: str
    sent_bytes: int
    sent_packets: int
    sent_dropped: int
    received_bytes: int
    received_packets: int
    received_dropped: int
    throttled_s: float


class Testbed:
    """The hosts of a run, between entering and leaving the context; every name means this machine."""

    __test__ = False
    kind = "local"

    def __enter__(self) -> "Testbed":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def host(self, name: str | None) -> Host:
        """Return the host of that name; None is the host of a role that has no place of its own."""
        return Host(name or "here")

    def facts(self) -> TestbedFacts:
        """Return what is kept with every trial: the kind, and what was measured of the links."""
        return TestbedFacts(kind=self.kind)

    def counters(self) -> list[HostCounters]:
        """Return what every host has sent, received, dropped and been throttled so far; nothing here."""
        return []


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def _answers(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=0.2) as connection:
            connection.sendall(b"version\r\n")
            return connection.recv(64).startswith(b"VERSION")
    except OSError:
        return False
