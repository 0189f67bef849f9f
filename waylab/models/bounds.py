"""Bounds of a network from its demands alone, without solving a queue.

For closed chains: lower and upper bounds of throughput and response time. For open classes: the load at saturation.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waylab.models.description import Station
from waylab.models.errors import AssumptionError
from waylab.models.features import require
from waylab.models.network import Network
from waylab.models.solvers.products import Demands, demands

Array = NDArray[np.float64]
_CLOSED = {
    "closed",
    "several chains",
    "several classes",
    "class switching",
    "delay",
    "several servers",
    "rates",
}
_ONE_CHAIN = {"closed", "several classes", "class switching", "delay"}


@dataclass(frozen=True, eq=False)
class Bounds:
    """Lower and upper bounds of throughput per second and response time in seconds of each closed chain, shape (R,).

    `knee_customers` is N* = (D + Z) / Dmax of a single chain, where the two asymptotes of its throughput meet.
    """

    name: str
    source: str
    throughput_lower_per_s: Array
    throughput_upper_per_s: Array
    response_lower_s: Array
    response_upper_s: Array
    knee_customers: float | None = None


@dataclass(frozen=True)
class Limit:
    """The highest throughput that one station allows, for all classes in their mix, and the demand of a request."""

    station: str
    demand_s: float
    """Seconds of work of a mean request over the highest speed of the station."""
    throughput_per_s: float


def asymptotic_bounds(network: Network) -> Bounds:
    """Bound closed chains by the busiest station, and by customers who never or always queue for each other.

    X <= min(1 / Dmax, N / (Z + D)); X >= N / (Z + sum of D with all customers ahead). A station's Dmax is its demand
    over its highest speed. Holds for any service time distribution and, for the upper bound, any discipline
    (Denning and Buzen, 1978; Lazowska and others, Quantitative System Performance, 1984, chapter 5; several chains:
    Kerola, 1986).

    Raises:
        AssumptionError: for open classes, priorities, full stations, batches, forks and pools.
    """
    require(network, "asymptotic bounds", _CLOSED | {"general service", "class-dependent service"})
    found = demands(network)
    populations = np.array(found.populations, dtype=float)
    fastest = np.array([_highest_rate(station) for station in network.stations])
    alone_s, crowded_s = np.zeros(len(populations)), np.zeros(len(populations))
    for index, station in enumerate(network.stations):
        visiting = int(populations[found.demands_s[:, index] > 0].sum())
        slowest, quickest = _slowdown(station, visiting)
        alone_s += quickest * found.demands_s[:, index]
        crowded_s += slowest * _longest_s(found, index)
    with np.errstate(divide="ignore"):
        busiest = np.min(np.where(found.demands_s > 0, fastest / found.demands_s, np.inf), axis=1)
    upper = np.minimum(busiest, populations / (found.think_s + alone_s))
    lower = populations / (found.think_s + crowded_s)
    knee = None
    if len(populations) == 1 and np.isfinite(busiest[0]):
        knee = float((found.think_s[0] + alone_s[0]) * busiest[0])
    return _bounds("asymptotic", "Denning and Buzen 1978", found, lower, upper, knee)


def balanced_job_bounds(network: Network) -> Bounds:
    """Bound one closed chain of single servers by networks whose stations all have the same demand.

    N / (D + Z + (N - 1) Dmax / (1 + Z / (N D))) <= X <= min(1 / Dmax, N / (D + Z + (N - 1) Dmean / (1 + Z / D))), Dmean
    over the queues; delay stations count as think time. Assumes a product form (Zahorjan, Sevcik, Eager and Galler,
    Balanced job bound analysis of queueing networks, CACM 25, 1982; Lazowska and others, 5.4).

    Raises:
        AssumptionError: for several servers, rates, several chains, open classes and features without a product form.
    """
    found, queues_s, think_s = _single("balanced job bounds", network)
    if not len(queues_s):
        return asymptotic_bounds(network)
    clients, total, largest = found.populations[0], queues_s.sum(), queues_s.max()
    upper = min(
        1 / largest, clients / (total + think_s + (clients - 1) * queues_s.mean() / (1 + think_s / total))
    )
    lower = clients / (total + think_s + (clients - 1) * largest / (1 + think_s / (clients * total)))
    knee = float((total + think_s) / largest)
    source = "Zahorjan, Sevcik, Eager and Galler 1982"
    return _bounds("balanced job", source, found, np.array([lower]), np.array([upper]), knee)


def geometric_bounds(network: Network) -> Bounds:
    """Bound one closed chain of single servers by queue lengths as geometric sums.

    Tighter than balanced job bounds, especially with several stations that are nearly as busy as the bottleneck.
    Assumes a product form (Casale, Muntz and Serazzi, Geometric bounds, IEEE Transactions on Computers 57, 2008,
    equations 8, 13; the square-root form with think time); the throughput of one customer fewer comes from proportional
    bounds.

    Raises:
        AssumptionError: as balanced_job_bounds.
    """
    found, queues_s, think_s = _single("geometric bounds", network)
    if not len(queues_s):
        return asymptotic_bounds(network)
    clients, total = found.populations[0], queues_s.sum()
    least, most = _proportional(queues_s, think_s, clients - 1)
    largest = queues_s.max()
    low_queues, high_queues = _geometric_queues(queues_s, think_s, clients - 1, least, most)
    slack_s = think_s + total + largest * (clients - 1)
    bounds = []
    for queues, waiting in ((low_queues, clients - 1), (high_queues, clients)):
        # The smaller root of a quadratic equation in X; without think time it is linear.
        size_s = slack_s - float((largest - queues_s) @ queues)
        root_s = np.sqrt(max(0.0, size_s**2 - 4 * think_s * largest * waiting))
        bounds.append(2 * clients / (size_s + root_s))
    lower, upper = bounds
    source = "Casale, Muntz and Serazzi 2008"
    knee = float((total + think_s) / largest)
    upper = min(upper, 1 / largest)
    return _bounds("geometric", source, found, np.array([lower]), np.array([upper]), knee)


def bottlenecks(network: Network) -> list[Limit]:
    """List the stations by the throughput that they allow, the lowest first, without delays.

    The mix of classes is that of the arrivals, or of the chains' populations. Works for any network; forks and pools
    count by the work that they bring to stations.
    """
    found = demands(network)
    starts = found.open_starts_per_s + np.array(found.populations, dtype=float) @ found.shares
    work_s = np.einsum("c,ckd,kd->k", starts / starts.sum(), found.visits, found.service_s)
    limits = [
        Limit(station.name, float(work_s[index] / rate), float(rate / work_s[index]))
        for index, station in enumerate(network.stations)
        if np.isfinite(rate := _highest_rate(station)) and work_s[index] > 0
    ]
    return sorted(limits, key=lambda limit: limit.throughput_per_s)


def saturation_factor(network: Network) -> float:
    """Factor by which all arrivals of an open network can grow before the first station is always busy.

    Raises:
        AssumptionError: for closed classes, or when every station is a delay.
    """
    if network.has_closed:
        raise AssumptionError(
            "saturation", "that all requests arrive from outside", "there are closed classes"
        )
    limits = bottlenecks(network)
    if not limits:
        raise AssumptionError("saturation", "that some station is a queue", "every station is a delay")
    arrivals_per_s = sum(job_class.arrivals_per_s for job_class in network.classes)
    return limits[0].throughput_per_s / arrivals_per_s


def _bounds(name: str, source: str, found: Demands, lower: Array, upper: Array, knee: float | None) -> Bounds:
    populations = np.array(found.populations, dtype=float)
    return Bounds(
        name=name,
        source=source,
        throughput_lower_per_s=np.asarray(lower),
        throughput_upper_per_s=np.asarray(upper),
        response_lower_s=np.maximum(populations / upper - found.think_s, 0.0),
        response_upper_s=populations / lower - found.think_s,
        knee_customers=knee,
    )


def _single(name: str, network: Network) -> tuple[Demands, Array, float]:
    """Demands at queues and the time elsewhere, of a network of one chain and single servers."""
    require(network, name, _ONE_CHAIN)
    found = demands(network)
    demands_s = found.demands_s[0]
    queues_s = demands_s[~found.delays & (demands_s > 0)]
    return found, queues_s, float(found.think_s[0] + demands_s[found.delays].sum())


def _proportional(queues_s: Array, think_s: float, clients: int) -> tuple[float, float]:
    """Bounds of the throughput of `clients`, from queues in proportion to the demands (Hsieh and Lam, 1987)."""
    total, largest = queues_s.sum(), queues_s.max()
    ahead_s = (clients - 1) * float(queues_s @ queues_s) / total / (1 + think_s / total)
    upper = min(1 / largest, clients / (total + think_s + ahead_s)) if clients else 0.0
    return clients / (think_s + clients * total) if clients else 0.0, float(upper)


def _geometric_queues(
    queues_s: Array, think_s: float, clients: int, least: float, most: float
) -> tuple[Array, Array]:
    """Bounds of the mean number at each queue, for `least` <= throughput <= `most`."""
    largest = queues_s.max()
    other = queues_s < largest
    low, high = np.zeros_like(queues_s), np.zeros_like(queues_s)
    share = queues_s[other] * clients / (think_s + queues_s.sum() + largest * clients)
    low[other] = _geometric_sum(share, clients)
    high[other] = _geometric_sum(queues_s[other] * most, clients)
    alike = int((~other).sum())
    low[~other] = (clients - think_s * most - high[other].sum()) / alike
    high[~other] = (clients - think_s * least - low[other].sum()) / alike
    return low, high


def _geometric_sum(ratio: Array, count: int) -> Array:
    """Sum of ratio^1 .. ratio^count, for ratios of at most 1."""
    near = np.isclose(ratio, 1.0, rtol=0, atol=1e-9)
    safe = np.where(near, 0.5, ratio)
    return np.where(near, float(count), safe * (1 - safe**count) / (1 - safe))


def _highest_rate(station: Station) -> float:
    if station.rates:
        return max(station.rates)
    return np.inf if station.servers is None else float(station.servers)


def _slowdown(station: Station, customers: int) -> tuple[float, float]:
    """Time of a visit in units of its service with all customers present, and in the best case."""
    if station.is_delay:
        return 1.0, 1.0
    counts = range(1, max(customers, 1) + 1) if station.rates else (1, max(customers, 1))
    factors = [count / station.rate(count) for count in counts]
    return max(factors), min(factors)


def _longest_s(found: Demands, index: int) -> Array:
    """Demand of each chain at a station, (R,), if every service there were as long as the longest.

    With first come first served, a request waits for services of others, which may be longer than its own.
    """
    if found.delays[index] or found.network.stations[index].discipline == "ps":
        return np.asarray(found.demands_s[:, index])
    return np.asarray(found.chain_visits[:, index, :].sum(axis=1) * found.service_s[index].max())
