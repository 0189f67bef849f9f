"""The inside of each pool of slots and the outside, each as a closed network of one class with the mean work.

Finds which places belong to which pool. Does not know how the results are combined.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from waylab.models.description import CLIENT, JobClass, Pool, Station
from waylab.models.errors import AssumptionError
from waylab.models.network import Network
from waylab.models.service import Service
from waylab.models.solvers.convolution import closed_steady
from waylab.models.solvers.fork.join import Point, closed_points
from waylab.models.solvers.fork.model import ForkModel
from waylab.models.solvers.products import Demands, demands
from waylab.models.solvers.stretch import present_given
from waylab.models.solvers.weights import serves_one_at_a_time
from waylab.models.traffic import traffic

Array = NDArray[np.float64]
ONE_CLASS = "request"


@dataclass(frozen=True, eq=False)
class SlotState:
    """The steady state of a part with a number of requests there. Arrays by its stations and forks."""

    throughput_per_s: float
    queue_length: Array
    waiting: Array
    occupied: Array
    """Share of time with any request at each station."""
    joining: Array
    """Mean number of requests between fork and join."""
    further: tuple[Array, ...] = ()
    """For each further station: probability of n = 0, 1, ... present."""


@dataclass(frozen=True, eq=False)
class Part:
    """Stations and forks inside one pool, or those outside all pools."""

    stations: tuple[int, ...]
    forks: tuple[int, ...]


def parts(network: Network, solver: str) -> tuple[list[Part], Part]:
    """Divide the network into the inside of each pool and the outside.

    Raises:
        AssumptionError: when a place inside is also used without a slot of that pool.
    """
    names, stations = network.node_names, len(network.stations)
    used = traffic(network)
    direct = used.visits[:, :stations].sum(axis=(0, 2)) > 0
    owner = [-1] * stations
    for index, pool in enumerate(network.pools):
        inside = {names.index(name) for name in pool.inside}
        for fork_index, fork in enumerate(network.forks):
            if stations + fork_index in inside:
                inside |= {names.index(name) for name in fork.branches}
        for station in sorted(place for place in inside if place < stations):
            shared = owner[station] != -1 or (direct[station] and names[station] not in pool.inside)
            if shared:
                raise _shared(solver, names[station], pool)
            owner[station] = index
    pool_of = [_pool_of(network, name) for name in names]
    for fork_index, fork in enumerate(network.forks):
        for name in fork.branches:
            pool_index = owner[names.index(name)]
            if pool_index != pool_of[stations + fork_index]:
                pool = network.pools[max(pool_index, pool_of[stations + fork_index])]
                raise _shared(solver, name, pool)
    found = [_part(owner, pool_of[stations:], index) for index in range(-1, len(network.pools))]
    return found[1:], found[0]


def entries(network: Network) -> Array:
    """(C, P, D) how often a request that began in class c acquires a slot of each pool, as class d."""
    count = len(network.classes)
    found = np.zeros((count, len(network.pools), count))
    visits = traffic(network).visits
    if network.visits:
        for begin, counts in network.visits.items():
            index = network.class_names.index(begin)
            for pool_index, pool in enumerate(network.pools):
                found[index, pool_index, index] = _runs(network, counts, pool)
        return found
    for route in network.routes:
        if route.target == CLIENT:
            continue
        target = _pool_of(network, route.target)
        origin = -1 if route.origin == CLIENT else _pool_of(network, route.origin)
        if target in (-1, origin):
            continue
        before, after = (
            network.class_names.index(route.job_class),
            network.class_names.index(route.class_after),
        )
        if route.origin == CLIENT:
            found[before, target, after] += route.probability
        else:
            found[:, target, after] += (
                visits[:, network.node_names.index(route.origin), before] * route.probability
            )
    return found


def inside(found: Demands, part: Part, most: int) -> list[SlotState]:
    """The steady states with 1..most requests circulating in a part; empty if it takes no time."""
    if not found.demands_s[0][list(part.stations)].any():
        return []
    network = _one_class(found, part, most, 0.0, ())
    if network.forks:
        model = ForkModel.of(network)
        points = enumerate(itertools.islice(closed_points(model), most), start=1)
        states = [_with_forks(model, present, point, 0) for present, point in points]
    else:
        sizes = range(1, most + 1)
        states = [_without_forks(network.with_class(ONE_CLASS, population=present), 0) for present in sizes]
    return [_spread(found.network, network, part, state) for state in states]


def outside(found: Demands, part: Part, further: tuple[Station, ...]) -> SlotState:
    """The steady state of a part with the whole population, their think time, and further stations."""
    network = _one_class(found, part, found.populations[0], float(found.think_s[0]), further)
    if network.forks:
        model = ForkModel.of(network)
        customers = found.populations[0]
        point = next(itertools.islice(closed_points(model), customers - 1, None))
        state = _with_forks(model, customers, point, len(further))
    else:
        state = _without_forks(network, len(further))
    return _spread(found.network, network, part, state)


def _one_class(
    found: Demands, part: Part, population: int, think_s: float, further: tuple[Station, ...]
) -> Network:
    network = found.network
    stations = len(network.stations)
    visits = np.einsum("c,ckd->k", found.shares[0], traffic(network).visits)
    total = found.chain_visits[0].sum(axis=1)
    kept = [index for index in part.stations if total[index] > 0]
    forks = [index for index in part.forks if visits[stations + index] > 0]
    made = [
        Station(
            network.station_names[index],
            {ONE_CLASS: Service(float(found.demands_s[0, index] / total[index]))},
            network.stations[index].servers,
            rates=network.stations[index].rates,
        )
        for index in kept
    ]
    counts = {network.station_names[index]: float(visits[index]) for index in kept}
    counts |= {network.forks[index].name: float(visits[stations + index]) for index in forks}
    counts |= {station.name: 1.0 for station in further}
    return Network(
        (JobClass(ONE_CLASS, population, Service(think_s)),),
        (*made, *further),
        {ONE_CLASS: counts},
        forks=tuple(network.forks[index] for index in forks),
    )


def _with_forks(model: ForkModel, customers: int, point: Point, further: int) -> SlotState:
    names = [fork.name for fork in model.network.forks]
    counts = np.array([model.network.visits[ONE_CLASS][name] for name in names])
    present = [
        np.ones(1)
        if rates is None
        else present_given(rates, model.others(index, customers + 1), float(length))
        for index, (rates, length) in enumerate(zip(model.rates, point.queue_length, strict=True))
    ]
    alone = np.array([1.0 if rates is None else rates[0] for rates in model.rates])
    occupied = np.array([shares[1:].sum() for shares in present])
    serves_first = np.array([serves_one_at_a_time(station) for station in model.network.stations])
    served = np.where(serves_first, occupied, point.throughput_per_s * model.work_s / alone)
    return SlotState(
        throughput_per_s=point.throughput_per_s,
        queue_length=point.queue_length,
        waiting=np.maximum(point.queue_length - served, 0.0),
        occupied=occupied,
        joining=point.throughput_per_s * counts * np.array([times_s[0] for times_s in point.forks_s]),
        further=tuple(present[len(present) - further :]),
    )


def _without_forks(network: Network, further: int) -> SlotState:
    steady = closed_steady(demands(network), np.zeros(len(network.stations)))
    names = network.station_names
    return SlotState(
        throughput_per_s=float(steady.starts_per_s[0]),
        queue_length=steady.queue_length[:, 0],
        waiting=steady.waiting[:, 0],
        occupied=np.array([steady.occupied.get(name, 0.0) for name in names]),
        joining=np.zeros(0),
        further=tuple(steady.present[name] for name in names[len(names) - further :]),
    )


def _spread(whole: Network, network: Network, part: Part, state: SlotState) -> SlotState:
    """Numbers by the part's stations and forks, 0 for those without visits."""
    stations = [whole.station_names[index] for index in part.stations]
    forks = [whole.forks[index].name for index in part.forks]
    known = tuple(fork.name for fork in network.forks)
    return replace(
        state,
        queue_length=_placed(state.queue_length, network.station_names, stations),
        waiting=_placed(state.waiting, network.station_names, stations),
        occupied=_placed(state.occupied, network.station_names, stations),
        joining=_placed(state.joining, known, forks),
    )


def _placed(values: Array, names: tuple[str, ...], wanted: list[str]) -> Array:
    return np.array([values[names.index(name)] if name in names else 0.0 for name in wanted])


def _part(owner: list[int], pool_of: list[int], wanted: int) -> Part:
    stations = tuple(index for index, pool in enumerate(owner) if pool == wanted)
    return Part(stations, tuple(index for index, pool in enumerate(pool_of) if pool == wanted))


def _pool_of(network: Network, name: str) -> int:
    return next((index for index, pool in enumerate(network.pools) if name in pool.inside), -1)


def _shared(solver: str, name: str, pool: Pool) -> AssumptionError:
    fact = f"station {name!r} is also used without a slot of {pool.name!r}"
    return AssumptionError(solver, "that places inside a pool are used only with one of its slots", fact)


def _runs(network: Network, counts: Mapping[str, float], pool: Pool) -> float:
    """How often a request that visits the nodes in order enters a pool from outside."""
    times, inside_share = 0.0, 0.0
    for name in network.node_names:
        comes = min(1.0, counts.get(name, 0.0))
        if name in pool.inside:
            times += comes * (1 - inside_share)
            inside_share = comes + (1 - comes) * inside_share
        else:
            inside_share *= 1 - comes
    return times
