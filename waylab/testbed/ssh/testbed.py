"""The hosts of a run over SSH: connected and checked before the first trial, and connected again after one was lost."""

import json
import socket
import subprocess
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from types import TracebackType
from typing import Any

from waylab.runfolder.trial import HostClock, RemoteHost, TestbedFacts
from waylab.spec import HostSettings, TestbedSettings
from waylab.testbed.hosts import Host, MachineRow, ProcessRow, Testbed
from waylab.testbed.processes import Process, TestbedError
from waylab.testbed.ssh import usage
from waylab.testbed.ssh.clocks import Offset, joined, measure_offset
from waylab.testbed.ssh.connection import KeeperConnection
from waylab.testbed.ssh.host import SshHost
from waylab.testbed.ssh.process import RemoteProcess

# Wall clocks of machines with a time service differ by milliseconds.
_WALL_CLOCK_S = 10.0
# Records, logs and the program of a trial.
_SPACE_BYTES = 256 << 20
_CONFIG_S = 20.0
# For the requests to reach every host.
_START_IN_NS = 1_000_000_000
# The times in a summary of `waystage load`, in nanoseconds of CLOCK_MONOTONIC.
_TIMES = ("started_clock_ns", "measure_from_clock_ns", "measure_to_clock_ns")
_MACHINE_FILES = ["/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/osrelease", "/proc/meminfo"]


