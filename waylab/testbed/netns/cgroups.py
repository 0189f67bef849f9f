"""CPU quotas by control groups, version 1 or 2, whichever has the controller `cpu` on this machine.

The owner has a group, with one below it for each host. The lab changes only groups with the name of an owner.
"""

import contextlib
import math
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from waylab.testbed.netns.owner import Owner, owner_of
from waylab.testbed.netns.threads import ThreadTimes
from waylab.testbed.processes import TestbedError

# A host that has used its quota is throttled until the period ends. A short period keeps each pause short.
PERIOD_US = 10_000
# Limits of the kernel: no quota below 1 ms, no period above 1 s. Small shares therefore have longer periods.
_QUOTA_MIN_US = 1000
_PERIOD_MAX_US = 1_000_000
CORES_MIN = _QUOTA_MIN_US / _PERIOD_MAX_US
_REMOVED_WITHIN_S = 2.0
_PROCS = "cgroup.procs"
_LAB = "lab"
# The measured programs have precedence over other programs of the machine.
_PRECEDENCE = 100.0
# The file of each version, the weight of one process, the smallest and the largest weight.
_WEIGHTS = {1: ("cpu.shares", 1024, 2, 262_144), 2: ("cpu.weight", 100, 1, 10_000)}


@dataclass(frozen=True)
class Hierarchy:
    """A mounted tree of control groups that has the controller `cpu`."""

    version: int
    root: Path

    def groups(self) -> list[Path]:
        """List the groups of owners, whether or not their processes still run."""
        return sorted(path for path in self.root.glob("waylab-*") if path.is_dir() and owner_of(path.name))

    def group_of_this_process(self) -> Path:
        """Return the group that this process is in."""
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "" if self.version == 2 else "cpu" in controllers.split(","):
                group = self.root / path.lstrip("/")
                # In a container the path may not be mounted.
                return group if group.is_dir() else self.root
        return self.root


def find_hierarchy(mounts: Path = Path("/proc/self/mounts")) -> Hierarchy | None:
    """Find the hierarchy with the controller `cpu`; None if there is none."""
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        _, place, kind, options = line.split(" ")[:4]
        root = Path(place)
        if kind == "cgroup" and "cpu" in options.split(","):
            return Hierarchy(1, root)
        if kind == "cgroup2" and "cpu" in _words(root / "cgroup.controllers"):
            return Hierarchy(2, root)
    return None


