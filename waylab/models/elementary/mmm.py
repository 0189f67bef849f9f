"""M/M/m and M/M/inf: several or endless equal servers and one queue without a bound."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from waylab.models.elementary.birth_death import BirthDeath, ChainBusyPeriod
from waylab.models.elementary.erlang import erlang_c
from waylab.models.elementary.inputs import check_rates, check_stable, check_whole
from waylab.models.elementary.waiting import ExponentialWait
from waylab.models.uniformisation import check_share


@dataclass(frozen=True)
class MMm(ExponentialWait, ChainBusyPeriod):
    """The queue with m servers (Jain, The Art of Computer Systems Performance Analysis, box 31.2).

    Assumes Poisson arrivals at `arrivals_per_s`, first come first served; each of `servers` serves exponentially at
    `services_per_s`.

    Raises:
        ModelError: unless both rates are above zero and there is a server.
        UnstableError: when as much arrives as can be served.
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
    def all_busy_mean_s(self) -> float:
        """Mean time for which all servers stay busy, from when the last one is taken: 1 / (m mu - lambda)."""
        return 1 / self._waiting_rate_per_s

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
        deaths = np.arange(1, self.servers + 1) * self.services_per_s
        return BirthDeath(births, deaths, self.arrivals_per_s, float(deaths[-1]), self.servers)

    def _probability(self, present: int) -> float:
        return self._chain.probability(present)


@dataclass(frozen=True)
class MMInfinite(ChainBusyPeriod):
    """As many servers as arrivals: nobody waits, and the number present is Poisson (Kleinrock, vol. 1, 3.4).

    Assumes Poisson arrivals at `arrivals_per_s` and exponential service at `services_per_s`. The number present
    would be the same for any distribution of service of this mean; the busy period would not.

    Raises:
        ModelError: unless both rates are above zero.
    """

    arrivals_per_s: float
    services_per_s: float

    def __post_init__(self) -> None:
        check_rates(self.name, {"arrivals_per_s": self.arrivals_per_s, "services_per_s": self.services_per_s})

    @property
    def name(self) -> str:
        """Kendall's notation."""
        return "M/M/inf"

    @property
    def utilisation(self) -> float:
        """Share of time one server is busy: of endless servers, none."""
        return 0.0

    @property
    def busy_mean(self) -> float:
        """Mean number of busy servers, lambda / mu."""
        return self.arrivals_per_s / self.services_per_s

    @property
    def waits_probability(self) -> float:
        """Nobody waits."""
        return 0.0

    @property
    def waiting_mean_s(self) -> float:
        """Nobody waits."""
        return 0.0

    @property
    def waiting_variance_s2(self) -> float:
        """Nobody waits."""
        return 0.0

    @property
    def response_mean_s(self) -> float:
        """Mean response time, that of the service."""
        return 1 / self.services_per_s

    @property
    def response_variance_s2(self) -> float:
        """Variance of the response time, that of the service."""
        return self.response_mean_s**2

    @property
    def in_system_variance(self) -> float:
        """Variance of the number present: as large as the mean."""
        return self.busy_mean

    @property
    def queue_length_variance(self) -> float:
        """Nobody waits."""
        return 0.0

    def response_quantile_s(self, share: float) -> float:
        """Response time that a share does not exceed: an exponential one."""
        check_share(share)
        return -math.log1p(-share) / self.services_per_s

    @cached_property
    def _chain(self) -> BirthDeath:
        # Cut where less than 1e-30 is beyond: the tail is there for the form.
        last = int(self.busy_mean + 12 * math.sqrt(self.busy_mean) + 60)
        deaths = np.arange(1, last + 1) * self.services_per_s
        births = np.full(last, float(self.arrivals_per_s))
        return BirthDeath(births, deaths, self.arrivals_per_s, float(deaths[-1]), last)

    def _probability(self, present: int) -> float:
        offered = self.busy_mean
        return math.exp(present * math.log(offered) - offered - math.lgamma(present + 1))

    def _waiting_survival(self, time_s: float) -> float:
        return 0.0

    def _response_survival(self, time_s: float) -> float:
        return math.exp(-self.services_per_s * time_s)
