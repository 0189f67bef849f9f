"""Exact closed networks with a product form, by convolution of logarithms. Every term is positive.

J. Buzen, Computational algorithms for closed queueing networks (1973); M. Reiser and H. Kobayashi, Queuing networks
with multiple closed chains (1975). It avoids the recursion with p(0) = 1 - sum, which loses all digits
(docs/models.md).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from waylab.models.errors import AssumptionError
from waylab.models.features import require
from waylab.models.network import Network
from waylab.models.result import Result
from waylab.models.solvers.log_sums import delay_weights
from waylab.models.solvers.passage import closed_quantiles
from waylab.models.solvers.products import PRODUCT_FORM, Demands, Steady, closed_part, demands, result
from waylab.models.solvers.series import solve_series
from waylab.models.solvers.shared import solve_shared
from waylab.models.solvers.weights import (
    QueueingStation,
    closed_is_first,
    rates_beside_open,
    serves_one_at_a_time,
    station_rates,
)

Array = NDArray[np.float64]
# Product of the chains' populations; single servers on a lattice of this size take two gigabytes and a minute.
LATTICE_MAX = 20_000_000


@dataclass(frozen=True, eq=False)
class ClosedSolution:
    """The steady state of R closed chains at S queues."""

    throughput_per_s: Array
    """(R,)"""
    queue_length: Array
    """(S, R)"""
    waiting: Array
    """(S, R) mean number in excess of a system without contention."""
    present: tuple[Array, ...]
    """For each queue: probability of n = 0, 1, ... present."""


def solve_convolution(network: Network) -> Result:
    """Solve a closed network exactly: any number of chains, servers, rates, delays, and class switching.

    Assumes a product form: exponential service with the same mean for all classes where requests are served first
    come first served; any distribution, and means by class, at processor sharing and delay stations. A station
    with rates r(n) has n requests with weight D^n / (r(1) ... r(n)). Times in seconds.

    Raises:
        AssumptionError: for a feature without a product form, or more than 20 million populations of the chains.
        ModelError: for a chain without any work.
    """
    require(network, "convolution", PRODUCT_FORM | {"closed"})
    found = demands(network)
    check_lattice("convolution", found)
    steady = closed_steady(found, np.zeros(len(network.stations)))
    return result(found, "convolution", steady, closed_quantiles(network))


def closed_steady(found: Demands, loads: Array) -> Steady:
    """Steady state of the closed chains of a network, beside open classes of `loads` (K,) seconds of work per second.

    `present` and `occupied` count closed customers only.
    """
    demands_s, delays = found.demands_s, found.delays
    queues, places = [], []
    for index, station in enumerate(found.network.stations):
        if delays[index] or not demands_s[:, index].any():
            continue
        # The number of open requests has no bound; that of closed ones is at most the population.
        rates = station_rates(station, None if loads[index] else sum(found.populations))
        queues.append(
            QueueingStation(
                demands_s[:, index],
                rates_beside_open(rates, float(loads[index])),
                station.rate(1),
                closed_is_first(station_rates(station), float(loads[index]), sum(found.populations))
                if serves_one_at_a_time(station)
                else None,
            )
        )
        places.append(index)
    delay_s = found.think_s + demands_s[:, delays].sum(axis=1)
    solved = solve_chains(found.populations, delay_s, queues)
    queue_length = np.where(delays, solved.throughput_per_s[:, None] * demands_s, 0.0)
    waiting = np.zeros_like(queue_length)
    queue_length[:, places] = solved.queue_length.T
    waiting[:, places] = solved.waiting.T
    steady = closed_part(found, solved.throughput_per_s, queue_length, waiting)
    for index, present in zip(places, solved.present, strict=True):
        name = found.network.station_names[index]
        steady.present[name] = present
        steady.occupied[name] = float(present[1:].sum())
    return steady


def check_lattice(solver: str, found: Demands) -> None:
    """Check that chains that share queues do not have too many populations together.

    Raises:
        AssumptionError: with the number of populations and the method to use instead.
    """
    for group in _groups(found.demands_s[:, ~found.delays] > 0):
        points = math.prod(found.populations[chain] + 1 for chain in group)
        if len(group) > 1 and points > LATTICE_MAX:
            raise AssumptionError(
                solver,
                f"at most {LATTICE_MAX:,} populations of the chains",
                f"there are {points:,}; use linearizer, or simulate",
            )


def solve_chains(
    populations: tuple[int, ...], delay_s: Array, queues: Sequence[QueueingStation]
) -> ClosedSolution:
    """Solve R closed chains exactly. `delay_s` (R,): think time and delay stations.

    Queues of one chain alone are series of that chain; only shared queues need the lattice.
    """
    chains = range(len(populations))
    # Times in units of each chain's shortest cycle per customer keep the logarithms, and so the rounding, small.
    unit_s = _units_s(populations, delay_s, queues)
    delays = [delay_weights(delay_s[chain] / unit_s[chain], populations[chain]) for chain in chains]
    scaled = [replace(queue, demands_s=queue.demands_s / unit_s) for queue in queues]
    visiting = np.zeros((len(queues), len(populations)), dtype=bool)
    for index, queue in enumerate(queues):
        visiting[index] = queue.demands_s > 0
    private = [np.flatnonzero(visiting[:, chain] & (visiting.sum(axis=1) == 1)).tolist() for chain in chains]
    series = [[_of_chains(scaled[index], [chain]) for index in private[chain]] for chain in chains]
    queue_length = np.zeros((len(queues), len(populations)))
    waiting = np.zeros_like(queue_length)
    present: list[Array] = [np.ones(1)] * len(queues)
    rests = delays
    for group in _groups(visiting.T):
        shared = np.flatnonzero(visiting[:, group].sum(axis=1) > 1).tolist()
        if not shared:
            continue
        found_rests, stations = solve_shared(
            tuple(populations[chain] for chain in group),
            [delays[chain] for chain in group],
            [series[chain] for chain in group],
            [_of_chains(scaled[index], group) for index in shared],
        )
        for chain, rest in zip(group, found_rests, strict=True):
            rests[chain] = rest
        for index, (lengths, waits, counts) in zip(shared, stations, strict=True):
            queue_length[index, group], waiting[index, group], present[index] = lengths, waits, counts
    throughput = np.zeros(len(populations))
    for chain in chains:
        throughput[chain], numbers_of = solve_series(rests[chain], series[chain])
        for index, numbers in zip(private[chain], numbers_of, strict=True):
            queue_length[index, chain], waiting[index, chain], present[index] = numbers
    # A station that is faster for many requests than for one may have no waiting.
    return ClosedSolution(throughput / unit_s, queue_length, np.maximum(waiting, 0.0), tuple(present))


def _groups(visiting: NDArray[np.bool_]) -> list[list[int]]:
    """Groups of chains that share queues, directly or through others; `visiting` (R, S) marks visits."""
    groups: list[list[int]] = []
    for chain, places in enumerate(visiting):
        met = [group for group in groups if (visiting[group].any(axis=0) & places).any()]
        groups = [group for group in groups if group not in met]
        groups.append(sorted([chain, *(other for group in met for other in group)]))
    return groups


def _of_chains(queue: QueueingStation, chains: list[int]) -> QueueingStation:
    return replace(queue, demands_s=queue.demands_s[chains])


def _units_s(populations: Sequence[int], delay_s: Array, queues: Sequence[QueueingStation]) -> Array:
    """Shortest time between two completions of each chain: its cycle without waiting, or its bottleneck."""
    cycle_s = delay_s + sum(
        (queue.demands_s / queue.rates[0] for queue in queues), start=np.zeros_like(delay_s)
    )
    unit_s = cycle_s / np.array(populations)
    for queue in queues:
        unit_s = np.maximum(unit_s, queue.demands_s / queue.rates.max())
    return np.asarray(unit_s)
