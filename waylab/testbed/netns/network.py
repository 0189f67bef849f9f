"""The wires: every host a namespace, joined by veth pairs to a bridge in a namespace of its own, shaped both ways.

Sent traffic is shaped at the host's end of the pair, received traffic at the bridge's end. The namespace of the machine
is not changed. Knows nothing of roles and CPU quotas.
"""

import os
from pathlib import Path
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError

from waylab.spec import HostSettings
from waylab.testbed.netns import namespaces
from waylab.testbed.netns.counters import LinkCounters, interface_counters, shaper_counters
from waylab.testbed.netns.link_processes import QUEUE_KIB, LinkProcesses, Parts, directions
from waylab.testbed.netns.owner import Owner
from waylab.testbed.processes import Process, TestbedError

MTU_BYTES = 1500
# Bytes that the kernel counts for a full frame: with the Ethernet header, without preamble, checksum and gap.
FRAME_BYTES = MTU_BYTES + 14
# The host from which links are measured; nothing limits it.
METER = "meter"
_SWITCH = "switch"
_INTERFACE = "eth0"
# The burst after a pause. With a shorter burst, a late timer reduces the rate.
_BURST_S = 0.002
_BURST_MIN_BYTES = 10 * FRAME_BYTES
# Frames that do not fit in front of a program's device would be dropped without being counted.
_DEVICE_FRAMES = 10_000
_DELAYED_FRAMES = 100_000
_ROOT, _CHILD = 0x10000, 0x20000
_PORTS_FIRST, _PORTS = 16384, 49152
_NETWORK, _LINK_SCOPE = "10.77.0.0/24", 253
# The default of Linux.
_RTO_MIN_MS = 200
_RTAX_RTO_MIN = 13


class NoDeviceError(TestbedError):
    """A network device that was made does not exist any more."""


class EmulatedNetwork:
    """The namespaces of a run. Addresses are 10.77.0.1 and up, in the order of the hosts."""

    def __init__(
        self,
        owner: Owner,
        hosts: dict[str, HostSettings],
        parts: dict[str, Parts],
        logs: Path,
        time_scale: float,
    ) -> None:
        self._owner = owner
        self._parts = {**parts, METER: Parts()}
        self._processes = LinkProcesses(logs)
        self._time_scale = time_scale
        self._settings = {**hosts, METER: HostSettings()}
        self._made: list[str] = []
        self._ports: dict[str, int] = {}
        self._bridge = 0
        self.descriptors: dict[str, int] = {}
        if len(self._settings) > 250:
            raise TestbedError(
                f"testbed.hosts: {len(hosts)} hosts, more than the 249 that there are addresses for"
            )
        self.addresses = {name: f"10.77.0.{index + 1}" for index, name in enumerate(self._settings)}

    def build(self) -> None:
        """Create everything. The caller must call `remove`, also after an error."""
        switch = self._create(_SWITCH)
        self._bridge = namespaces.with_netlink(switch, _add_bridge)
        for index, name in enumerate(self._settings):
            self._connect(index, name)

    def remove(self) -> None:
        """Remove everything that was made."""
        self._processes.stop()
        while self.descriptors:
            os.close(self.descriptors.popitem()[1])
        while self._made:
            namespaces.remove(self._made[-1])
            self._made.pop()

    def counters(self) -> dict[str, LinkCounters]:
        """Return the traffic of every host so far."""
        of_processes = {name: self._processes.counters(name) for name in self._settings}
        ports = namespaces.inside(self.descriptors[_SWITCH], interface_counters)
        received = namespaces.with_netlink(self.descriptors[_SWITCH], shaper_counters)
        found = {}
        for index, (name, settings) in enumerate(self._settings.items()):
            if name == METER:
                continue
            counters = found[name] = ports[_port(index)]
            if self._ports[name] in received:
                counters.set("received", received[self._ports[name]])
            if (self._parts[name].tbf and settings.up_mbit) or self._parts[name].netem:
                sent = namespaces.with_netlink(self.descriptors[name], shaper_counters)
                counters.set("sent", *sent.values())
            if of_process := of_processes[name]:
                counters.add_process(*of_process)
        return found

    def programs(self) -> list[Process]:
        """Return the programs that emulate links."""
        return self._processes.running()

    def _create(self, name: str) -> int:
        """Make one namespace and return its descriptor."""
        namespace = self._owner.name(name)
        # Recorded first, so that `remove` also finds a half-made namespace.
        self._made.append(namespace)
        namespaces.create(namespace)
        self.descriptors[name] = namespaces.open_namespace(namespace)
        return self.descriptors[name]

    def _connect(self, index: int, name: str) -> None:
        """Make one host and join it to the switch."""
        settings, address, parts = self._settings[name], self.addresses[name], self._parts[name]
        peer = {"ifname": _port(index), "net_ns_fd": self._owner.name(_SWITCH)}

        def at_host(host: Any) -> None:
            if not parts.process:
                host.link("add", ifname=_INTERFACE, kind="veth", mtu=MTU_BYTES, peer=peer)
            interface = _index(host, _INTERFACE)
            host.addr("add", index=interface, address=address, prefixlen=24)
            host.link("set", index=_index(host, "lo"), state="up")
            host.link("set", index=interface, state="up")
            if parts.process:
                host.link("set", index=interface, txqlen=_DEVICE_FRAMES)
            _shape(host, interface, settings.up_mbit, settings, parts, self._time_scale)
            _set_up(index, len(self._settings))
            if self._time_scale > 1:
                _slow_down(host, interface, address, self._time_scale)

        def at_switch(switch: Any) -> int:
            port = _index(switch, _port(index))
            switch.link("set", index=port, master=self._bridge, state="up")
            if parts.process:
                switch.link("set", index=port, txqlen=_DEVICE_FRAMES)
            _shape(switch, port, settings.down_mbit, settings, parts, self._time_scale)
            return port

        descriptor = self._create(name)
        if parts.process:
            ends = (self._owner.name(name), _INTERFACE, self._owner.name(_SWITCH), _port(index))
            self._processes.start(name, ends, directions(settings, parts))
        try:
            namespaces.with_netlink(descriptor, at_host)
            self._ports[name] = namespaces.with_netlink(self.descriptors[_SWITCH], at_switch)
        except (NoDeviceError, NetlinkError):
            # The devices of a link go with its program.
            self._processes.refuse_ended(name)
            raise


