"""M/M/1: one server, Poisson arrivals, exponential service, first come first served, unlimited queue."""

import math
from dataclasses import dataclass

from waylab.models.elementary.input_checks import check_rates, check_stable
from waylab.models.elementary.queue import Queue
from waylab.models.uniformisation import check_share


@dataclass(frozen=True)
class MM1(Queue):
    """The single-server queue (Jain, The Art of Computer Systems Performance Analysis, box 31.1).

    Assumes Poisson arrivals at `arrivals_per_s`, exponential service at `services_per_s`, both independent.

    Raises:
        ModelError: unless both rates are above zero.
        UnstableError: when arrivals reach the service capacity.
    """

    arrivals_per_s: float
    services_per_s: float

    def __post_init__(self) -> None:
        check_rates(self.name, {"arrivals_per_s": self.arrivals_per_s, "services_per_s": self.services_per_s})
        check_stable(self.name, self.utilisation)

    @property
    def name(self) -> str:
        """Kendall's notation."""
        return "M/M/1"

    @property
    def utilisation(self) -> float:
        """Share of time the server is busy, rho = lambda / mu."""
        return self.arrivals_per_s / self.services_per_s

    @property
    def waits_probability(self) -> float:
        """Probability that an arrival has to wait, rho: Poisson arrivals see the average over time."""
        return self.utilisation

    @property
    def response_mean_s(self) -> float:
        """Mean response time, 1 / (mu - lambda)."""
        return 1 / (self.services_per_s - self.arrivals_per_s)

    @property
    def response_variance_s2(self) -> float:
        """Variance of the response time, 1 / (mu - lambda)^2."""
        return self.response_mean_s**2

    @property
    def waiting_mean_s(self) -> float:
        """Mean waiting time, rho / (mu - lambda)."""
        return self.utilisation * self.response_mean_s

    @property
    def waiting_variance_s2(self) -> float:
        """Variance of the waiting time, (2 - rho) rho / (mu - lambda)^2."""
        return (2 - self.utilisation) * self.utilisation * self.response_mean_s**2

    @property
    def in_system_mean(self) -> float:
        """Mean number in the system, rho / (1 - rho)."""
        return self.utilisation / self._idle

    @property
    def in_system_variance(self) -> float:
        """Variance of the number in the system, rho / (1 - rho)^2."""
        return self.utilisation / self._idle**2

    @property
    def queue_length_mean(self) -> float:
        """Mean number waiting, rho^2 / (1 - rho)."""
        return self.utilisation**2 / self._idle

    @property
    def queue_length_variance(self) -> float:
        """Variance of the number waiting, rho^2 (1 + rho - rho^2) / (1 - rho)^2."""
        rho = self.utilisation
        return rho**2 * (1 + rho - rho**2) / self._idle**2

    def response_quantile_s(self, share: float) -> float:
        """Quantile of the response time, which is exponential."""
        check_share(share)
        return -math.log1p(-share) * self.response_mean_s

    def waiting_quantile_s(self, share: float) -> float:
        """Quantile of the waiting time, from P(W > t) = rho exp(-(mu - lambda) t)."""
        check_share(share)
        return max(0.0, (math.log(self.utilisation) - math.log1p(-share)) * self.response_mean_s)

    @property
    def busy_period_mean_s(self) -> float:
        """Mean length of a busy period, 1 / (mu - lambda)."""
        return self.response_mean_s

    @property
    def busy_period_variance_s2(self) -> float:
        """Variance of a busy period, (1 + rho) / (mu^2 (1 - rho)^3); common tables misprint it."""
        return (1 + self.utilisation) / (self.services_per_s**2 * self._idle**3)

    @property
    def busy_period_jobs_mean(self) -> float:
        """Mean number served in a busy period, 1 / (1 - rho)."""
        return 1 / self._idle

    @property
    def busy_period_jobs_variance(self) -> float:
        """Variance of the number served in a busy period, rho (1 + rho) / (1 - rho)^3."""
        return self.utilisation * (1 + self.utilisation) / self._idle**3

    @property
    def _idle(self) -> float:
        # 1 - rho, with all its digits near saturation.
        return (self.services_per_s - self.arrivals_per_s) / self.services_per_s

    def _probability(self, present: int) -> float:
        return self._idle * self.utilisation**present

    def _waiting_survival(self, time_s: float) -> float:
        return self.utilisation * math.exp(-time_s / self.response_mean_s)

    def _response_survival(self, time_s: float) -> float:
        return math.exp(-time_s / self.response_mean_s)
