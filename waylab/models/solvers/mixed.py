"""Exact networks with open and closed classes: closed classes see the capacity that open classes leave.

S. Lavenberg and M. Reiser, Stationary state probabilities at arrival instants for closed queueing networks with
multiple types of customers (1980); rates and several servers by summing the open requests out of the weights.
"""

import numpy as np
from numpy.typing import NDArray

from waylab.models.description import Station
from waylab.models.features import require
from waylab.models.network import Network
from waylab.models.result import Result
from waylab.models.solvers.convolution import check_lattice, closed_steady
from waylab.models.solvers.open import check_stable, station_alone
from waylab.models.solvers.products import PRODUCT_FORM, demands, result
from waylab.models.solvers.weights import (
    closed_is_first,
    rates_beside_open,
    rates_up_to,
    serves_one_at_a_time,
    station_rates,
)

Array = NDArray[np.float64]


def solve_mixed(network: Network) -> Result:
    """Solve a network with open and closed classes exactly; either may be missing.

    Assumes Poisson arrivals and a product form, as the solvers `open` and `convolution` do. At a station to which
    the open classes bring a seconds of work per second, n closed customers are served at the speeds
    c'(n-1) / c'(n), where c'(n) sums the weights over the open ones; at a single server that is 1 - a. With n closed
    customers there are a (n+1) c'(n+1) / c'(n) open ones in the mean; at a single server (n+1) a / (1 - a).

    Raises:
        AssumptionError: for a feature without a product form, or more than 20 million populations of the chains.
        UnstableError: naming the station that the open classes alone saturate.
        ModelError: for a closed chain without any work.
    """
    require(network, "mixed", PRODUCT_FORM | {"closed", "open"})
    found = demands(network)
    check_lattice("mixed", found)
    open_work = found.open_flow_per_s * found.service_s
    loads = open_work.sum(axis=1)
    for index, station in enumerate(network.stations):
        check_stable(station, float(loads[index]))
    steady = closed_steady(found, loads)
    steady.starts_per_s = steady.starts_per_s + found.open_starts_per_s
    steady.flow_per_s = steady.flow_per_s + found.open_flow_per_s
    for index, station in enumerate(network.stations):
        load = float(loads[index])
        if load == 0:
            continue
        if station.is_delay:
            steady.queue_length[index] += open_work[index]
            continue
        # With open classes, the number of closed customers is not the total number present.
        closed = steady.present.pop(station.name, np.ones(1))
        length, waiting, occupied = _beside_closed(station, load, closed)
        steady.queue_length[index] += length * open_work[index] / load
        steady.waiting[index] += waiting * open_work[index] / load
        steady.occupied[station.name] = occupied
    return result(found, "mixed", steady)


def _beside_closed(station: Station, load: float, closed: Array) -> tuple[float, float, float]:
    """Mean number of open requests at a station, the number waiting, and the share of time with any request present.

    `closed` holds the probability of n = 0, 1, ... closed customers.
    """
    speeds = rates_up_to(rates_beside_open(station_rates(station), load), len(closed))
    each = np.arange(1.0, len(closed) + 1.0) / speeds
    length = load * float(closed @ each)
    # Without closed customers, the open requests see the station alone.
    alone = station_alone(station, load)[2]
    occupied = float(closed[1:].sum() + closed[0] * alone[1:].sum())
    if serves_one_at_a_time(station):
        first = closed_is_first(station_rates(station), load, len(closed) - 1)
        waiting = length - (occupied - float(closed @ first))
    else:
        waiting = load * float(closed @ (each - 1 / station.rate(1)))
    return length, max(waiting, 0.0), occupied
