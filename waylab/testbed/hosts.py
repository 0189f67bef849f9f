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
    # The cores to which its programs slow themselves down; None if they need not.
    paced_cores: float | None = None

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


@dataclass(frozen=True)
class ProcessRow:
    """A row of `processes.csv`."""

    clock_ns: int
    process: str
    pid: int
    user_s: float
    system_s: float
    resident_bytes: int
    threads: int


@dataclass(frozen=True)
class MachineRow:
    """A row of `machine.csv`: counters since the machine started."""

    clock_ns: int
    capacity_s: float
    user_s: float
    system_s: float
    interrupt_s: float
    idle_s: float
    steal_s: float
    load_1m: float
    memory_available_bytes: int
    network_sent_bytes: int


class Testbed:
    """The hosts of a run, as a context; here every name is this machine."""

    __test__ = False
    kind = "local"
    # Whether the hosts are other machines, whose programs only the testbed can sample.
    samples = False
    # Whether a page follows the run: load generators write each second, and programs serve their stage times.
    live = False

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

    def begin_trial(self, clock_host: str | None) -> None:
        """Prepare the hosts for a trial whose load runs on `clock_host`."""
        return

    def start_together(self, starts: list[tuple[Callable[[], Process], int]]) -> list[Process]:
        """Start programs, pause each when it has so many sockets, and let all go on at once.

        Only if the testbed `samples`.
        """
        raise NotImplementedError

    def sample(self, processes: list[Process]) -> tuple[list[ProcessRow], MachineRow]:
        """Return a row for each program and one for the machines, if the testbed `samples`."""
        raise NotImplementedError

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
