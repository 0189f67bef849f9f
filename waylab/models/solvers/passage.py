"""The exact distribution of the response time, for the few networks with a known one.

Other networks have no distribution here and can be simulated.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from waylab.models.description import CLIENT, Station
from waylab.models.elementary.closed import ClosedMMc
from waylab.models.network import Network
from waylab.models.phase_type import PhaseType
from waylab.models.result import Distribution
from waylab.models.service import Service

# Service times that are made of phases.
_PHASES = ("exponential", "erlang", "hyperexponential")


@dataclass(frozen=True)
class _ClosedResponse:
    """Response time at the station of M/M/c//N."""

    queue: ClosedMMc

    def quantile(self, share: float) -> float:
        """Quantile of the time."""
        return self.queue.response_quantile_s(share)


def closed_quantiles(network: Network) -> Mapping[str, Distribution]:
    """Distribution of the response time for clients who think and then visit one first-come-first-served station.

    An arrival sees the network with one customer fewer (Lavenberg and Reiser, 1980; Sevcik and Mitrani, 1981) and
    cannot overtake.
    """
    path = fixed_path(network)
    if len(network.classes) != 1 or path is None or len(path) != 1:
        return {}
    job_class, station = network.classes[0], path[0]
    service_s = station.service[job_class.name].mean_s
    if not _is_line(station) or station.servers is None or service_s == 0:
        return {}
    queue = ClosedMMc(job_class.population, station.servers, service_s, job_class.think.mean_s)
    return {job_class.name: _ClosedResponse(queue)}


def open_quantiles(network: Network, waiting: Mapping[str, float]) -> Mapping[str, Distribution]:
    """Distribution of the response time of one class along stations in a fixed order, each visited once.

    The times at the stations are independent if all but the first and the last are single servers, first come first
    served (Reich, 1957; Burke, 1969; Walrand and Varaiya, Sojourn times and the overtaking condition in Jacksonian
    networks, 1980): then no request is overtaken in between. `waiting` maps a station to its mean number waiting.
    """
    path = fixed_path(network)
    if len(network.classes) != 1 or path is None:
        return {}
    job_class = network.classes[0]
    timed = [station for station in path if station.service[job_class.name].mean_s > 0]
    if any(station.servers != 1 for station in timed[1:-1]) or not timed:
        return {}
    parts: list[PhaseType] = []
    for station in timed:
        service = station.service[job_class.name]
        if station.is_delay and service.distribution in _PHASES:
            parts.append(PhaseType.of_service(service))
        elif _is_line(station):
            parts += _line_times(station, service, job_class.arrivals_per_s, waiting[station.name])
        else:
            return {}
    return {job_class.name: PhaseType.sum_of(parts)}


def fixed_path(network: Network) -> tuple[Station, ...] | None:
    """Stations in the order in which every request passes them, each once; None if requests differ."""
    if len(network.classes) != 1:
        return None
    name = network.class_names[0]
    if network.visits:
        counts = {node: count for node, count in network.visits[name].items() if count > 0}
        if any(count != 1 for count in counts.values()) or not set(counts) <= set(network.station_names):
            return None
        return tuple(station for station in network.stations if station.name in counts)
    follows = {route.origin: route for route in network.routes}
    path: list[Station] = []
    here = CLIENT
    while True:
        route = follows[here]
        if route.probability != 1 or route.target in {station.name for station in path}:
            return None
        if route.target == CLIENT:
            return tuple(path)
        if route.target not in network.station_names:
            return None
        path.append(network.station(route.target))
        here = route.target


def _is_line(station: Station) -> bool:
    return station.discipline == "fcfs" and not station.rates and not station.is_delay


def _line_times(station: Station, service: Service, arrivals_per_s: float, waiting: float) -> list[PhaseType]:
    """Response time at M/M/1; or at M/M/m, an exponential wait for the requests that wait, and the service."""
    servers = station.servers or 1
    load = arrivals_per_s * service.mean_s
    leave_s = service.mean_s / (servers - load)
    if servers == 1:
        return [PhaseType.exponential(leave_s)]
    # Erlang's C is the mean number waiting over the mean number waiting given that all servers are busy.
    waits = min(1.0, waiting * (servers - load) / load)
    service_time = PhaseType.exponential(service.mean_s)
    if waits == 0:
        return [service_time]
    return [PhaseType.mixture_of([waits], [PhaseType.exponential(leave_s)]), service_time]
