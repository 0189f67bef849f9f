"""Measures emulated hosts before an experiment: do links, delays and shares of CPU time have their described values?

All hosts use their CPU time at the same moment, so that the result also shows whether they fit into the machine.
"""

import math
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from waylab.plan import Trial
from waylab.spec import HostSettings, TestbedSettings
from waylab.testbed.hosts import Testbed
from waylab.testbed.machine import Machine
from waylab.testbed.netns import burner, cgroups
from waylab.testbed.processes import TestbedError
from waylab.testbed.requirements import check_requirements, cores_described, open_testbed

# A value is calibrated if it is this close to its target.
ERROR_MAX = 0.03
# The share of the machine that the hosts may have; the rest is for the lab, the links and the kernel.
ROOM = 0.7
_SECONDS = 3.0
# Whole periods resolve a share to about 1 % even if one of them is missed.
_PERIODS = 100
_ANY_ERROR = 1e9
_WAKE_UPS = 300
_ENDS_WITHIN_S = 60.0


@dataclass(frozen=True)
class Reading:
    """One measured value of a host beside its target; `described` is the value of the specification."""

    host: str
    name: str
    described: float
    target: float
    measured: float
    unit: str

    @property
    def error(self) -> float:
        """The relative deviation from the target."""
        return self.measured / self.target - 1

    @property
    def passed(self) -> bool:
        """Whether the value is close enough."""
        return abs(self.error) <= ERROR_MAX


@dataclass(frozen=True)
class Calibration:
    """All readings of a testbed, and the times that do not scale."""

    readings: list[Reading]
    time_scale: float
    cores: float
    # From shortest to longest: what a sleep of 1 ms took beyond 1 ms.
    wake_ups_ms: list[float]
    # The period of the CPU quota of every host that has one, in ms.
    periods_ms: dict[str, float]


def smallest_time_scale(settings: TestbedSettings, trials: tuple[Trial, ...], machine: Machine) -> int:
    """Return the smallest time scale at which the hosts of every trial fit into the machine with room to spare."""
    described = replace(settings, time_scale=1.0)
    most = max(cores_described(described, trial) for trial in trials)
    return max(1, math.ceil(most / (ROOM * machine.cores)))


def calibrate(
    settings: TestbedSettings, trials: tuple[Trial, ...], machine: Machine, logs: Path
) -> Calibration:
    """Build the hosts, measure them and remove them."""
    if settings.kind != "netns":
        raise TestbedError(
            f'testbed.kind = "{settings.kind}": has no emulated hosts to calibrate; set it to "netns"'
        )
    check_requirements(settings, trials, machine)
    with open_testbed(settings, trials, logs, _ANY_ERROR) as testbed:
        links = testbed.facts().links
        hosts = {name: settings.emulated(name) for name in links}
        readings = [
            Reading(
                name,
                check.name,
                getattr(settings.hosts[name], check.name),
                check.expected,
                check.measured,
                "ms there and back" if check.name == "delay_ms" else "Mbit/s of payload",
            )
            for name, link in links.items()
            for check in link.checks
        ]
        readings += _shares(testbed, settings, hosts, logs)
    return Calibration(
        readings=readings,
        time_scale=settings.time_scale,
        cores=max(cores_described(settings, trial) for trial in trials),
        wake_ups_ms=_wake_ups_ms(),
        periods_ms={name: period_us / 1000 for name, _, period_us in _quotas(hosts)},
    )


def _quotas(hosts: dict[str, HostSettings]) -> Iterator[tuple[str, int, int]]:
    """List host, quota and period of every host with a limit."""
    for name, host in hosts.items():
        if host.quota:
            yield name, *cgroups.quota_and_period_us(host.quota)


def _shares(
    testbed: Testbed, settings: TestbedSettings, hosts: dict[str, HostSettings], logs: Path
) -> list[Reading]:
    """Let all hosts use their CPU time at once, and return the share of each."""
    readings = []
    with ExitStack() as stack:
        running = {}
        for name, quota_us, period_us in _quotas(hosts):
            seconds, programs = max(_SECONDS, _PERIODS * period_us * 1e-6), math.ceil(quota_us / period_us)
            gap_s = (period_us - quota_us) * 0.5e-6 if quota_us < period_us else 3600.0
            command = [sys.executable, "-IS", burner.__file__, str(seconds), str(gap_s)]
            running[name] = [
                testbed.host(name).start(f"burner-{name}-{index}", command, logs) for index in range(programs)
            ]
            for process in running[name]:
                stack.callback(process.stop)
        for name, processes in running.items():
            for process in processes:
                if not process.wait(_ENDS_WITHIN_S + 1.5 * _PERIODS) or process.exit_code != 0:
                    raise TestbedError(
                        f"{process.name}: its CPU time cannot be measured{process.last_error_line()}"
                    )
            share = sum(float(process.stdout.read_text(encoding="ascii")) for process in processes)
            described, target = settings.hosts[name].cores or 0.0, hosts[name].cores or 0.0
            readings.append(Reading(name, "cores", described, target, share, "cores of this machine"))
    return readings


def _wake_ups_ms() -> list[float]:
    """Return how much longer than requested sleeps take, the shortest first."""
    found = []
    for _ in range(_WAKE_UPS):
        start_s = time.perf_counter()
        time.sleep(0.001)
        found.append((time.perf_counter() - start_s) * 1e3 - 1.0)
    return sorted(found)
