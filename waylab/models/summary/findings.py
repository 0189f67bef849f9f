"""Findings about a solved network: its bottleneck, how close it is to saturation, and the effect of changes.

Each change is solved by the method of the result. Writes no sentences: those are in `explain`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from waylab.models.description import Station
from waylab.models.errors import AssumptionError, ModelError, UnstableError
from waylab.models.features import features
from waylab.models.network import Network
from waylab.models.result import Array, Result
from waylab.models.solve import solve
from waylab.models.solvers import SOLVERS
from waylab.models.summary.result import pool_loads, response_mean_s, station_loads, waiting_share
from waylab.models.sweep import changed, with_service_factor, with_slots
from waylab.models.traffic import traffic

Solver = Callable[[Network], Result]
_LOAD_STEP = 0.25
_ALIKE = 1e-6
_ALIKE_SIMULATED = 0.05
# A pool is the limit if its load exceeds that of every station by this factor.
_POOL_AHEAD = 1.02


@dataclass(frozen=True)
class Bottleneck:
    """The bottleneck: stations with the same load, or a pool."""

    kind: str
    """`station`, `pool`, or `none` when no request can ever wait."""
    names: tuple[str, ...]
    load: float


@dataclass(frozen=True)
class ModelChange:
    """One change and its result. Without a result, `note` gives the reason."""

    kind: str
    """`servers`, `slots`, `service`, `fewer` or `more`."""
    value: float
    """New number of servers, slots or clients, or the factor on the service time or on the arrivals."""
    network: Network
    result: Result | None
    limit: Bottleneck | None
    throughput_change: float
    """Relative to the unchanged network: 0.1 is ten percent more."""
    response_change: float
    note: str = ""
    """`unstable` without a steady state; otherwise the other method that was used, or why none could solve it."""
    inside: tuple[str, ...] = ()
    """The stations whose service time changes, if they are inside the limiting pool."""


@dataclass(frozen=True)
class Findings:
    """Everything that `explain` reports, as numbers."""

    limit: Bottleneck
    time_share: float | None
    """Share of the response time that is spent at the bottleneck; None behind a fork or for a pool."""
    class_time_shares: Mapping[str, float]
    waiting_share: float | None
    """Share of the time at the bottleneck that is spent waiting."""
    longest: tuple[tuple[str, ...], float] | None
    """The stations with the largest share of the response time, and that share.

    None with forks, whose legs overlap, and with pools, where waiting for a slot takes time too.
    """
    slot_waiting_s: float | None
    """Mean waiting time for a slot of the limiting pool."""
    inside: Bottleneck | None
    """The busiest stations inside the limiting pool."""
    bound_per_s: float | None
    """Throughput at which the bottleneck would always be busy, at this mix of classes (1 / Dmax)."""
    knee_clients: float | None
    """N* = (R(1) + Z) / Dmax, for one closed chain."""
    arrivals_growth: float | None
    """Factor on all arrivals at which an open network saturates."""
    changes: tuple[ModelChange, ...]


def find(result: Result, solver: Solver | None = None, what_if: bool = True) -> Findings:
    """Find the bottleneck and the effect of changes.

    The bottleneck is the station with the highest load (together with all stations of the same description and
    load), or a pool with a higher share of busy slots. By Little's law, the share of the response time at a station
    is the number present there over the number in the network. `solver` solves the changed networks; the default is
    the method of the result, or `auto` if that method cannot. Without `what_if`, no network is solved: the findings
    then have no changes and no knee.

    Raises:
        ModelError: when the result was simulated and no `solver` is given for `what_if`.
    """
    if what_if:
        solver = solver or _same_method(result)
    limit = limit_of(result)
    network = result.network
    shares = _time_share(result, limit)
    return Findings(
        limit=limit,
        time_share=shares,
        class_time_shares=_class_time_shares(result, limit) if shares is not None else {},
        waiting_share=_waiting_share(result, limit),
        longest=_longest(result),
        slot_waiting_s=_slot_waiting_s(result, limit),
        inside=_busiest_inside(result, limit),
        bound_per_s=_bound_per_s(result, limit),
        knee_clients=knee_clients(result, solver) if what_if else None,
        arrivals_growth=_arrivals_growth(network, result),
        changes=tuple(_changes(result, limit, solver)) if solver and what_if else (),
    )


def knee_clients(result: Result, solver: Solver | None = None) -> float | None:
    """N* = (R(1) + Z) / Dmax, where the asymptotes of one closed chain meet; None for any other network.

    R(1) + Z is the cycle time of one customer alone; 1 / Dmax is the throughput over the highest load.
    """
    network = result.network
    bound_per_s = _bound_per_s(result, limit_of(result))
    if bound_per_s is None or not network.has_closed or {"open", "several chains"} & set(features(network)):
        return None
    first = next(part.name for part in network.classes if part.population)
    alone = tuple(replace(part, population=int(part.name == first)) for part in network.classes)
    try:
        result_alone = (solver or _same_method(result))(replace(network, classes=alone))
    except ModelError:
        return None
    return bound_per_s / result_alone.throughput_total_per_s


def limit_of(result: Result) -> Bottleneck:
    """Find the bottleneck."""
    network = result.network
    loads = station_loads(result)
    pools = pool_loads(result)
    if pools.size and pools.max() > _POOL_AHEAD * loads.max():
        index = int(np.argmax(pools))
        return Bottleneck("pool", (network.pools[index].name,), float(pools[index]))
    top = int(np.argmax(loads))
    if not loads[top] > 0:
        return Bottleneck("none", (), 0.0)
    # Includes stations with a different description: if two have the same load, both are the bottleneck.
    return Bottleneck("station", _equal(result, top, loads, "utilisation"), float(loads[top]))


def _alike(result: Result, index: int, numbers: Array, name: str) -> tuple[str, ...]:
    """Stations with the same description as a given one, and the same numbers."""
    network, names = result.network, _equal(result, index, numbers, name)
    return tuple(one for one in names if _same(network.station(one), network.stations[index]))


def _equal(result: Result, index: int, numbers: Array, name: str) -> tuple[str, ...]:
    """Stations with the same numbers as a given one; simulated numbers are the same within their intervals."""
    stations = result.network.stations
    slack = np.full(len(stations), _ALIKE * numbers[index])
    if name in result.half_widths:
        widths = np.nansum(result.half_widths[name], axis=1)
        slack = np.maximum(widths + widths[index], _ALIKE_SIMULATED * numbers[index])
    near = abs(numbers - numbers[index]) <= slack
    return tuple(station.name for station, same in zip(stations, near, strict=True) if same)


def _same(station: Station, other: Station) -> bool:
    return replace(station, name="") == replace(other, name="")


def _same_method(result: Result) -> Solver:
    if result.kind == "simulation":
        raise ModelError("explain", "a simulated result needs a `solver` for the changed networks")
    method = result.method if result.method in SOLVERS else "auto"

    def solver(network: Network) -> Result:
        try:
            return solve(network, method)
        except AssumptionError:
            if method == "auto":
                raise
            return solve(network)

    return solver


def _in_network(result: Result) -> float:
    """Mean number of requests between leaving the client and being back."""
    begun = result.throughput_per_s > 0
    return float(result.throughput_per_s[begun] @ result.response_s[begun])


def _in_fork(network: Network, names: tuple[str, ...]) -> bool:
    return any(name in fork.branches for fork in network.forks for name in names)


def _indices(network: Network, limit: Bottleneck) -> list[int]:
    return [network.station_names.index(name) for name in limit.names]


def _time_share(result: Result, limit: Bottleneck) -> float | None:
    if limit.kind != "station" or _in_fork(result.network, limit.names):
        return None
    there = result.station_queue_length[_indices(result.network, limit)].sum()
    return float(there) / _in_network(result)


def _longest(result: Result) -> tuple[tuple[str, ...], float] | None:
    network = result.network
    if network.forks or network.pools:
        return None
    there = result.station_queue_length
    groups = [_alike(result, index, there, "queue_length") for index in range(len(network.stations))]
    shares = [float(there[[network.station_names.index(n) for n in names]].sum()) for names in groups]
    top = int(np.argmax(shares))
    return groups[top], shares[top] / _in_network(result)


def _slot_waiting_s(result: Result, limit: Bottleneck) -> float | None:
    if limit.kind != "pool" or result.pool_waiting_s is None:
        return None
    index = [pool.name for pool in result.network.pools].index(limit.names[0])
    waiting_s, weights = result.pool_waiting_s[index], result.throughput_per_s
    known = np.isfinite(waiting_s) & (weights > 0)
    return float(waiting_s[known] @ weights[known] / weights[known].sum()) if known.any() else None


def _class_time_shares(result: Result, limit: Bottleneck) -> dict[str, float]:
    """The same by class, if no request changes its class on its path."""
    network = result.network
    between = traffic(network).station_visits.sum(axis=1)
    if len(network.classes) == 1 or (between - np.diag(np.diag(between)) > 0).any():
        return {}
    there = result.queue_length[_indices(network, limit)].sum(axis=0)
    present = result.throughput_per_s * result.response_s
    return {
        name: float(there[index] / present[index])
        for index, name in enumerate(network.class_names)
        if present[index] > 0
    }


def _waiting_share(result: Result, limit: Bottleneck) -> float | None:
    if limit.kind != "station":
        return None
    return waiting_share(result, _indices(result.network, limit)[0])


def _bound_per_s(result: Result, limit: Bottleneck) -> float | None:
    """Total throughput over load; there is no such bound with batches or lost requests."""
    if limit.kind != "station" or {"bulk service", "finite capacity"} & set(features(result.network)):
        return None
    return result.throughput_total_per_s / limit.load


def _arrivals_growth(network: Network, result: Result) -> float | None:
    if (
        network.has_closed
        or not network.has_open
        or {"finite capacity", "pools", "bulk service"} & set(features(network))
    ):
        return None
    highest = float(station_loads(result).max())
    return 1 / highest if highest > 0 else None


def _changes(result: Result, limit: Bottleneck, solver: Solver) -> list[ModelChange]:
    network = result.network
    found: list[tuple[str, float, Network, tuple[str, ...]]] = []
    if limit.kind == "pool":
        slots = 2 * next(pool.slots for pool in network.pools if pool.name == limit.names[0])
        found.append(("slots", float(slots), with_slots(network, limit.names[0], slots), ()))
        inside = _busiest_inside(result, limit)
        if inside:
            found.append(("service", 0.5, _twice_as_fast(network, inside.names), inside.names))
    elif limit.kind == "station":
        station = network.station(limit.names[0])
        if station.servers is not None and not station.rates and station.capacity is None:
            servers = 2 * station.servers
            more = network
            for name in limit.names:
                more = more.with_station(name, servers=servers)
            found.append(("servers", float(servers), more, ()))
        found.append(("service", 0.5, _twice_as_fast(network, limit.names), ()))
    found += [(*part, ()) for part in _other_loads(network)]
    return [
        replace(_change(result, kind, value, changed_network, solver), inside=inside)
        for kind, value, changed_network, inside in found
    ]


def _twice_as_fast(network: Network, names: tuple[str, ...]) -> Network:
    for name in names:
        network = with_service_factor(network, name, 0.5)
    return network


def _busiest_inside(result: Result, limit: Bottleneck) -> Bottleneck | None:
    """The stations inside a pool with the highest load."""
    network = result.network
    if limit.kind != "pool":
        return None
    pool = next(pool for pool in network.pools if pool.name == limit.names[0])
    inside = set(pool.inside)
    for name in pool.inside:
        fork = network.fork(name)
        inside |= set(fork.branches) if fork else set()
    loads = station_loads(result)
    stations = [index for index, name in enumerate(network.station_names) if name in inside]
    busiest = max(stations, key=lambda index: loads[index], default=None)
    if busiest is None or not loads[busiest] > 0:
        return None
    names = [name for name in _alike(result, busiest, loads, "utilisation") if name in inside]
    return Bottleneck("station", tuple(names), float(loads[busiest]))


def _other_loads(network: Network) -> list[tuple[str, float, Network]]:
    """A quarter fewer and a quarter more clients or arrivals."""
    found = []
    for kind, factor in (("fewer", 1 - _LOAD_STEP), ("more", 1 + _LOAD_STEP)):
        if network.has_closed:
            clients = round(factor * network.population)
            least = sum(part.population > 0 for part in network.classes)
            if clients != network.population and clients >= least:
                found.append((kind, float(clients), changed(network, "clients", clients)))
        elif network.has_open:
            classes = tuple(
                replace(part, arrivals_per_s=factor * part.arrivals_per_s) for part in network.classes
            )
            found.append((kind, factor, replace(network, classes=classes)))
    return found


def _change(before: Result, kind: str, value: float, network: Network, solver: Solver) -> ModelChange:
    try:
        after = solver(network)
    except UnstableError:
        return ModelChange(kind, value, network, None, None, 0.0, 0.0, "unstable")
    except ModelError as error:
        return ModelChange(kind, value, network, None, None, 0.0, 0.0, str(error))
    return ModelChange(
        kind,
        value,
        network,
        after,
        limit_of(after),
        after.throughput_total_per_s / before.throughput_total_per_s - 1,
        response_mean_s(after) / response_mean_s(before) - 1,
        "" if after.method == before.method else f"by {after.method}",
    )