class SshTestbed(Testbed):
    """The described hosts that are `used`. The times of a trial are those of the host `clock_host`."""

    kind = "ssh"
    samples = True

    def __init__(self, settings: TestbedSettings, used: list[str], waystage: Path) -> None:
        self._described = {name: settings.hosts[name] for name in used}
        self._waystage = waystage
        self._hosts: dict[str, SshHost] = {}
        self._facts: dict[str, RemoteHost] = {}
        self._boots: dict[str, str] = {}
        self._before: dict[str, Offset] = {}
        self._clock_host = used[0]

    def __enter__(self) -> "SshTestbed":
        try:
            self._connect()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def host(self, name: str | None) -> Host:
        """Return the host of that name."""
        assert name is not None, "the specification's check gives every role a host"
        return self._hosts[name]

    def begin_trial(self, clock_host: str | None) -> None:
        """Connect the hosts that were lost, and measure all clocks; the load of the trial runs on `clock_host`."""
        self._clock_host = clock_host or self._clock_host
        self._before.clear()
        self._connect()
        self._before = {name: measure_offset(host.connection) for name, host in self._hosts.items()}

    def facts(self) -> TestbedFacts:
        """Return the hosts, with their clocks before and after a trial; without clocks if a host was lost."""
        try:
            after = {name: measure_offset(self._hosts[name].connection) for name in self._before}
        except TestbedError:
            after = {}
        clocks = {name: _clock(self._before[name], found) for name, found in after.items()}
        return TestbedFacts(
            kind=self.kind, hosts=dict(self._facts), clocks=clocks, clock_host=self._clock_host
        )

    def start_together(self, starts: list[tuple[Callable[[], Process], int]]) -> list[Process]:
        """Start programs one after the other, pause each when it is connected, and let all go on at one instant."""
        found: list[Process] = []
        for start, sockets in starts:
            process = start()
            assert isinstance(process, RemoteProcess), "every host of this testbed starts remote processes"
            found.append(process)
            process.pause_when_connected(sockets)
        at_ns = time.monotonic_ns() + _START_IN_NS
        for process in found:
            assert isinstance(process, RemoteProcess) and process.host, "as above"
            process.resume_at(at_ns + self._before[process.host].offset_ns)
        return found

    def _align(self, summary: Path, host: str) -> None:
        """Put the times of a summary of `waystage load` on the clock of the trial."""
        if host == self._clock_host or host not in self._before:
            return
        content = json.loads(summary.read_bytes())
        for key in _TIMES:
            if content.get(key) is not None:
                content[key] = self._on_the_trials_clock(host, content[key])
        summary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def sample(self, processes: list[Process]) -> tuple[list[ProcessRow], MachineRow]:
        """Return a row for each program, and one for all machines together, on the clock of the trial.

        Two hosts with the same kernel are one machine.
        """
        rows: list[ProcessRow] = []
        machines: dict[str, usage.MachineCounters] = {}
        clocks_ns: list[int] = []
        keepers: list[usage.ProcessCounters] = []
        for name, host in self._hosts.items():
            keeper = ("waylab", self._facts[name].keeper_pid)
            clock_ns, uses, machine = usage.read_usage(
                host.connection, [keeper, *usage.watched(processes, name)], self._facts[name].cores
            )
            clock_ns = self._on_the_trials_clock(name, clock_ns)
            clocks_ns.append(clock_ns)
            keepers += [use for use in uses if use.process == keeper[0]]
            rows += [ProcessRow(clock_ns=clock_ns, **vars(use)) for use in uses if use.process != keeper[0]]
            machines.setdefault(self._boots[name], machine)
        middle_ns = sum(clocks_ns) // len(clocks_ns)
        rows.append(ProcessRow(clock_ns=middle_ns, **_sum(keepers)))
        return rows, MachineRow(clock_ns=middle_ns, **_sum(list(machines.values())))

    def _on_the_trials_clock(self, name: str, clock_ns: int) -> int:
        return clock_ns - self._before[name].offset_ns + self._before[self._clock_host].offset_ns

    def _connect(self) -> None:
        """Connect the hosts that are not connected, and check them."""
        for name, described in self._described.items():
            host = self._hosts.get(name)
            if host and host.connection.lost is None:
                continue
            if host:
                host.connection.close()
                del self._hosts[name]
            connection = KeeperConnection(name, described, self._waystage)
            try:
                self._hosts[name] = self._checked(connection, described)
            except BaseException:
                connection.close()
                raise
        for one, other in combinations(self._hosts.values(), 2):
            # Two hosts on one machine may have one address.
            if one.address == other.address and self._boots[one.name] != self._boots[other.name]:
                raise TestbedError(
                    f"testbed.hosts.{other.name}: has the address {one.address} of {one.name}, "
                    "which is another machine; set address"
                )

    def _checked(self, connection: KeeperConnection, described: HostSettings) -> SshHost:
        """Refuse a host on which a trial would fail, or its times be wrong."""
        key = f"testbed.hosts.{connection.name}"
        try:
            hello = connection.request("hello")
        except TestbedError as error:
            raise TestbedError(
                f"{key}: waystage does not run there: {error}; its folder is {connection.folder}"
            ) from None
        if hello["sha256"] != connection.sha256:
            raise TestbedError(
                f"{key}: the copy of waystage differs from {self._waystage}; its disk may be full"
            )
        apart_s = int(hello["unix_ns"]) * 1e-9 - time.time()
        if abs(apart_s) > _WALL_CLOCK_S:
            raise TestbedError(
                f"{key}: its wall clock is {apart_s:+.0f} s from that of this machine; set both with a time service"
            )
        free_bytes = int(connection.request("space")["free_bytes"])
        if free_bytes < _SPACE_BYTES:
            raise TestbedError(
                f"{key}: only {free_bytes >> 20} MiB are free in {connection.folder}, a trial needs "
                f"{_SPACE_BYTES >> 20}; set folder to one on another disk"
            )
        address = described.address or _resolved(described.ssh, key)
        try:
            connection.request("port", address=address)
        except TestbedError as error:
            raise TestbedError(
                f"{key}: programs there cannot listen on {address}: {error}; set address"
            ) from None
        boot, kernel, memory = connection.request("texts", paths=_MACHINE_FILES)["texts"]
        self._boots[connection.name] = boot or connection.name
        self._facts[connection.name] = RemoteHost(
            ssh=described.ssh,
            address=address,
            waystage=str(hello["version"]),
            sha256=connection.sha256,
            cores=int(hello["cores"]),
            kernel=(kernel or "").strip() or None,
            memory_bytes=usage.memory_bytes(memory or ""),
            keeper_pid=int(hello["pid"]),
        )
        return SshHost(connection, address, self._waystage, self._align)

    def _close(self) -> None:
        for host in self._hosts.values():
            host.connection.close()
        self._hosts.clear()


def _clock(before: Offset, after: Offset) -> HostClock:
    found = joined(before, after)
    return HostClock(
        offset_ns=found.offset_ns,
        error_ns=found.error_ns,
        drift_ns=after.offset_ns - before.offset_ns,
        measured_s=round((after.at_ns - before.at_ns) * 1e-9, 3),
    )


def _sum(uses: list[usage.ProcessCounters] | list[usage.MachineCounters]) -> dict[str, Any]:
    """Add up the numbers of several machines or keepers; the names and ids are those of the first."""
    first = vars(uses[0])
    return {
        name: value if name in ("process", "pid") else sum(vars(use)[name] for use in uses)
        for name, value in first.items()
    }


def _resolved(destination: str, key: str) -> str:
    """Return the IP address of the host name that ssh would connect to."""
    try:
        done = subprocess.run(
            ["ssh", "-G", "--", destination], capture_output=True, text=True, timeout=_CONFIG_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TestbedError(f"{key}: ssh -G {destination} failed: {error}; set address") from None
    name = next((line.split()[1] for line in done.stdout.splitlines() if line.startswith("hostname ")), "")
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise TestbedError(f"{key}: {name} has no IPv4 address: {error.strerror}; set address") from None
