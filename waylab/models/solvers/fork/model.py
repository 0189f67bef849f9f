"""A network with forks in numbers: mean work of a request, and response times of forks. Knows no recursion."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waylab.models.network import Network
from waylab.models.solvers.fork.times import harmonic, left_behind, order_statistic_s, synchronisation
from waylab.models.solvers.products import Demands, demands
from waylab.models.solvers.stretch import stretch
from waylab.models.solvers.weights import station_rates
from waylab.models.traffic import traffic

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ForkView:
    """A fork as the chain sees it. `legs` are stations; (C,) arrays are by the class there."""

    legs: tuple[int, ...]
    needed: int
    delays_s: tuple[float, ...]
    visits: Array
    """(C,) per request."""
    leg_share: Array
    """(K,) the share of its legs in the visits to each of its stations."""
    kin: tuple[int, ...]
    """Forks that have a station in common with it, itself included."""

    @property
    def leaves_legs(self) -> bool:
        """Whether a request continues before its last leg is done."""
        return self.needed < len(self.legs)


@dataclass(frozen=True, eq=False)
class ForkModel:
    """A network in numbers, for requests of all classes in their shares."""

    network: Network
    found: Demands
    starts: Array
    """(C,) share of requests, or arrivals per second, that begin in each class."""
    rates: tuple[Array | None, ...]
    """By station; None for a delay."""
    direct_s: Array
    """(K,) work of visits that are not legs, per request or per second."""
    work_s: Array
    """(K,) work, legs included."""
    capacities: Array
    """(K,) the highest speed of a station, in units of one server."""
    alone: Array
    """(K,) the speed of a station with one request."""
    forks: tuple[ForkView, ...]

    @staticmethod
    def of(network: Network) -> "ForkModel":
        """Add up the work of the classes: by their shares of the closed chain, or by their arrivals."""
        found = demands(network)
        described = traffic(network)
        stations = len(network.stations)
        starts = found.shares[0] if network.has_closed else found.open_starts_per_s
        visits = np.einsum("c,ckd->kd", starts, described.visits)
        total = np.einsum("c,ckd->kd", starts, found.visits)
        rates = tuple(None if station.is_delay else station_rates(station) for station in network.stations)
        all_legs = [
            tuple(network.station_names.index(name) for name in fork.branches) for fork in network.forks
        ]
        forks = []
        for index, (fork, legs) in enumerate(zip(network.forks, all_legs, strict=True)):
            own = visits[stations + index]
            share = np.zeros(len(legs))
            for place, station in enumerate(legs):
                share[place] = own.sum() / total[station].sum() if own.any() else 0.0
            kin = tuple(other for other, others in enumerate(all_legs) if set(others) & set(legs))
            delays_s = tuple(fork.send_s * place for place in range(len(legs)))
            forks.append(ForkView(legs, fork.needed, delays_s, own, share, kin))
        return ForkModel(
            network,
            found,
            starts,
            rates,
            (visits[:stations] * found.service_s).sum(axis=1),
            (total * found.service_s).sum(axis=1),
            np.array([math.inf if speeds is None else float(speeds.max()) for speeds in rates]),
            np.array([1.0 if speeds is None else float(speeds[0]) for speeds in rates]),
            tuple(forks),
        )

    def has_left_legs(self, station: int) -> bool:
        """Whether the station serves legs that their request does not wait for."""
        return any(fork.leaves_legs and station in fork.legs for fork in self.forks)

    def others(self, station: int, customers: int) -> int | None:
        """The largest number of others that one of `customers` can find at a station; None for no limit."""
        return None if self.has_left_legs(station) else customers - 1

    def stretches(self, customers: int, found: Array) -> Array:
        """(K,) time of a visit in units of its service, for a request that finds `found` others."""
        return np.array(
            [
                1.0 if rates is None else stretch(rates, self.others(index, customers), float(found[index]))
                for index, rates in enumerate(self.rates)
            ]
        )

    def inside_s(self, fork: ForkView, stretches: Array, forks_s: Sequence[Array]) -> float:
        """Time per request that is spent at a fork's stations, as legs or not."""
        legs = list(fork.legs)
        waits_s = sum(self.forks[other].visits @ forks_s[other] for other in fork.kin)
        return float(self.direct_s[legs] @ stretches[legs] + waits_s)

    def own_legs(self, stretches: Array, forks_s: Sequence[Array], cycle_s: float) -> Array:
        """(K,) mean number of legs left behind by its own earlier requests that a customer finds.

        A leg is left behind with probability u. It is still there when the customer returns with probability R / (R +
        C), C being the time in between, and one cycle later with R / (R + C + R_fork).
        """
        found = np.zeros(len(self.rates))
        for fork, times_s in zip(self.forks, forks_s, strict=True):
            if not fork.leaves_legs or not fork.visits.any():
                continue
            share = fork.visits / fork.visits.sum()
            legs_s = (self.found.service_s[list(fork.legs)] @ share) * stretches[list(fork.legs)]
            round_s = cycle_s / fork.visits.sum()
            away_s = max(0.0, round_s - float(share @ times_s))
            left = left_behind(legs_s, fork.needed, fork.delays_s)
            found[list(fork.legs)] += left * legs_s / (legs_s + away_s) * (legs_s + round_s) / round_s
        return found

    def fork_response_s(self, fork: ForkView, stretches: Array, rho: float) -> Array:
        """(C,) from fork to join, by the class there; 0 without visits."""
        times_s = np.zeros(len(fork.visits))
        branches = len(fork.legs)
        kept = 1.0
        if branches > 1:
            kept = (synchronisation(branches, rho) - 1) / (harmonic(branches) - 1)
        for job_class in np.flatnonzero(fork.visits):
            legs_s = self.found.service_s[fork.legs, job_class] * stretches[list(fork.legs)]
            independent_s = order_statistic_s(
                legs_s.tolist(), fork.needed, fork.delays_s if any(fork.delays_s) else ()
            )
            together_s = np.sort(legs_s + fork.delays_s)[fork.needed - 1]
            times_s[job_class] = together_s + kept * (independent_s - together_s)
        return times_s

    def cycle(self, stretches: Array, rhos: Array) -> tuple[list[Array], float]:
        """Response of each fork, and think time and response of a request."""
        forks_s = [
            self.fork_response_s(fork, stretches, rho) for fork, rho in zip(self.forks, rhos, strict=True)
        ]
        waits_s = sum(fork.visits @ s for fork, s in zip(self.forks, forks_s, strict=True))
        return forks_s, float(self.found.think_s[0] + self.direct_s @ stretches + waits_s)

    def common(self, fork: ForkView, stretches: Array) -> float:
        """Share of the time at a fork's stations that is waiting for its own legs, which arrive together.

        The share of waiting, 1 - S / R, is the utilisation of M/M/1; of several servers it is less.
        """
        waits = 1 - 1 / np.maximum(stretches * self.alone, 1.0)
        return float(fork.leg_share @ waits[list(fork.legs)]) / len(fork.legs)
