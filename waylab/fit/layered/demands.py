"""From settings and parameters to the network: how CPU time follows from replicas, sizes and keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from waylab.fit.layered.links import link_centres, link_time_s
from waylab.fit.layered.network import ENDLESS, Centre, CycleNetwork
from waylab.fit.observations.hosts import MACHINE, link_name
from waylab.fit.observations.settings import ModelSettings

_KIB = 1024.0
_NETWORK_S = 1e-7


@dataclass(frozen=True)
class Parameter:
    """A positive parameter: its logarithm before there is data, and how uncertain that is."""

    name: str
    start: float
    log_spread: float


def roles_of(settings: ModelSettings) -> tuple[str, ...]:
    """The roles that use CPU for a request, in the order of its path."""
    found = ["load"]
    if settings.proxies:
        found.append("proxy")
    if settings.services:
        found.append("messages")
    if settings.servers:
        found.append("backends")
    if settings.services and "database" in dict(settings.hosts):
        found.append("database")
    return tuple(found)


def parameters_of(
    settings: Sequence[ModelSettings],
    cpu_s: Mapping[str, float],
    response_s: float,
    link_s: Mapping[str, float],
) -> list[Parameter]:
    """The parameters that these settings need; starting values from mean times and the least response time."""
    found = []
    # The delays of emulated links are known; a message service waits for its database as often as it likes.
    inner_s = min(one.inner_delay_s for one in settings)
    known_s = min(one.outer_delay_s for one in settings) + (inner_s if settings[0].proxies else 0.0)
    response_s = max(response_s - known_s, 0.02 * response_s)
    for role in roles_of(settings[0]):
        centre = max(cpu_s.get(role, 0.02 * response_s), _NETWORK_S)
        found += [
            Parameter(f"{role}.batched_s", 0.7 * centre, 1.0),
            Parameter(f"{role}.alone_s", 0.4 * centre, 1.0),
        ]
        if len({one.value_bytes for one in settings}) > 1:
            found.append(Parameter(f"{role}.per_kib_s", 0.05 * centre, 1.5))
        if len({one.keys for one in settings}) > 1:
            found.append(Parameter(f"{role}.per_key_s", 0.3 * centre, 1.5))
    if settings[0].proxies and len({legs_of(one) for one in settings}) > 1:
        found.append(Parameter("proxy.per_leg_s", 0.4 * max(cpu_s.get("proxy", 0.0), _NETWORK_S), 1.0))
    if settings[0].proxies and len({one.servers for one in settings}) > 1:
        # With more servers, fewer requests share a system call on one connection.
        found.append(Parameter("proxy.per_server_s", 0.03 * max(cpu_s.get("proxy", 0.0), _NETWORK_S), 1.5))
    if any(one.service_s > 0 for one in settings):
        found.append(Parameter("service.factor", 1.0, 0.1))
        response_s = max(response_s - min(one.service_s for one in settings), 0.05 * response_s)
    rest = max(0.1 * response_s, response_s - sum(cpu_s.values()))
    found.append(Parameter("delay_s", 0.5 * rest, 1.5))
    if settings[0].readers:
        # The share of the time at the proxy during which a reader is held.
        found.append(Parameter("held", 0.4, 0.4))
    for group, way, rate in settings[0].links:
        name = link_name(group, way)
        bytes_s = sum(link_time_s(one, group, way, rate) for one in settings) / len(settings)
        factor = link_s.get(name, bytes_s) / bytes_s if bytes_s else 1.0
        found.append(Parameter(f"{name}.factor", factor, 0.3))
    if settings[0].services and "database" in dict(settings[0].hosts):
        found.append(Parameter("commit_s", max(0.5 * rest, inner_s), 1.5))
    return found


def legs_of(one: ModelSettings) -> float:
    """Requests to servers for one client request."""
    if not one.servers:
        return 1.0
    parts = min(one.keys, one.servers)
    return (1 - one.writes_share) * parts + one.writes_share * min(one.replicas, one.servers)


def fan_of(one: ModelSettings) -> float:
    """Share of the times of all visits to servers that the response contains: those at once count as their slowest."""
    parts, copies = min(one.keys, max(one.servers, 1)), min(one.replicas, max(one.servers, 1))
    slowest = (1 - one.writes_share) * _slowest(parts) + one.writes_share * _slowest(copies)
    return slowest / legs_of(one)


def _service(settings: ModelSettings, factor: float, legs: float) -> list[Centre]:
    """A given service time: a server of several workers is one that is faster, and a delay (Seidmann)."""
    workers, time_s = max(1, settings.service_workers), factor * settings.service_s
    queue_s, rest_s = time_s / workers, time_s * (workers - 1) / workers
    fan = fan_of(settings)
    return [
        Centre("service", settings.servers, legs, fan, queue_s, queue_s, inside=True, by_key=True),
        Centre("service of several workers", ENDLESS, legs, fan, rest_s, rest_s, inside=True, by_key=True),
    ]


def _slowest(count: int) -> float:
    """Mean of the slowest of so many exponential times, in means."""
    return sum(1 / place for place in range(1, count + 1))


def network_of(settings: ModelSettings, values: Mapping[str, float], foreign_share: float) -> CycleNetwork:
    """The network of a configuration; `foreign_share` is the part of the machine that other programs take."""
    hosts = dict(settings.hosts)
    cores = {
        host: max(number * (1 - foreign_share), 0.05) if host == MACHINE else number
        for host, number in settings.cores
        if host in set(hosts.values())
    }
    parallel = {
        "load": settings.load_threads,
        "proxy": settings.proxies * settings.loops,
        "messages": max(1, settings.services) * max(1, round(cores.get(hosts.get("messages", ""), 4.0))),
        "backends": max(1, settings.servers) * max(1, settings.server_threads),
        "database": settings.lanes * max(1, settings.services) or settings.slots or settings.clients,
    }
    legs = legs_of(settings)
    kib = settings.value_bytes / _KIB
    centres = []
    for role in roles_of(settings):
        batched = values[f"{role}.batched_s"]
        batched += values.get(f"{role}.per_kib_s", 0.0) * kib
        batched += values.get(f"{role}.per_key_s", 0.0) * (settings.keys - 1) * (1 - settings.writes_share)
        visits, fan = 1.0, 1.0
        if role == "proxy":
            batched += values.get("proxy.per_leg_s", 0.0) * (legs - 1)
            batched += values.get("proxy.per_server_s", 0.0) * (settings.servers - 1)
        if role == "backends":
            visits = legs
            fan = fan_of(settings)
        centres.append(
            Centre(
                role,
                max(1, parallel[role]),
                visits,
                fan,
                batched,
                batched + values[f"{role}.alone_s"],
                hosts.get(role, ""),
                inside=role in ("backends", "database"),
                by_key=role == "backends",
            )
        )
    if "service.factor" in values:
        centres += _service(settings, values["service.factor"], legs)
    centres += link_centres(settings, values, legs, fan_of(settings))
    if "commit_s" in values:
        queues = settings.lanes * max(1, settings.services) or settings.slots or settings.clients
        time_s = values["commit_s"]
        # A lane sends what waits as one statement: it is nearly as fast for many as for one.
        batched_s = time_s / 50 if settings.lanes else time_s
        centres.append(Centre("commit", max(1, queues), 1.0, 1.0, batched_s, time_s, inside=True))
    return CycleNetwork(
        tuple(centres),
        tuple(cores.items()),
        values["delay_s"] + settings.outer_delay_s,
        settings.in_flight,
        settings.think_s,
        settings.slots,
        settings.rate_per_s,
        tuple((host, settings.host_count(host)) for host in cores if host != MACHINE),
    )
