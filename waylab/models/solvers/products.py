"""The common part of all exact solvers of networks: demands by chain as input, results by class as output.

Classes between which customers switch are one chain; its customers bring the mean work of its classes (Bruell and
Balbo, Computational Algorithms for Closed Queueing Networks, 1980). Knows no algorithm.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from waylab.models.errors import ModelError
from waylab.models.network import Network
from waylab.models.result import Distribution, Result
from waylab.models.traffic import Chain, traffic

Array = NDArray[np.float64]
# Features with a product form (Baskett, Chandy, Muntz and Palacios, 1975), besides open and closed classes.
PRODUCT_FORM = frozenset(
    {"several chains", "several classes", "class switching", "delay", "several servers", "rates"}
)


@dataclass(frozen=True)
class Demands:
    """A network in numbers. C classes, K stations, R closed chains."""

    network: Network
    visits: Array
    """(C, K, C) by the class in which a request began, station, class there."""
    service_s: Array
    """(K, C) mean of one visit; 0 where a class is not served."""
    chains: tuple[Chain, ...]
    """The closed chains."""
    shares: Array
    """(R, C) share of a chain's requests that begin in each class."""
    populations: tuple[int, ...]
    think_s: Array
    """(R,)"""
    chain_visits: Array
    """(R, K, C) visits of a request of the chain."""
    open_starts_per_s: Array
    """(C,) arrivals from outside."""

    @property
    def demands_s(self) -> Array:
        """(R, K) seconds of work that a request of a chain brings to a station."""
        return np.asarray(np.einsum("rkc,kc->rk", self.chain_visits, self.service_s))

    @property
    def open_flow_per_s(self) -> Array:
        """(K, C) visits per second of requests that came from outside."""
        return np.asarray(np.einsum("c,ckd->kd", self.open_starts_per_s, self.visits))

    @property
    def delays(self) -> NDArray[np.bool_]:
        """(K,) whether a station is a delay."""
        return np.array([station.is_delay for station in self.network.stations])

    def shares_of_work(self) -> Array:
        """(R, K, C) share of each class in the work that a chain brings to a station; 0 where it brings none."""
        work = self.chain_visits * self.service_s
        total = work.sum(axis=2, keepdims=True)
        return np.asarray(np.divide(work, total, out=np.zeros_like(work), where=total > 0))


def demands(network: Network) -> Demands:
    """Solve the traffic equations and add up the work of each chain.

    Raises:
        ModelError: when a chain has no work at all, so that its throughput would be infinite.
    """
    described = traffic(network)
    visits = described.station_visits
    service_s = np.array(
        [
            [station.service[name].mean_s if name in station.service else 0.0 for name in network.class_names]
            for station in network.stations
        ]
    )
    closed = tuple(chain for chain in described.chains if chain.population)
    shares = np.zeros((len(closed), len(network.classes)))
    for index, chain in enumerate(closed):
        shares[index, list(chain.classes)] = chain.shares
    think_s = np.array([job_class.think.mean_s for job_class in network.classes])
    result = Demands(
        network=network,
        visits=visits,
        service_s=service_s,
        chains=closed,
        shares=shares,
        populations=tuple(chain.population for chain in closed),
        think_s=shares @ think_s,
        chain_visits=np.einsum("rc,ckd->rkd", shares, visits),
        open_starts_per_s=np.array([job_class.arrivals_per_s for job_class in network.classes]),
    )
    for chain, cycle_s in zip(closed, result.demands_s.sum(axis=1) + result.think_s, strict=True):
        if cycle_s == 0:
            name = network.class_names[chain.classes[0]]
            raise ModelError(
                f"class {name!r}", "has no service and no think time: its throughput would be infinite"
            )
    return result


@dataclass
class Steady:
    """Numbers of a solver, before they become a result; (K, C) by station and class there."""

    starts_per_s: Array
    """(C,)"""
    flow_per_s: Array
    queue_length: Array
    waiting: Array
    """Mean number of customers in excess of a system without contention."""
    present: dict[str, Array] = field(default_factory=dict)
    occupied: dict[str, float] = field(default_factory=dict)
    """Share of time with any request at a station; needed for stations with rates."""


def closed_part(found: Demands, throughput_per_s: Array, queue_length: Array, waiting: Array) -> Steady:
    """Spread a chain's throughput (R,), queue lengths and waiting (R, K) over its classes.

    At a product-form station, the class of each of a chain's customers is random, in proportion to the work of the
    class.
    """
    work = found.shares_of_work()
    return Steady(
        starts_per_s=throughput_per_s @ found.shares,
        flow_per_s=np.einsum("r,rkc->kc", throughput_per_s, found.chain_visits),
        queue_length=np.einsum("rk,rkc->kc", queue_length, work),
        waiting=np.einsum("rk,rkc->kc", waiting, work),
    )


def result(
    found: Demands, method: str, steady: Steady, quantiles: Mapping[str, Distribution] | None = None
) -> Result:
    """Turn mean numbers into times by Little's law, and add the visits up to the response of each class."""
    network, flow = found.network, steady.flow_per_s
    comes = flow > 0
    response_s = np.divide(steady.queue_length, flow, out=np.full_like(flow, np.nan), where=comes)
    waiting_s = np.divide(steady.waiting, flow, out=np.full_like(flow, np.nan), where=comes)
    whole_s = np.einsum("ckd,kd->c", found.visits, np.nan_to_num(response_s))
    return Result(
        network=network,
        method=method,
        kind="exact",
        throughput_per_s=steady.starts_per_s,
        response_s=np.where(steady.starts_per_s > 0, whole_s, np.nan),
        station_throughput_per_s=flow,
        station_response_s=response_s,
        station_waiting_s=waiting_s,
        queue_length=steady.queue_length,
        utilisation=_utilisation(found, steady),
        quantiles=quantiles or {},
        present_probability=steady.present,
    )


def _utilisation(found: Demands, steady: Steady) -> Array:
    """Busy share of the servers; with rates, of the time with a request present; divided by the work of the classes."""
    work = steady.flow_per_s * found.service_s
    busy = np.zeros_like(work)
    for index, station in enumerate(found.network.stations):
        if station.rates:
            total = work[index].sum()
            busy[index] = work[index] / total * steady.occupied[station.name] if total > 0 else 0.0
        elif station.servers is not None:
            busy[index] = work[index] / station.servers
    return busy
