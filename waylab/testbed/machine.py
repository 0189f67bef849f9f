"""Finds out by trial which features of a testbed this machine supports.

`waylab doctor` prints the findings, and the checks of a plan use them.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

from waylab.errors import LabError
from waylab.testbed.netns import cgroups, namespaces
from waylab.testbed.netns.link_process import open_tap
from waylab.testbed.netns.owner import this_process

_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}
_STEAL_WATCHED_S = 1.0
_TC_H_ROOT = 0xFFFFFFFF


@dataclass(frozen=True)
class Feature:
    """One feature of the machine, and whether it is supported; `able` is None for plain information."""

    name: str
    able: bool | None
    text: str


class Machine:
    """The features of this machine; each is examined at its first use."""

    @cached_property
    def cores(self) -> int:
        """The number of cores that this process may use."""
        return len(os.sched_getaffinity(0))

    @cached_property
    def missing_capabilities(self) -> list[str]:
        """The capabilities that this process lacks to create network namespaces."""
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("CapEff:"):
                effective = int(line.split()[1], 16)
                return [name for name, bit in _CAPABILITIES.items() if not effective >> bit & 1]
        return list(_CAPABILITIES)

    @cached_property
    def privileged(self) -> Feature:
        """Whether this process may create hosts."""
        missing = self.missing_capabilities
        if missing:
            return Feature(
                "root", False, f"needs root; this is user {os.geteuid()} without {', '.join(missing)}"
            )
        return Feature("root", True, "has the privileges to create hosts")

    @cached_property
    def network(self) -> dict[str, Feature]:
        """Try every part of a link in a temporary namespace."""
        names = ("namespaces", "veth", "bridge", "tbf", "netem", "tun")
        if not self.privileged.able:
            return {name: Feature(name, False, self.privileged.text) for name in names}
        name = this_process().name("probe")
        try:
            namespaces.create(name)
            return {
                "namespaces": Feature("namespaces", True, "network namespaces can be created"),
                **_try_links(name),
            }
        except LabError as error:
            return {name: Feature(name, False, str(error)) for name in names}
        except OSError as error:
            why = f"network namespaces cannot be created here: {error.strerror or error}"
            return {name: Feature(name, False, why) for name in names}
        finally:
            _quietly(lambda: namespaces.remove(name))

    @cached_property
    def quotas(self) -> Feature:
        """Whether CPU time can be limited."""
        hierarchy = cgroups.find_hierarchy()
        if hierarchy is None:
            return Feature("quotas", False, "no control groups with the controller `cpu` are mounted")
        where = f"control groups version {hierarchy.version} at {hierarchy.root}"
        if not self.privileged.able:
            return Feature("quotas", False, f"{where}; {self.privileged.text}")
        group = cgroups.CpuGroups(hierarchy, this_process())
        try:
            group.create("probe", 1.0)
        except LabError as error:
            return Feature("quotas", False, str(error))
        finally:
            _quietly(group.remove)
        return Feature("quotas", True, where)

    def findings(self) -> list[Feature]:
        """Return all findings in the order in which `waylab doctor` prints them."""
        return [
            self.privileged,
            *self.network.values(),
            self.quotas,
            Feature("cores", None, f"{self.cores} usable of {psutil.cpu_count(logical=True)}"),
            _governor(),
            _steal(),
        ]


def _try_links(namespace: str) -> dict[str, Feature]:
    descriptor = namespaces.open_namespace(namespace)
    try:
        return namespaces.with_netlink(descriptor, _try_all)
    finally:
        os.close(descriptor)


def _try_all(route: Any) -> dict[str, Feature]:
    def pair() -> None:
        route.link("add", ifname="try0", kind="veth", peer="try1")

    def shape(kind: str, **settings: int) -> None:
        index = route.link_lookup(ifname="try0")[0]
        route.tc("add", kind, index, 0x10000, **settings)
        route.tc("del", index=index, parent=_TC_H_ROOT, handle=0)

    return {
        "veth": _tried("veth", pair, "links"),
        "bridge": _tried("bridge", lambda: route.link("add", ifname="try2", kind="bridge"), "switches"),
        "tbf": _tried("tbf", lambda: shape("tbf", rate=125_000, burst=15_140, limit=15_140), "rates"),
        "netem": _tried("netem", lambda: shape("netem", delay=1000), "delays"),
        "tun": _tried("tun", lambda: os.close(open_tap("try3")), "delays and losses"),
    }


def _tried(name: str, attempt: Callable[[], None], what: str) -> Feature:
    try:
        attempt()
    except Exception as error:  # the library has a class for every netlink error
        return Feature(name, False, f"this kernel has no {name} for {what} ({error})")
    return Feature(name, True, f"{what} can be emulated with {name}")


def _quietly(undo: Callable[[], None]) -> None:
    """Undo a probe; ignore errors, because the probe may have failed half-way."""
    try:
        undo()
    except (OSError, LabError):
        return


def _governor() -> Feature:
    try:
        governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text().strip()
    except OSError:
        return Feature("governor", None, "unknown; the clock rate cannot be seen from here")
    steady = governor == "performance"
    advice = "" if steady else "; the clock rate follows the load; use `performance` for measurements"
    return Feature("governor", steady, f"{governor}{advice}")


def _steal() -> Feature:
    """Measure the steal time of one second."""
    before = psutil.cpu_times()
    time.sleep(_STEAL_WATCHED_S)
    after = psutil.cpu_times()
    spent_s = sum(after) - sum(before)
    if not hasattr(after, "steal") or spent_s <= 0:
        return Feature("steal", None, "this kernel does not report steal time")
    now, ever = (after.steal - before.steal) / spent_s, after.steal / sum(after)
    text = f"{100 * now:.1f} % of CPU time stolen in the last second, {100 * ever:.1f} % since boot"
    return Feature("steal", now < 0.02, text)
