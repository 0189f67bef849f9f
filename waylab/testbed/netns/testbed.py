"""The emulated hosts of a run: entering creates and measures them, leaving removes them.

Entering also removes the hosts of killed runs. Knows nothing of roles. `testbed.requirements` has checked the machine.
"""

import math
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from waylab.runfolder.trial import Link, TestbedFacts
from waylab.spec import HostSettings, TestbedSettings
from waylab.testbed.hosts import Host, HostCounters, Testbed
from waylab.testbed.netns import cgroups, links, namespaces
from waylab.testbed.netns.link_processes import parts_of
from waylab.testbed.netns.network import METER, EmulatedNetwork
from waylab.testbed.netns.owner import this_process
from waylab.testbed.processes import Process, TestbedError

_Result = TypeVar("_Result")


class EmulatedHost(Host):
    """A network namespace, with a control group and a set of CPUs if the host is limited."""

    own_network = True

    def __init__(self, name: str, address: str, namespace: int, group: Path | None, cpus: list[int]) -> None:
        super().__init__(name, address)
        self._namespace = namespace
        self._group = group
        self._cpus = cpus

    def start(
        self,
        name: str,
        command: list[str],
        logs: Path,
        paused: bool = False,
        user: tuple[int, int] | None = None,
    ) -> Process:
        """Start a program on this host."""
        return Process(name, command, logs, enter=self._enter, host=self.name, paused=paused, user=user)

    def inside(self, function: Callable[[], _Result]) -> _Result:
        """Call a function within the host's network."""
        return namespaces.inside(self._namespace, function)

    def _enter(self) -> None:
        """Run in the new process: enter the group, the CPU set and the namespace."""
        if self._group:
            group = os.open(self._group, os.O_WRONLY)
            os.write(group, b"0")
            os.close(group)
        if self._cpus:
            os.sched_setaffinity(0, self._cpus)
        namespaces.enter(self._namespace)


