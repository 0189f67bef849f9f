"""M/M/m: several equal servers and one queue without a bound."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from waylab.models.elementary.birth_death import BirthDeath, ChainBusyPeriod
from waylab.models.elementary.erlang import erlang_c
from waylab.models.elementary.input_checks import check_rates, check_stable, check_whole
from waylab.models.elementary.waiting import ExponentialWait


@dataclass(frozen=True)
class MMm(ExponentialWait, ChainBusyPeriod):
    """The queue with m servers (Jain, The Art of Computer Systems Performance Analysis, box 31.2).

    Assumes Poisson arrivals at `arrivals_per_s`, first come first served; each of `servers` serves exponentially at
    `services_per_s`.

    Raises:
        ModelError: unless both rates are above zero and there is a server.
        UnstableError: when arrivals reach the service capacity.
    """

    arrivals_per_s: float
    services_per_s: float
    servers: int

    def __post_init__(self) -> None:
        check_rates("M/M/m", {"arrivals_per_s": self.arrivals_per_s, "services_per_s": self.services_per_s})
        check_whole("M/M/m", "servers", self.servers, 1)
        check_stable(self.name, self.utilisation)

    @property
    def name(self) -> str:
        """Kendall's notation."""
        return f"M/M/{self.servers}"

    @property
    def utilisation(self) -> float:
        """Share of time one server is busy, rho = lambda / (m mu)."""
        return self.arrivals_per_s / (self.servers * self.services_per_s)

    @cached_property
    def waits_probability(self) -> float:
        """Probability that an arrival has to wait (Erlang C)."""
        return erlang_c(self.servers, self.arrivals_per_s / self.services_per_s)

    @property
    def busy_mean(self) -> float:
        """Mean number of busy servers, lambda / mu."""
        return self.arrivals_per_s / self.services_per_s

    @property
    def in_system_mean(self) -> float:
        """Mean number in the system, m rho + C rho / (1 - rho)."""
        return self.busy_mean + self.queue_length_mean

    @property
    def in_system_variance(self) -> float:
        """Variance of the number in the system, m rho + rho C ((1 + rho - rho C) / (1 - rho)^2 + m)."""
        rho, chance = self.utilisation, self.waits_probability
        return self.busy_mean * (1 + chance) + rho * chance * (1 + rho - rho * chance) / self._idle**2

    @property
    def queue_length_mean(self) -> float:
        """Mean number waiting, C rho / (1 - rho)."""
        return self.waits_probability * self.utilisation / self._idle

    @property
    def queue_length_variance(self) -> float:
        """Variance of the number waiting, rho C (1 + rho - rho C) / (1 - rho)^2."""
        rho, chance = self.utilisation, self.waits_probability
        return rho * chance * (1 + rho - rho * chance) / self._idle**2

    @property
    def _idle(self) -> float:
        return self._waiting_rate_per_s / (self.servers * self.services_per_s)

    @property
    def _waiting_rate_per_s(self) -> float:
        return self.servers * self.services_per_s - self.arrivals_per_s

    @property
    def _service_rate_per_s(self) -> float:
        return self.services_per_s

    @cached_property
    def _chain(self) -> BirthDeath:
        births = np.full(int(self.servers), float(self.arrivals_per_s))
        deaths = np.arange(1.0, self.servers + 1) * float(self.services_per_s)
        return BirthDeath(births, deaths, self.arrivals_per_s, float(deaths[-1]), self.servers)

    def _probability(self, present: int) -> float:
        return self._chain.probability(present)
