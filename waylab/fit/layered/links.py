"""Bytes of a request on the links of hosts, and the centres that limited or long links are."""

from collections.abc import Mapping

from waylab.fit.layered.network import ENDLESS, Centre
from waylab.fit.observations.hosts import UP, link_name, path_of
from waylab.fit.observations.settings import ModelSettings

# Payload of a frame, and what Ethernet, IP and TCP add to it.
_PAYLOAD, _HEADERS = 1448, 66
# Bytes of a key with its command, of what surrounds a value, and of a reply without a value.
_KEY, _AROUND, _SHORT = 24, 32, 8


def link_bytes(one: ModelSettings, group: str, way: str) -> float:
    """Bytes that the hosts of a group send (`up`) or receive for a request; a fitted factor corrects them."""
    hosts = dict(one.hosts)
    middle, last = path_of({role: 1 for role in hosts})
    parts, copies = min(one.keys, max(one.servers, 1)), min(one.replicas, max(one.servers, 1))
    key, value = _KEY * one.keys, (_AROUND + one.value_bytes) * one.keys
    stored = _KEY + _AROUND + one.value_bytes
    there, back = _mix(one, (1, key), (1, stored)), _mix(one, (1, value), (1, _SHORT))
    legs_there = _mix(one, (parts, key / parts), (copies, stored))
    legs_back = _mix(one, (parts, value / parts), (copies, _SHORT))
    flows = [("load", middle, there), (middle, "load", back)]
    if last:
        flows += [(middle, last, legs_there), (last, middle, legs_back)]
    found = 0.0
    for source, target, (sent, acknowledged) in flows:
        if hosts.get(source) == hosts.get(target):
            continue
        sender, receiver = (source, target) if way == UP else (target, source)
        found += sent * (hosts.get(sender) == group) + acknowledged * (hosts.get(receiver) == group)
    return found


def _mix(one: ModelSettings, read: tuple[float, float], write: tuple[float, float]) -> tuple[float, float]:
    """Bytes sent, and bytes of the acknowledgements sent back, for so many messages of so many bytes each."""
    (sent, acknowledged), (sent_write, acknowledged_write) = (
        tuple(count * part for part in _frames(payload)) for count, payload in (read, write)
    )
    share = one.writes_share
    return (1 - share) * sent + share * sent_write, (1 - share) * acknowledged + share * acknowledged_write


def _frames(payload: float) -> tuple[float, float]:
    """Bytes of the frames of a message, and of their acknowledgements: one for two full frames."""
    count = -(-payload // _PAYLOAD)
    return payload + _HEADERS * count, _HEADERS * (count // 2)


def link_time_s(one: ModelSettings, group: str, way: str, rate: float) -> float:
    """Seconds that the links of a group need for a request, before the fitted factor."""
    return link_bytes(one, group, way) / rate


def link_centres(one: ModelSettings, values: Mapping[str, float], legs: float, fan: float) -> list[Centre]:
    """A queue for each limited link and direction, and delays for the way to the servers."""
    hosts, found = dict(one.hosts), []
    middle, last = path_of({role: 1 for role in hosts})
    for group, way, rate in one.links:
        name = link_name(group, way)
        time_s = values.get(f"{name}.factor", 1.0) * link_time_s(one, group, way, rate)
        inner = bool(last) and group == hosts[last] != hosts[middle]
        visits = legs if inner and last == "backends" else 1.0
        found.append(
            Centre(
                name,
                one.host_count(group),
                visits,
                fan if visits != 1.0 else 1.0,
                time_s / visits,
                time_s / visits,
                inside=inner,
                by_key=inner and last == "backends",
            )
        )
    return found + _way_to_servers(one, values)


def _way_to_servers(one: ModelSettings, values: Mapping[str, float]) -> list[Centre]:
    """The delay of emulated links between proxies and servers, with a limit of reads in flight to each server.

    A server with several readers is one that is faster, and a delay (Seidmann); writes hold no reader. A reader is
    held until the proxy has read the reply, so that waiting for the proxy holds it longer.
    """
    hosts, found = dict(one.hosts), []
    if one.readers:
        parts = min(one.keys, max(one.servers, 1))
        slowest = sum(1 / place for place in range(1, parts + 1)) / parts
        queue_s = (one.inner_delay_s + one.service_s) / one.readers
        found.append(
            Centre(
                "readers",
                max(1, one.servers),
                (1 - one.writes_share) * parts,
                slowest,
                queue_s,
                queue_s,
                held_at="proxy",
                held=values["held"] / one.readers,
                counted=0.0,
                by_key=True,
            )
        )
    if "proxy" in hosts and "backends" in hosts and hosts["proxy"] != hosts["backends"]:
        way_s = one.inner_delay_s
        found.append(Centre("way to the servers", ENDLESS, 1.0, 1.0, way_s, way_s, inside=True))
    return found
