"""Hosts and testbeds: a host has an address and starts processes; a testbed is the context of all hosts of a run.

The base classes are this machine without emulation. Knows nothing of roles.
"""

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from waylab.runfolder.trial import TestbedFacts
from waylab.testbed.processes import Process

_Result = TypeVar("_Result")


class Host:
    """This machine: programs communicate over the loopback interface."""

    # Whether only the hosts of this run can reach this host.
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
        """Start a program on this host with its output in `logs`, optionally as another user and group."""
        return Process(name, command, logs, host=self.name, paused=paused, user=user)

    def free_port(self) -> int:
        """Return a free port of this host, chosen by the kernel."""
        return self.inside(lambda: _free_port(self.address))

    def answers(self, port: int) -> bool:
        """Return whether a memcached server on this host answers `version`."""
        return self.inside(lambda: _answers(self.address, port))

    def inside(self, function: Callable[[], _Result]) -> _Result:
        """Call a function that opens sockets or reads network settings, as a program of this host would."""
        return function()


@dataclass(frozen=True)
class HostCounters:
    """Traffic of one host so far, and the time for which its CPU quota throttled it."""

    host: str
    sent_bytes: int
    sent_packets: int
    sent_dropped: int
    received_bytes: int
    received_packets: int
    received_dropped: int
    throttled_s: float
    # Packets that the program of a link forwarded too late.
    late_packets: int
    # CPU time of its programs, and the time for which they could run and did not, both summed over threads.
    used_s: float = 0.0
    waited_s: float = 0.0


class Testbed:
    """The hosts of a run, as a context; here every name is this machine."""

    __test__ = False
    kind = "local"

    def __enter__(self) -> "Testbed":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def host(self, name: str | None) -> Host:
        """Return the host of that name; None is the host of a role without an assignment."""
        return Host(name or "here")

    def filling_host(self, name: str | None) -> Host:
        """Return the host from which data are stored before the load of host `name`."""
        return self.host(name)

    def without_quotas(self) -> AbstractContextManager[None]:
        """Return a context in which no host has a limit of its CPU time, to prepare and to end a trial faster."""
        return nullcontext()

    def facts(self) -> TestbedFacts:
        """Return the facts for `trial.json`: the kind of testbed, and the measured links."""
        return TestbedFacts(kind=self.kind)

    def counters(self) -> list[HostCounters]:
        """Return the counters of every host; none for this machine."""
        return []

    def link_programs(self) -> list[Process]:
        """Return the programs that emulate links, whose CPU time is the testbed's; none for this machine."""
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
