"""M/D/1: one server, Poisson arrivals, a service time that is always the same. Exact, with stable quantiles."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammainc, gammaln, xlogy

from waylab.models.elementary.inputs import check_rates
from waylab.models.elementary.mg1 import MG1, PoissonServer
from waylab.models.service import Service

Array = NDArray[np.float64]

# From so many service times on, the exponential tail is exact to all digits: its next term falls by more than
# exp(-2) with each of them.
_EXACT_SERVICES = 40


@dataclass(frozen=True)
class MD1(PoissonServer):
    """The single-server queue with constant service (Crommelin, 1932; Franx, Operations Research Letters 29, 2001).

    Assumes Poisson arrivals at `arrivals_per_s`, first come first served, and `service_s` for every service.

    Raises:
        ModelError: unless the rate and the service time are above zero.
        UnstableError: when as much arrives as can be served.
    """

    arrivals_per_s: float
    service_s: float

    def __post_init__(self) -> None:
        check_rates(self.name, {"arrivals_per_s": self.arrivals_per_s, "service_s": self.service_s})
        self._general  # noqa: B018  (checks that it is stable)

    @property
    def name(self) -> str:
        """Kendall's notation."""
        return "M/D/1"

    @property
    def service_mean_s(self) -> float:
        """The service time."""
        return self.service_s

    @property
    def service_second_moment_s2(self) -> float:
        """The squared service time."""
        return self.service_s**2

    @property
    def waits_probability(self) -> float:
        """Probability that an arrival has to wait, rho."""
        return self.utilisation

    @property
    def waiting_mean_s(self) -> float:
        """Mean waiting time, rho S / (2 (1 - rho)): half of that with exponential service."""
        return self._general.waiting_mean_s

    @property
    def waiting_variance_s2(self) -> float:
        """Variance of the waiting time, W^2 + rho S^2 / (3 (1 - rho))."""
        return self._general.waiting_variance_s2

    @property
    def response_mean_s(self) -> float:
        """Mean response time, waiting plus service."""
        return self._general.response_mean_s

    @property
    def response_variance_s2(self) -> float:
        """Variance of the response time, that of the waiting."""
        return self._general.waiting_variance_s2

    @property
    def in_system_variance(self) -> float:
        """Variance of the number present."""
        return self._general.in_system_variance

    @property
    def queue_length_variance(self) -> float:
        """Variance of the number waiting."""
        return self._general.queue_length_variance

    def response_quantile_s(self, share: float) -> float:
        """Response time that a share does not exceed: the waiting time, and the service."""
        return self.waiting_quantile_s(share) + self.service_s

    @cached_property
    def _general(self) -> MG1:
        return MG1(self.arrivals_per_s, Service.deterministic(float(self.service_s)))

    @cached_property
    def _more_waiting(self) -> Array:
        # Probability of more than n waiting, n = 0.._EXACT_SERVICES, summed from the small end; beyond, the number
        # present falls by the ratio that belongs to the exponential tail of the waiting time.
        present = self._general.probabilities_to(2 * _EXACT_SERVICES)
        ratio = self.arrivals_per_s / (self.arrivals_per_s + self._tail[1])
        beyond = present[-1] * ratio / (1 - ratio)
        return (beyond + np.cumsum(present[:1:-1]))[::-1][: _EXACT_SERVICES + 1]

    @cached_property
    def _tail(self) -> tuple[float, float]:
        # P(W > t) ~ g exp(-d t): with x = d S the positive root of rho (exp(x) - 1) = x, and
        # g = (1 - rho) / (rho exp(x) - 1) (Tijms, A First Course in Stochastic Models, 9.2).
        rho = self.utilisation

        def excess(exponent: float) -> float:
            return exponent / 2 + _log_sinh_ratio(exponent / 2) + math.log(rho)

        high = 1.0
        while excess(high) < 0:
            high *= 2
        low = high / 2
        while excess(low) > 0:
            low /= 2
        exponent = float(brentq(excess, low, high, xtol=1e-15 * low, rtol=1e-14))
        # rho exp(x) - 1 = x + rho - 1, which keeps its digits.
        return (1 - rho) / (exponent - (1 - rho)), exponent / self.service_s

    def _probability(self, present: int) -> float:
        return self._general.probability(present)

    def _waiting_survival(self, time_s: float) -> float:
        services = int(time_s // self.service_s) + 1
        if services > _EXACT_SERVICES:
            factor, rate_per_s = self._tail
            return factor * math.exp(-rate_per_s * time_s)
        # Franx: with (k - 1) S <= t < k S, one waits longer than t if of the arrivals in the next k S - t and those
        # waiting together there are k or more. All terms are positive: nothing is lost in the far tail.
        left = max(0.0, self.arrivals_per_s * (services * self.service_s - time_s))
        counts = np.arange(services)
        weights = np.exp(xlogy(counts, left) - left - gammaln(counts + 1))
        return float(weights @ self._more_waiting[services - 1 - counts] + gammainc(services, left))

    def _response_survival(self, time_s: float) -> float:
        return 1.0 if time_s < self.service_s else self._waiting_survival(time_s - self.service_s)


def _log_sinh_ratio(value: float) -> float:
    """Logarithm of sinh(x) / x, which keeps its digits near 0, where it is a matter of saturation."""
    if value < 0.05:
        square = value * value
        return square / 6 - square**2 / 180 + square**3 / 2835 - square**4 / 37800
    return value + math.log(-math.expm1(-2 * value) / (2 * value))
