"""M/M/1: one server, Poisson arrivals, exponential service, first come first served, unlimited queue."""

import math
from dataclasses import dataclass


class UnstableError(ValueError):
    """More arrives than can be served: the queue has no steady state, so there is nothing to predict."""

    def __init__(self, model: str, utilisation: float) -> None:
        super().__init__(f"{model} is unstable: utilisation {utilisation:.4g} is not below 1")
        self.utilisation = utilisation


@dataclass(frozen=True)
class MM1:
    """The single-server queue (Jain, The Art of Computer Systems Performance Analysis, box 31.1).

    Assumes Poisson arrivals at `arrivals_per_s`, exponential service at `services_per_s`, both independent.
    """

    arrivals_per_s: float
    services_per_s: float

    def __post_init__(self) -> None:
        if not (self.arrivals_per_s > 0 and self.services_per_s > 0):
            raise ValueError("M/M/1 needs positive rates")
        if self.utilisation >= 1:
            raise UnstableError("M/M/1", self.utilisation)

    @property
    def utilisation(self) -> float:
        """Share of time the server is busy, rho = lambda / mu."""
        return self.arrivals_per_s / self.services_per_s

    @property
    def response_mean_s(self) -> float:
        """Mean response time, 1 / (mu - lambda)."""
        return 1 / (self.services_per_s - self.arrivals_per_s)

    @property
    def waiting_mean_s(self) -> float:
        """Mean waiting time, rho / (mu - lambda)."""
        return self.utilisation * self.response_mean_s

    @property
    def in_system_mean(self) -> float:
        """Mean number in the system, rho / (1 - rho)."""
        return self.utilisation / (1 - self.utilisation)

    @property
    def queue_length_mean(self) -> float:
        """Mean number waiting, rho^2 / (1 - rho)."""
        return self.utilisation**2 / (1 - self.utilisation)

    def response_quantile_s(self, share: float) -> float:
        """Response time that a share of the requests does not exceed; the response time is exponential."""
        return -math.log1p(-share) * self.response_mean_s

    def waiting_quantile_s(self, share: float) -> float:
        """Waiting time that a share does not exceed: P(W > t) = rho exp(-(mu - lambda) t)."""
        return max(0.0, math.log(self.utilisation / (1 - share)) * self.response_mean_s)

    @property
    def busy_period_mean_s(self) -> float:
        """Mean length of a busy period, 1 / (mu - lambda)."""
        return self.response_mean_s

    @property
    def busy_period_variance_s2(self) -> float:
        """Variance of a busy period, (1 + rho) / (mu^2 (1 - rho)^3); common tables misprint it."""
        rho = self.utilisation
        return (1 + rho) / (self.services_per_s**2 * (1 - rho) ** 3)
