"""Networks with forks: mean-value analysis in which a request waits for the slowest of its legs. An approximation.

The formulas for a fork alone are in `fork.times`; knows no pools.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from waylab.models.errors import AssumptionError, UnstableError
from waylab.models.features import ASSUMPTIONS, require
from waylab.models.network import Network
from waylab.models.result import Result
from waylab.models.solvers.fork.model import ForkModel
from waylab.models.solvers.open import check_stable, station_alone
from waylab.models.solvers.products import Steady, result
from waylab.models.solvers.stretch import present_given
from waylab.models.traffic import traffic

Array = NDArray[np.float64]
SOLVER = "fork-join"
_HANDLES = {
    "closed",
    "open",
    "several chains",
    "several classes",
    "class switching",
    "delay",
    "several servers",
    "rates",
    "forks",
}
# How fast the dependence of legs decreases as customers gather at the branches; see `solve_fork_join`.
_FADING = 0.5
_ROUNDS_MAX = 500
_TOLERANCE = 1e-12


def solve_fork_join(network: Network) -> Result:
    """Solve a network with forks approximately: closed with one chain of classes, or open.

    Assumes exponential service with the same mean for all classes where requests are served first come first served.
    Closed: assumes the arrival theorem, so that a visit or leg with n customers in the network finds the mean queues of
    n - 1. For single servers R_i(n) = S_i (1 + Q_i(n-1)); for several servers and rates a
    birth-death distribution is fitted to Q_i(n-1) (`stretch`). Open: R_i as if alone (Jackson). A fork takes the
    mean of the k-th smallest of independent exponential times of means R_i, the legs beginning `send_s` apart; k is
    K, the majority, or 1. For K equal stations in a closed network that is Varki's R = S (H_K + L(n-1)).
    Legs are dependent, because they arrive together. The factor of Nelson and Tantawi reduces the difference to fully
    dependent legs as rho grows. Here rho is the legs' part of the share of waiting in the time at the branches (1 - S /
    R, the utilisation of M/M/1), times the root of w, the share of customers that are not at the branches. In an open
    network w is 1, which gives Nelson and Tantawi's formula (exact for K = 2). Without other places w is 0, which gives
    Varki's (exact for K = 2). The root was chosen by comparison with the exact chain. If legs are left behind
    (majority, first), a customer also finds its own earlier legs. Times in seconds.
    Error against the exact chain (tests/models/test_fork_join.py has a part of these): over 226 networks with join =
    all, K 2..5, N 1..20, think time, direct visits and other stations, at most 1.9 % in throughput and 2.0 % in
    response, 0.2 % and 0.3 % on average; with several servers 0.7 % and 1.1 %; over 42 with majority or first and
    branches busy for less than 60 % of the time, 1.4 % and 6.0 %. The response of single legs is off by up to 6.2 %.
    Sources: Varki (1999, 2001); Nelson and Tantawi (1988); Reiser and Lavenberg (1980) for the recursion.

    Raises:
        AssumptionError: for several closed chains, closed and open classes together, pools, priorities, finite rooms.
        UnstableError: when a station is saturated, which legs that no request waits for can cause too.
    """
    require(network, SOLVER, _HANDLES)
    _check_chains(network)
    model = ForkModel.of(network)
    if network.has_closed:
        return _closed(model)
    return _open(model)


def _check_chains(network: Network) -> None:
    if not network.has_closed:
        return
    if network.has_open:
        fact = "some classes have a population, and others come from outside"
        raise AssumptionError(SOLVER, "a network that is either closed or open", fact)
    chains = len(traffic(network).chains)
    if chains > 1:
        raise AssumptionError(SOLVER, ASSUMPTIONS["several chains"], f"there are {chains}")


@dataclass(frozen=True, eq=False)
class Point:
    """The steady state with a certain number of customers. K stations, F forks."""

    throughput_per_s: float
    queue_length: Array
    """(K,)"""
    own: Array
    """(K,) legs of its own earlier requests that a customer finds."""
    rhos: Array
    """(F,) how dependent the legs of each fork are."""
    stretches: Array
    """(K,) time of a visit in units of its service."""
    forks_s: list[Array]
    """By fork, (C,) by class."""


# Stretches, fork responses, and the length of a whole cycle.
_Cycle = tuple[Array, list[Array], float]


def closed_points(model: ForkModel) -> Iterator[Point]:
    """Mean-value analysis: an endless series of steady states with 1, 2, ... customers."""
    empty = np.zeros(len(model.rates))
    point = Point(0.0, empty, empty, np.zeros(len(model.forks)), empty, [])
    for customers in itertools.count(1):
        point = _with_one_more(model, customers, point)
        yield point


def _closed(model: ForkModel) -> Result:
    population = model.found.populations[0]
    point = next(itertools.islice(closed_points(model), population - 1, None))
    occupied = {}
    for index, station in enumerate(model.network.stations):
        rates = model.rates[index]
        if rates is None:
            continue
        busy = point.throughput_per_s * model.work_s[index] / rates.max()
        if busy >= 1 and model.has_left_legs(index):
            raise UnstableError(f"station {station.name!r}", busy)
        if station.rates:
            shares = present_given(rates, model.others(index, population + 1), point.queue_length[index])
            occupied[station.name] = float(shares[1:].sum())
    return _result(model, point, point.throughput_per_s * model.starts, occupied)


def _with_one_more(model: ForkModel, customers: int, before: Point) -> Point:
    own = before.own
    for _ in range(_ROUNDS_MAX):
        stretches = model.stretches(customers, before.queue_length + own)
        forks_s, cycle_s = model.cycle(stretches, before.rhos)
        found = model.own_legs(stretches, forks_s, cycle_s)
        change = np.abs(found - own).max(initial=0.0)
        own = (own + found) / 2
        if change <= _TOLERANCE * (1 + own.max(initial=0.0)):
            break
    else:
        worst = int(np.argmax(own))
        busy = customers / cycle_s * model.work_s[worst] / model.capacities[worst]
        raise UnstableError(f"station {model.network.stations[worst].name!r}", max(1.0, busy))
    cycle = (stretches, forks_s, cycle_s)
    stretches, forks_s, cycle_s = _within_capacity(model, customers, before.rhos, cycle)
    throughput = customers / cycle_s
    away = [max(0.0, 1 - model.inside_s(fork, stretches, forks_s) / cycle_s) for fork in model.forks]
    rhos = np.array(
        [model.common(fork, stretches) * w**_FADING for fork, w in zip(model.forks, away, strict=True)]
    )
    return Point(throughput, throughput * model.work_s * stretches, own, rhos, stretches, forks_s)


def _within_capacity(model: ForkModel, customers: int, rhos: Array, cycle: _Cycle) -> _Cycle:
    """Keep utilisations at most 1: the missing part of the cycle is waiting at the busiest station."""
    stretches, forks_s, cycle_s = cycle
    shortest_s = customers * model.work_s / model.capacities
    busiest = int(np.argmax(shortest_s))
    for _ in range(_ROUNDS_MAX):
        missing_s = shortest_s[busiest] - cycle_s
        if missing_s <= _TOLERANCE * cycle_s or model.has_left_legs(busiest):
            break
        stretches = stretches.copy()
        stretches[busiest] += missing_s / model.work_s[busiest]
        forks_s, cycle_s = model.cycle(stretches, rhos)
    return stretches, forks_s, cycle_s


def _open(model: ForkModel) -> Result:
    """Each station as if alone, with the arrivals of all its visits and legs."""
    stretches = np.ones(len(model.rates))
    occupied = {}
    for index, (station, load) in enumerate(zip(model.network.stations, model.work_s, strict=True)):
        if model.rates[index] is None or load == 0:
            continue
        check_stable(station, float(load))
        length, _, present = station_alone(station, float(load))
        stretches[index] = length / load
        occupied[station.name] = float(present[1:].sum())
    rhos = np.array([model.common(fork, stretches) for fork in model.forks])
    forks_s = [
        model.fork_response_s(fork, stretches, rho) for fork, rho in zip(model.forks, rhos, strict=True)
    ]
    point = Point(1.0, model.work_s * stretches, np.zeros(0), rhos, stretches, forks_s)
    return _result(model, point, model.starts, occupied)


def _result(model: ForkModel, point: Point, starts_per_s: Array, occupied: dict[str, float]) -> Result:
    """Turn numbers per visit into a result; the response time includes the join of a fork, not its legs."""
    found, network = model.found, model.network
    stations = len(network.stations)
    described = traffic(network)
    flow = np.einsum("c,ckd->kd", starts_per_s, found.visits)
    times_s = found.service_s * point.stretches[:, None]
    alone_s = (
        found.service_s / np.array([1.0 if rates is None else rates[0] for rates in model.rates])[:, None]
    )
    waiting = flow * np.maximum(times_s - alone_s, 0.0)
    steady = Steady(starts_per_s, flow, flow * times_s, waiting, {}, occupied)
    forks_s = np.array(point.forks_s).reshape(len(model.forks), len(network.classes))
    response_s = np.einsum("ckd,kd->c", described.visits[:, :stations], times_s)
    response_s = response_s + np.einsum("cfd,fd->c", described.visits[:, stations:], forks_s)
    return replace(
        result(found, SOLVER, steady),
        kind="approximation",
        response_s=np.where(starts_per_s > 0, response_s, np.nan),
        fork_response_s=np.where(forks_s > 0, forks_s, np.nan) if network.forks else None,
        notes=(
            "legs: the k-th of independent exponential times, corrected for their common arrival (Nelson and Tantawi)",
            "queues: as seen with one customer fewer (Varki)"
            if network.has_closed
            else "queues: each station alone",
        ),
    )