def _add_bridge(switch: Any) -> int:
    switch.link("add", ifname="bridge", kind="bridge")
    bridge = _index(switch, "bridge")
    switch.link("set", index=bridge, state="up")
    return bridge


def burst_bytes(rate_mbit: float, time_scale: float = 1.0) -> int:
    """Return how many bytes may leave at once: the time scale changes the time of a burst and not its bytes."""
    return max(_BURST_MIN_BYTES, round(rate_mbit * 1e6 / 8 * _BURST_S * time_scale))


def _shape(
    route: Any,
    interface: int,
    rate_mbit: float | None,
    settings: HostSettings,
    parts: Parts,
    time_scale: float = 1.0,
) -> None:
    """Shape the traffic that leaves an interface: first the delay, then the rate."""
    parent: dict[str, int] = {}
    handle = _ROOT
    if parts.tbf and rate_mbit:
        rate = round(rate_mbit * 1e6 / 8)
        burst, limit = burst_bytes(rate_mbit, time_scale), round((settings.queue_kib or QUEUE_KIB) * 1024)
        # Frames that do not fit are dropped and counted.
        route.tc("add", "tbf", interface, handle, rate=rate, burst=burst, limit=limit)
        parent, handle = {"parent": _ROOT | 1}, _CHILD
    if parts.netem and settings.delay_ms:
        delay_us = round(settings.delay_ms * 1000)
        route.tc("add", "netem", interface, handle, delay=delay_us, limit=_DELAYED_FRAMES, **parent)


def _set_up(index: int, hosts: int) -> None:
    """Configure the current namespace."""
    settings = Path("/proc/sys/net/ipv4")
    # Clients of all hosts have different ports: records of both ends of a connection are joined by port.
    width = _PORTS // hosts
    first = _PORTS_FIRST + index * width
    (settings / "ip_local_port_range").write_text(f"{first} {first + width - 1}", encoding="ascii")
    # TCP metrics of one trial must not influence the next.
    (settings / "tcp_no_metrics_save").write_text("1", encoding="ascii")


def _slow_down(route: Any, interface: int, address: str, time_scale: float) -> None:
    """Lengthen the shortest retransmission time-out of TCP by the time scale.

    Otherwise TCP would send data again that still waits in the queue of a slow link.
    """
    # The kernel ignores this metric unless it is locked.
    metrics = {"rto_min": round(_RTO_MIN_MS * time_scale), "lock": 1 << _RTAX_RTO_MIN}
    route.route(
        "replace",
        dst=_NETWORK,
        oif=interface,
        scope=_LINK_SCOPE,
        proto="kernel",
        prefsrc=address,
        metrics=metrics,
    )


def _port(index: int) -> str:
    return f"port{index}"


def _index(route: Any, name: str) -> int:
    found = route.link_lookup(ifname=name)
    if not found:
        raise NoDeviceError(f"network device {name}: is missing after it was made; run the command again")
    return int(found[0])
