"""M/M/1/K and M/M/m/K: room for K requests; further arrivals are lost. K = m is Erlang's loss system."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from waylab.models.elementary.birth_death import BirthDeath, ChainBusyPeriod
from waylab.models.elementary.input_checks import check_rates, check_whole
from waylab.models.elementary.waiting import Line
from waylab.models.errors import ModelError

Array = NDArray[np.float64]


class FiniteRoom(ChainBusyPeriod):
    """The common part of M/M/1/K and M/M/m/K."""

    arrivals_per_s: float
    services_per_s: float
    servers: int
    capacity: int

    def __post_init__(self) -> None:
        where = "M/M/m/K"
        check_rates(where, {"arrivals_per_s": self.arrivals_per_s, "services_per_s": self.services_per_s})
        check_whole(where, "servers", self.servers, 1)
        check_whole(where, "capacity", self.capacity, 1)
        if self.capacity < self.servers:
            raise ModelError(
                f"{where}: capacity",
                f"includes requests in service: at least {self.servers}, not {self.capacity}",
            )

    @property
    def name(self) -> str:
        """Kendall's notation."""
        return f"M/M/{self.servers}/{self.capacity}"

    @property
    def probabilities(self) -> Array:
        """Probability of n = 0..K present, shape (K + 1,)."""
        return self._chain.probabilities

    @property
    def loss_probability(self) -> float:
        """Share of the arrivals that find no room, p(K)."""
        return float(self.probabilities[-1])

    @property
    def lost_per_s(self) -> float:
        """Lost arrivals per second."""
        return self.arrivals_per_s * self.loss_probability

    @property
    def throughput_per_s(self) -> float:
        """Accepted arrivals per second, lambda (1 - p(K))."""
        return self._chain.throughput_per_s

    @property
    def busy_mean(self) -> float:
        """Mean number of busy servers."""
        return self._chain.busy_mean

    @property
    def utilisation(self) -> float:
        """Share of time that one server is busy with accepted requests."""
        return self._chain.utilisation

    @property
    def waits_probability(self) -> float:
        """Probability that an accepted request waits."""
        return self._line.waits_probability

    @property
    def waiting_mean_s(self) -> float:
        """Mean waiting time, Lq over the accepted arrivals."""
        return self._chain.waiting_mean_s

    @property
    def waiting_variance_s2(self) -> float:
        """Variance of the waiting time."""
        return self._line.waiting_variance_s2

    @property
    def response_mean_s(self) -> float:
        """Mean response time, waiting plus service."""
        return self.waiting_mean_s + 1 / self.services_per_s

    @property
    def response_variance_s2(self) -> float:
        """Variance of the response time: waiting and service are independent."""
        return self._line.response_variance_s2

    @property
    def in_system_variance(self) -> float:
        """Variance of the number present."""
        return self._chain.in_system_variance

    @property
    def queue_length_variance(self) -> float:
        """Variance of the number waiting."""
        return self._chain.queue_length_variance

    @cached_property
    def _chain(self) -> BirthDeath:
        births = np.full(int(self.capacity), float(self.arrivals_per_s))
        deaths = np.minimum(np.arange(1, self.capacity + 1), self.servers) * self.services_per_s
        return BirthDeath(births, deaths, servers=self.servers)

    @cached_property
    def _line(self) -> Line:
        # Poisson arrivals see the average over time; accepted ones see it conditioned on the system not being full.
        seen = self.probabilities[:-1] / self.probabilities[:-1].sum()
        ahead = np.concatenate(([seen[: self.servers].sum()], seen[self.servers :]))
        return Line(ahead, self.servers * self.services_per_s, self.services_per_s)

    def _probability(self, present: int) -> float:
        return self._chain.probability(present)

    def _waiting_survival(self, time_s: float) -> float:
        return self._line.waiting_survival(time_s)

    def _response_survival(self, time_s: float) -> float:
        return self._line.response_survival(time_s)


@dataclass(frozen=True)
class MMmK(FiniteRoom):
    """Room for `capacity` requests, including those at the `servers` servers (Gross and Harris, 2.5).

    Assumes Poisson arrivals at `arrivals_per_s`, exponential service at `services_per_s` by each server, first come
    first served. Waiting and response times are those of accepted requests: a request that finds n present waits for
    n - m + 1 departures, an Erlang time. The load may be above 1. With `capacity` = `servers` no request waits
    (Erlang B).

    Raises:
        ModelError: unless the rates are above zero and capacity >= servers >= 1.
    """

    arrivals_per_s: float
    services_per_s: float
    servers: int
    capacity: int


@dataclass(frozen=True)
class MM1K(FiniteRoom):
    """Room for `capacity` requests, including the one in service (Gross and Harris, 2.5); see MMmK.

    Raises:
        ModelError: unless the rates are above zero and capacity >= 1.
    """

    arrivals_per_s: float
    services_per_s: float
    capacity: int

    @property
    def servers(self) -> int:  # type: ignore[override]
        """One."""
        return 1
