"""Exact open networks with a product form: every station is a birth-death chain of its own.

J. Jackson, Jobshop-like queueing systems (1963); F. Baskett, K. Chandy, R. Muntz and F. Palacios, Open, closed and
mixed networks of queues with different classes of customers (1975). Knows no closed customers.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from waylab.models.description import Station
from waylab.models.errors import UnstableError
from waylab.models.features import require
from waylab.models.network import Network
from waylab.models.result import Result
from waylab.models.solvers.log_sums import log_sum
from waylab.models.solvers.passage import open_quantiles
from waylab.models.solvers.products import PRODUCT_FORM, Steady, demands, result
from waylab.models.solvers.weights import excess, log_capacity, serves_one_at_a_time, station_rates

Array = NDArray[np.float64]
# Probabilities of n present are listed until the rest is below the first number, up to the second number of them.
_LEFT_OUT = 1e-12
_LISTED_MAX = 100_000


def solve_open(network: Network) -> Result:
    """Solve an open network exactly: several classes, servers, rates, delays, and class switching by routes.

    Assumes Poisson arrivals and a product form: exponential service with the same mean for all classes where requests
    are served first come first served; any distribution, and means by class, at processor sharing and delay stations.
    A station with an offered load of a seconds of work per second has n present with probability proportional to
    a^n / (r(1) ... r(n)). Times in seconds.

    Raises:
        AssumptionError: for closed classes, or a feature without a product form.
        UnstableError: naming the saturated station.
    """
    require(network, "open", PRODUCT_FORM | {"open"})
    found = demands(network)
    flow = found.open_flow_per_s
    work = flow * found.service_s
    steady = Steady(found.open_starts_per_s, flow, np.zeros_like(flow), np.zeros_like(flow))
    for index, station in enumerate(network.stations):
        load = float(work[index].sum())
        if load == 0:
            continue
        if station.is_delay:
            length, waiting, present = load, 0.0, _poisson(load)
        else:
            length, waiting, present = station_alone(station, load)
        share = work[index] / load
        steady.queue_length[index] = length * share
        steady.waiting[index] = waiting * share
        steady.present[station.name] = present
        steady.occupied[station.name] = float(present[1:].sum())
    waits = dict(zip(network.station_names, steady.waiting.sum(axis=1).tolist(), strict=True))
    return result(found, "open", steady, open_quantiles(network, waits))


def check_stable(station: Station, load: float) -> None:
    """Check that the load of a station is below its highest speed.

    Raises:
        UnstableError: naming the station.
    """
    last = station.rates[-1] if station.rates else station.servers
    if last is not None and load >= last:
        raise UnstableError(f"station {station.name!r}", load / last)


def station_alone(station: Station, load: float) -> tuple[float, float, Array]:
    """Mean number present, mean number waiting, and P(n present) of one station with Poisson arrivals.

    `load` is seconds of work per second. Beyond the last rate r the probabilities are geometric with load / r; their
    sums are closed forms, and nothing is subtracted. Waiting is n - r(n) / r(1), which for servers is n - min(n, m); in
    order of arrival with rates it is n - 1.

    Raises:
        UnstableError: when the load is not below the last rate.
    """
    check_stable(station, load)
    rates = station_rates(station)
    last = len(rates)
    ratio = load / rates[-1]
    weights = np.arange(last + 1) * math.log(load) + log_capacity(rates, last)
    # The last weight includes all beyond it.
    weights[-1] -= math.log1p(-ratio)
    shares = np.exp(weights - log_sum(weights))
    count = np.arange(last + 1)
    waits = (
        np.maximum(count - 1.0, 0.0)
        if serves_one_at_a_time(station)
        else excess(rates, last, float(rates[0]))
    )
    beyond = ratio / (1 - ratio)
    length = shares @ count + shares[-1] * beyond
    waiting = shares @ waits + shares[-1] * beyond
    return float(length), max(float(waiting), 0.0), _listed(shares, ratio)


def _listed(shares: Array, ratio: float) -> Array:
    """Probabilities of 0, 1, ... present from those below the last rate and the geometric rest."""
    tail = float(shares[-1])
    more = 0 if tail <= _LEFT_OUT else math.ceil(math.log(_LEFT_OUT / tail) / math.log(ratio))
    powers = np.arange(min(more, _LISTED_MAX) + 1)
    return np.concatenate([shares[:-1], tail * (1 - ratio) * ratio**powers])


def _poisson(load: float) -> Array:
    most = min(math.ceil(load + 8 * math.sqrt(load) + 30), _LISTED_MAX)
    count = np.arange(most + 1)
    return np.asarray(np.exp(count * math.log(load) - load - gammaln(count + 1.0)))
