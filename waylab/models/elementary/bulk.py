"""Bulk service: one server that serves several jobs at a time, as a proxy that coalesces requests does."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq

from waylab.models.elementary.input_checks import check_rates, check_stable, check_whole
from waylab.models.elementary.waiting import ExponentialWait


def characteristic_exponent(arrivals_per_s: float, services_per_s: float, batch: int) -> float:
    """Solve mu r^(b+1) - (lambda + mu) r + lambda = 0 for the root r = exp(-s) between 0 and 1; returns s.

    The factor 1 - r is divided out, which leaves r + r^2 + ... + r^b = lambda / mu; the sum is
    (1 - exp(-s b)) / (exp(s) - 1): one root, and no cancellation near r = 1 (Gross and Harris, 3.2).
    """
    offered = arrivals_per_s / services_per_s

    def excess(exponent: float) -> float:
        # exp(s) - 1 overflows for r close to 0; its inverse does not.
        return (
            math.log(-math.expm1(-exponent * batch) / -math.expm1(-exponent)) - exponent - math.log(offered)
        )

    high = 1.0
    while excess(high) > 0:
        high *= 2
    low = high / 2
    while excess(low) < 0:
        low /= 2
    return float(brentq(excess, low, high, xtol=1e-15 * low, rtol=1e-14))


@dataclass(frozen=True)
class BulkService(ExponentialWait):
    """One server takes up to `batch` waiting jobs at once and serves them in one exponential time.

    Assumes Poisson arrivals at `arrivals_per_s`, first come first served, and services that take an exponential time at
    `services_per_s` independent of the batch size. Jobs that arrive during a service wait for the next one (Neuts,
    1967, with a batch of at least one; Medhi, Stochastic Models in Queueing Theory, 4.2). The number waiting is
    geometric in the root r of the characteristic equation. A job that waits does so for an exponential time of rate mu
    (1 - r^b).

    Raises:
        ModelError: unless rates are above zero and batch >= 1.
        UnstableError: when more jobs arrive than full batches can carry.
    """

    arrivals_per_s: float
    services_per_s: float
    batch: int

    def __post_init__(self) -> None:
        where = "M/M[b]/1"
        check_rates(where, {"arrivals_per_s": self.arrivals_per_s, "services_per_s": self.services_per_s})
        check_whole(where, "batch", self.batch, 1)
        check_stable(self.name, self.arrivals_per_s / (self.batch * self.services_per_s))

    @property
    def name(self) -> str:
        """Kendall's notation, with the largest batch."""
        return f"M/M[{self.batch}]/1"

    @property
    def batch_mean(self) -> float:
        """Mean batch size: jobs per second over services per second."""
        return self.arrivals_per_s / (self.services_per_s * self.utilisation)

    @cached_property
    def utilisation(self) -> float:
        """Share of time the server is busy, lambda / (lambda + mu (1 - r))."""
        # 1 - r, with all its digits near saturation.
        apart = -math.expm1(-self._exponent)
        return self.arrivals_per_s / (self.arrivals_per_s + self.services_per_s * apart)

    @property
    def busy_mean(self) -> float:
        """Mean number of busy servers; the mean number in service is lambda / mu."""
        return self.utilisation

    @property
    def waits_probability(self) -> float:
        """Probability that an arrival waits: the server is busy."""
        return self.utilisation

    @property
    def in_system_variance(self) -> float:
        """Variance of the number present, L + lambda^2 Var R (the distributional form of Little's law)."""
        return self.in_system_mean + self.arrivals_per_s**2 * self.response_variance_s2

    @property
    def queue_length_variance(self) -> float:
        """Variance of the number waiting, Lq + lambda^2 Var W."""
        return self.queue_length_mean + self.arrivals_per_s**2 * self.waiting_variance_s2

    @property
    def _waiting_rate_per_s(self) -> float:
        return -self.services_per_s * math.expm1(-self.batch * self._exponent)

    @property
    def _service_rate_per_s(self) -> float:
        return self.services_per_s

    @cached_property
    def _exponent(self) -> float:
        return characteristic_exponent(self.arrivals_per_s, self.services_per_s, self.batch)

    def _probability(self, present: int) -> float:
        # The number present equals the number of arrivals during a response: geometric in q during the service, and
        # geometric in r during the waiting, if any.
        during = self.arrivals_per_s / (self.arrivals_per_s + self.services_per_s)
        rate = self._waiting_rate_per_s
        before = self.arrivals_per_s / (self.arrivals_per_s + rate)
        counts = np.arange(present + 1)
        both = float(np.sum(before**counts * during ** (present - counts)))
        waits = self.waits_probability
        return (1 - during) * ((1 - waits) * during**present + waits * (1 - before) * both)
