"""From what a specification describes to a testbed: what this machine does not have is refused in one line."""

import math
from pathlib import Path

from waylab.errors import LabError
from waylab.plan import Trial
from waylab.spec import HostSettings, TestbedSettings
from waylab.testbed.capacity import check_capacity
from waylab.testbed.hosts import Testbed
from waylab.testbed.machine import Machine
from waylab.testbed.netns import NetnsTestbed

_LOCAL = 'or set testbed.kind = "local", which runs everything on this machine without limits'


def used_hosts(trials: tuple[Trial, ...]) -> list[str]:
    """Name the hosts that a plan uses, each once."""
    return list(dict.fromkeys(name for trial in trials for name in _hosts(trial)))


def cores_described(settings: TestbedSettings, trial: Trial) -> float:
    """Return the processors that the hosts of a trial have together."""
    return sum(settings.hosts[name].cores or 0.0 for name in _hosts(trial))


def _hosts(trial: Trial) -> list[str]:
    return trial.assignment.hosts(trial.system.programs(trial.assignment.generators))


def check_fits(settings: TestbedSettings, trials: tuple[Trial, ...], machine: Machine) -> None:
    """Refuse a plan that this machine cannot run as it is described."""
    check_capacity(trials)
    if settings.kind == "local":
        return
    used = {name: settings.hosts[name] for name in used_hosts(trials)}
    if {"lab", "meter", "switch"} & set(used):
        raise LabError(
            "testbed.hosts: `lab`, `meter` and `switch` are names of the testbed itself; call the host otherwise"
        )
    check_kernel(used, machine)
    most = max(cores_described(settings, trial) for trial in trials)
    if settings.pinning == "apart":
        _check_apart(used, machine)
    if most > machine.cores and not settings.oversubscribe:
        raise LabError(
            f"testbed.hosts: the hosts of a trial have {most:g} cores together, this machine {machine.cores}; "
            f"ask for fewer, set testbed.oversubscribe = true (the report will say so), {_LOCAL}"
        )


def open_testbed(
    settings: TestbedSettings, trials: tuple[Trial, ...], logs: Path, link_error_max: float
) -> Testbed:
    """Return the testbed of a plan, to be entered; what was measured of its links is kept in `logs`."""
    if settings.kind == "local":
        return Testbed()
    return NetnsTestbed(settings, used_hosts(trials), logs, link_error_max)


def check_kernel(used: dict[str, HostSettings], machine: Machine) -> None:
    """Refuse hosts that this process has no right to make, or that the kernel lacks something for."""
    needed = [machine.privileged]
    needed += [machine.network[name] for name in ("namespaces", "veth", "bridge")]
    if any(host.up_mbit or host.down_mbit for host in used.values()):
        needed.append(machine.network["tbf"])
    if any(host.delay_ms for host in used.values()):
        needed.append(machine.network["netem"])
    if any(host.cores for host in used.values()):
        needed.append(machine.quotas)
    for finding in needed:
        if not finding.able:
            what = {"netem": "leave delay_ms out", "tbf": "leave the rates out", "quotas": "leave cores out"}
            advice = f"{what[finding.name]}, {_LOCAL}" if finding.name in what else _LOCAL.removeprefix("or ")
            raise LabError(f'testbed.kind = "netns": {finding.text}; {advice}')


def _check_apart(used: dict[str, HostSettings], machine: Machine) -> None:
    without = [name for name, host in used.items() if not host.cores]
    if without:
        raise LabError(f'testbed.pinning = "apart": host {without[0]} does not say how many cores it has')
    wanted = sum(math.ceil(host.cores or 0) for host in used.values())
    if wanted > machine.cores:
        raise LabError(
            f'testbed.pinning = "apart": the hosts need {wanted} processors of their own, '
            f'this machine has {machine.cores}; use "shared", {_LOCAL}'
        )