class NetnsTestbed(Testbed):
    """The described hosts that are `used`; measurements of links are written to `logs`."""

    kind = "netns"

    def __init__(
        self,
        settings: TestbedSettings,
        used: list[str],
        logs: Path,
        link_error_max: float,
        kernel: frozenset[str] = frozenset(("tbf", "netem")),
    ) -> None:
        self._described = {name: settings.emulated(name) for name in used}
        self._time_scale = settings.time_scale
        self._parts = {name: parts_of(host, settings.links, kernel) for name, host in self._described.items()}
        self._pinning = settings.pinning
        self._logs = logs
        self._link_error_max = link_error_max
        self._owner = this_process()
        self._network = EmulatedNetwork(
            self._owner, self._described, self._parts, logs.resolve(), settings.time_scale
        )
        self._groups: cgroups.CpuGroups | None = None
        self._hosts: dict[str, Host] = {}
        self._links: dict[str, Link] = {}

    def __enter__(self) -> "NetnsTestbed":
        try:
            self._remove_leftovers()
            self._build()
            self._measure()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def host(self, name: str | None) -> Host:
        """Return the host of that name."""
        assert name is not None, "the specification's check gives every role a host"
        return self._hosts[name]

    def filling_host(self, name: str | None) -> Host:
        """Return the host from which data are stored before the load: its link is not limited."""
        return self._hosts[METER] if self._time_scale > 1 else self.host(name)

    def without_quotas(self) -> AbstractContextManager[None]:
        """Return a context in which no host has a limit of its CPU time."""
        return self._groups.without_quotas() if self._groups else super().without_quotas()

    def facts(self) -> TestbedFacts:
        """Return the settings of all links and their measurements."""
        cores_usable = len(os.sched_getaffinity(0))
        return TestbedFacts(
            kind=self.kind,
            pinning=self._pinning,
            cores_usable=cores_usable,
            time_scale=self._time_scale,
            links=dict(self._links),
        )

    def counters(self) -> list[HostCounters]:
        """Return the counters of every host."""
        throttled_s = self._groups.throttled_s() if self._groups else {}
        times = self._groups.used_and_waited_s() if self._groups else {}
        found = []
        for name, counted in self._network.counters().items():
            used_s, waited_s = times.get(name, (0.0, 0.0))
            found.append(
                HostCounters(
                    host=name,
                    **counted.as_dict(),
                    throttled_s=throttled_s.get(name, 0.0),
                    used_s=used_s,
                    waited_s=waited_s,
                )
            )
        return found

    def link_programs(self) -> list[Process]:
        """Return the programs that emulate links."""
        return self._network.programs()

    def _remove_leftovers(self) -> None:
        namespaces.remove_leftovers()
        hierarchy = cgroups.find_hierarchy()
        if hierarchy:
            cgroups.remove_leftovers(hierarchy)

    def _build(self) -> None:
        # The programs of links start outside of the groups: the kernel lets them run first only there.
        self._network.build()
        limited = {name: host.quota for name, host in self._described.items() if host.quota}
        hierarchy = cgroups.find_hierarchy() if limited else None
        files = {}
        if hierarchy:
            # If one host is in a group, all are, because processes outside of groups compete on other terms.
            self._groups = cgroups.CpuGroups(hierarchy, self._owner)
            # The lab itself starts generators together and samples; the measured programs must not delay it.
            self._groups.join()
            files = {name: self._groups.create(name, limited.get(name)) for name in self._network.addresses}
        cpus = _apart(limited) if self._pinning == "apart" else {}
        for name, address in self._network.addresses.items():
            descriptor = self._network.descriptors[name]
            host = EmulatedHost(name, address, descriptor, files.get(name), cpus.get(name, []))
            described = self._described.get(name)
            host.paced_cores = described.cores if described and described.paced else None
            self._hosts[name] = host

    def _measure(self) -> None:
        """Measure every link until it is as described, several times, because the machine may be busy.

        The measurement is no load of the host, so it does not run in the host's group.
        """
        waiting: dict[str, Host] = {
            name: EmulatedHost(name, self._network.addresses[name], self._network.descriptors[name], None, [])
            for name in self._described
        }
        wrong: dict[str, str] = {}
        for attempt in range(1, links.ATTEMPTS + 1):
            seconds = {name: links.measuring_s(self._described[name], 2 ** (attempt - 1)) for name in waiting}
            measured = links.measure_links(waiting, self._hosts[METER], self._logs, seconds)
            wrong = {}
            for name, numbers in measured.items():
                described = self._described[name]
                found = links.checks(described, numbers)
                self._links[name] = Link(
                    **_emulated(described),
                    **asdict(numbers),
                    process=self._parts[name].process,
                    checks=[check.as_link_check() for check in found],
                    attempt=attempt,
                    measured_unix_s=round(time.time(), 3),
                )
                limit = self._link_error_max
                texts = [f"{name}.{check.text(limit)}" for check in found if abs(check.error) > limit]
                wrong |= {name: "; ".join(texts)} if texts else {}
            waiting = {name: host for name, host in waiting.items() if name in wrong}
            if not waiting:
                return
        raise TestbedError(
            f"testbed.hosts: a link differs from its settings in {links.ATTEMPTS} measurements: "
            f"{'; '.join(wrong.values())}; "
            f"stop other programs, describe slower links, or set gates.link_error_max"
        )

    def _remove(self) -> None:
        self._hosts.clear()
        try:
            self._network.remove()
        finally:
            if self._groups:
                self._groups.remove()


def _emulated(described: HostSettings) -> dict[str, Any]:
    """Return the keys of a host that describe an emulated one."""
    return {
        name: value for name, value in asdict(described).items() if name not in ("ssh", "address", "folder")
    }


def _apart(cores: dict[str, float]) -> dict[str, list[int]]:
    """Give every host its own CPUs, in order."""
    free = sorted(os.sched_getaffinity(0))
    given = {}
    for name, count in cores.items():
        given[name], free = free[: math.ceil(count)], free[math.ceil(count) :]
    return given
