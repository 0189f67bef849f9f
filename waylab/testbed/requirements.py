"""Checks that this machine meets the requirements of a plan, in one line if it does not, and opens the testbed."""

import math
import resource
from pathlib import Path

import psutil

from waylab.errors import LabError
from waylab.plan import Trial
from waylab.program import find_waystage
from waylab.spec import HostSettings, TestbedSettings, size_bytes
from waylab.testbed.hosts import Testbed
from waylab.testbed.machine import Machine
from waylab.testbed.netns import NetnsTestbed, cgroups
from waylab.testbed.netns.link_processes import parts_of
from waylab.testbed.ssh import SshTestbed

# Standard streams, listeners, record files, and files that the runtime opens.
_DESCRIPTORS_BESIDE = 64
_NO_QUOTAS = "leave cores out; an embedded server with a service_time has a capacity without them"
_LOCAL = 'or set testbed.kind = "local", which runs everything on this machine without limits'


def used_hosts(trials: tuple[Trial, ...]) -> list[str]:
    """Return the names of the hosts of a plan, each once."""
    return list(dict.fromkeys(name for trial in trials for name in _hosts(trial)))


def cores_described(settings: TestbedSettings, trial: Trial) -> float:
    """Return the number of cores of all hosts of a trial."""
    return sum(settings.emulated(name).cores or 0.0 for name in _hosts(trial))


def _hosts(trial: Trial) -> list[str]:
    return trial.assignment.hosts(trial.system.programs(trial.assignment.generators))


def check_requirements(settings: TestbedSettings, trials: tuple[Trial, ...], machine: Machine) -> None:
    """Refuse a plan that this machine cannot run as described."""
    if settings.kind == "ssh":
        # The hosts are checked when they are connected.
        return
    check_capacity(trials)
    if settings.kind == "local":
        return
    used = {name: settings.emulated(name) for name in used_hosts(trials)}
    if {"lab", "meter", "switch"} & set(used):
        raise LabError("testbed.hosts: `lab`, `meter` and `switch` are reserved names; rename the host")
    check_kernel(used, machine, settings.links)
    _check_shares(used)
    for trial in trials:
        _check_paced(settings, trial)
    most = max(cores_described(settings, trial) for trial in trials)
    if settings.pinning == "apart":
        _check_apart(used, machine)
    if most > machine.cores and not settings.oversubscribe:
        raise LabError(
            f"testbed.hosts: the hosts of a trial have {most:g} cores together, this machine has {machine.cores}; "
            f"use fewer, a larger testbed.time_scale (it is {settings.time_scale:g}), or set "
            f"testbed.oversubscribe = true (the report mentions it), {_LOCAL}"
        )


def open_testbed(
    settings: TestbedSettings, trials: tuple[Trial, ...], logs: Path, link_error_max: float
) -> Testbed:
    """Return the testbed of a plan as a context; the measurements of its links are written to `logs`."""
    if settings.kind == "local":
        return Testbed()
    if settings.kind == "ssh":
        return SshTestbed(settings, used_hosts(trials), find_waystage())
    kernel = frozenset(name for name, feature in Machine().network.items() if feature.able)
    return NetnsTestbed(settings, used_hosts(trials), logs, link_error_max, kernel)


def check_kernel(used: dict[str, HostSettings], machine: Machine, links: str = "auto") -> None:
    """Refuse hosts for which this process lacks privileges or the kernel lacks a feature."""
    needed = [machine.privileged]
    needed += [machine.network[name] for name in ("namespaces", "veth", "bridge")]
    kernel = frozenset(name for name, feature in machine.network.items() if feature.able)
    if any(parts_of(host, links, kernel).process for host in used.values()):
        needed.append(machine.network["tun"])
    if any(host.quota for host in used.values()):
        needed.append(machine.quotas)
    for finding in needed:
        if not finding.able:
            what = {"tun": "leave out what tbf and netem cannot do here", "quotas": _NO_QUOTAS}
            advice = f"{what[finding.name]}, {_LOCAL}" if finding.name in what else _LOCAL.removeprefix("or ")
            raise LabError(f'testbed.kind = "netns": {finding.text}; {advice}')


def _check_shares(used: dict[str, HostSettings]) -> None:
    """Refuse a share of a CPU that is smaller than the kernel's smallest quota."""
    for name, host in used.items():
        if host.quota and host.quota < cgroups.CORES_MIN:
            raise LabError(
                f"testbed.hosts.{name}: has {host.cores:g} of a core of this machine, and the kernel's smallest "
                f"share is {cgroups.CORES_MIN:g}; use a smaller testbed.time_scale, a larger core_speed, {_LOCAL}"
            )


def _check_paced(settings: TestbedSettings, trial: Trial) -> None:
    """Refuse a paced host whose programs cannot slow themselves down to its cores."""
    able = trial.system.under_test.slows_down(trial.system)
    counts = {"load": trial.assignment.generators, **trial.system.programs(trial.assignment.generators)}
    for role, count in counts.items():
        for name in trial.assignment.of(role)[:count]:
            host, key = settings.emulated(name), f"testbed.hosts.{name}.paced"
            if host.paced and role not in able:
                raise LabError(
                    f"{key}: the host runs {role} of another program; only `waystage proxy` can slow itself down, "
                    "so leave it out, or run the proxy on a host of its own"
                )
            if host.paced and (not host.cores or host.cores > able[role]):
                raise LabError(
                    f"{key}: the host has {_cores_text(host.cores)} of this machine, its proxy has {able[role]} loops, "
                    "and each of them can only become slower than a core; give fewer cores, or a larger time scale"
                )


def _cores_text(cores: float | None) -> str:
    """Return the cores of a host in words."""
    return f"{cores:g} cores" if cores else "no limit of cores"


def _check_apart(used: dict[str, HostSettings], machine: Machine) -> None:
    without = [name for name, host in used.items() if not host.cores]
    if without:
        raise LabError(f'testbed.pinning = "apart": host {without[0]} has no `cores`')
    wanted = sum(math.ceil(host.cores or 0) for host in used.values())
    if wanted > machine.cores:
        raise LabError(
            f'testbed.pinning = "apart": the hosts need {wanted} cores of their own, '
            f'this machine has {machine.cores}; use "shared", {_LOCAL}'
        )


def check_capacity(trials: tuple[Trial, ...]) -> None:
    """Refuse a plan whose servers need more memory than this machine has, or whose clients need more open files."""
    memory_bytes = psutil.virtual_memory().total
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for trial in trials:
        backends, load = trial.system.backends, trial.load
        count = trial.system.programs(trial.assignment.generators).get("backends", 0)
        wanted = count * size_bytes(backends.memory)
        if wanted > memory_bytes:
            raise LabError(
                f"system.backends: {count} servers of {backends.memory} may take {wanted >> 20} MiB, "
                f"this machine has {memory_bytes >> 20}; use fewer or smaller servers"
            )
        descriptors = load.clients + _DESCRIPTORS_BESIDE
        if allowed not in (resource.RLIM_INFINITY, -1) and descriptors > allowed:
            raise LabError(
                f"load.clients = {load.clients}: needs {descriptors} open files in one program, {allowed} are "
                f"allowed; use fewer clients, or raise the limit with ulimit -n {descriptors}"
            )