class CpuGroups:
    """The groups of one run."""

    def __init__(self, hierarchy: Hierarchy, owner: Owner) -> None:
        self._hierarchy = hierarchy
        self._group = hierarchy.root / str(owner)
        self._hosts: dict[str, Path] = {}
        self._cores: dict[str, float] = {}
        self._joined: Path | None = None
        self._before: Path | None = None
        self._threads: dict[str, ThreadTimes] = {}

    def create(self, host: str, cores: float | None) -> Path:
        """Create the group of a host and return the file that adds a process to it; None means no limit of cores."""
        group = self._group / host
        self._hosts[host] = group
        try:
            if not self._group.is_dir():
                self._make_parent()
            group.mkdir()
            if cores:
                self._ration(group, *quota_and_period_us(cores))
                self._cores[host] = cores
            self._weigh(group, cores or len(os.sched_getaffinity(0)))
        except OSError as error:
            raise TestbedError(
                f"control group {group}: {error.strerror}; leave `cores` out, or run where groups can be created"
            ) from None
        return group / _PROCS

    def join(self) -> None:
        """Move this process into a group of its own beside the hosts; `remove` moves it back."""
        self._before = self._hierarchy.group_of_this_process() / _PROCS
        self._joined = self.create(_LAB, None)
        _write(self._joined, str(os.getpid()))

    @contextlib.contextmanager
    def without_quotas(self) -> Iterator[None]:
        """Lift the quotas of all hosts within the context."""
        try:
            for host, cores in self._cores.items():
                self._ration(self._hosts[host], None, quota_and_period_us(cores)[1])
            yield
        finally:
            for host, cores in self._cores.items():
                self._ration(self._hosts[host], *quota_and_period_us(cores))

    def throttled_s(self) -> dict[str, float]:
        """Return the time for which each host was throttled."""
        return {host: _throttled_s(group / "cpu.stat") for host, group in self._hosts.items()}

    def used_and_waited_s(self) -> dict[str, tuple[float, float]]:
        """Return the CPU time of the programs of each host, and the time for which they waited for a CPU."""
        return {
            host: self._threads.setdefault(host, ThreadTimes()).read(_words(group / _PROCS))
            for host, group in self._hosts.items()
        }

    def remove(self) -> None:
        """Remove all groups."""
        self._leave()
        _remove(self._group)
        self._hosts.clear()
        self._cores.clear()

    def _leave(self) -> None:
        """Move this process and its children back to their former group."""
        if self._joined and self._before and self._joined.is_file():
            for pid in _words(self._joined):
                with contextlib.suppress(ProcessLookupError):
                    _write(self._before, pid)
        self._joined = None

    def _make_parent(self) -> None:
        if self._hierarchy.version == 2 and "cpu" not in _words(
            self._hierarchy.root / "cgroup.subtree_control"
        ):
            _write(self._hierarchy.root / "cgroup.subtree_control", "+cpu")
        self._group.mkdir()
        if self._hierarchy.version == 2:
            _write(self._group / "cgroup.subtree_control", "+cpu")
        # By default all hosts together would have the weight of one process outside any group.
        self._weigh(self._group, _PRECEDENCE)

    def _ration(self, group: Path, quota_us: int | None, period_us: int) -> None:
        if self._hierarchy.version == 1:
            _write(group / "cpu.cfs_period_us", str(period_us))
            _write(group / "cpu.cfs_quota_us", str(-1 if quota_us is None else quota_us))
        else:
            _write(group / "cpu.max", f"{'max' if quota_us is None else quota_us} {period_us}")

    def _weigh(self, group: Path, processes: float) -> None:
        """Give a group the weight of this number of processes."""
        name, default, least, most = _WEIGHTS[self._hierarchy.version]
        _write(group / name, str(min(most, max(least, round(default * processes)))))


def quota_and_period_us(cores: float) -> tuple[int, int]:
    """Return the CPU time of a group in each period, and the period: the shortest that the kernel permits."""
    period_us = max(PERIOD_US, math.ceil(_QUOTA_MIN_US / cores))
    return round(cores * period_us), period_us


def remove_leftovers(hierarchy: Hierarchy) -> list[str]:
    """Remove the groups of killed runs and return their names."""
    removed = []
    for group in hierarchy.groups():
        owner = owner_of(group.name)
        if owner and owner.gone():
            _remove(group)
            removed.append(group.name)
    return removed


def _remove(group: Path) -> None:
    """Remove a group with its subgroups, and kill their processes; retry, because the kernel removes groups late."""
    deadline = time.monotonic() + _REMOVED_WITHIN_S
    while group.is_dir():
        try:
            for child in group.iterdir():
                if child.is_dir():
                    _kill_members(child)
                    child.rmdir()
            group.rmdir()
        except FileNotFoundError:
            continue
        except OSError as error:
            if time.monotonic() > deadline:
                raise TestbedError(f"control group {group}: cannot be removed: {error.strerror}") from None
            time.sleep(0.02)


def _kill_members(group: Path) -> None:
    for pid in _words(group / _PROCS):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def _throttled_s(statistics: Path) -> float:
    for line in statistics.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(" ")
        if name == "throttled_time":
            return int(value) * 1e-9
        if name == "throttled_usec":
            return int(value) * 1e-6
    return 0.0


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except OSError:
        return []


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="ascii") as file:
        file.write(text)
