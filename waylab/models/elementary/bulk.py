"""Queues where jobs are served several at a time, or arrive so: coalescing, and what it costs and saves."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq

from waylab.models.elementary.inputs import check_at_least_zero, check_rates, check_stable, check_whole
from waylab.models.elementary.queue import Queue
from waylab.models.elementary.waiting import ExponentialWait
from waylab.models.errors import ModelError


def characteristic_exponent(arrivals_per_s: float, services_per_s: float, batch: int) -> float:
    """Solve mu r^(b+1) - (lambda + mu) r + lambda = 0 for the root r = exp(-s) between 0 and 1; returns s.

    The factor 1 - r is divided out, which leaves r + r^2 + ... + r^b = lambda / mu; the sum is
    (1 - exp(-s b)) / (exp(s) - 1): one root, and no cancellation near r = 1 (Gross and Harris, 3.2).
    """
    offered = arrivals_per_s / services_per_s

    def excess(exponent: float) -> float:
        # exp(s) - 1 overflows where r is next to nothing; its inverse does not.
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


class BulkServer(Queue):
    """One server that takes up to `batch` jobs at once, which then end together."""

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
        """Mean number of jobs that one service ends: jobs per second over services per second."""
        return self.arrivals_per_s / (self.services_per_s * self.utilisation)

    @cached_property
    def _exponent(self) -> float:
        return characteristic_exponent(self.arrivals_per_s, self.services_per_s, self.batch)


@dataclass(frozen=True)
class BulkService(BulkServer, ExponentialWait):
    """A server that takes what is there, up to `batch` jobs, and serves them in one exponential time.

    Assumes Poisson arrivals at `arrivals_per_s`, first come first served, and services that take an exponential time
    at `services_per_s` whatever their size. Jobs that come during a service wait for the next
    (Neuts, 1967, with a batch of at least one; Medhi, Stochastic Models in Queueing Theory, 4.2), or with `joins`
    they join the running one while there is room, and end with it (Gross and Harris, 3.2, partial batches). In both
    cases the number waiting is geometric in the root r of the characteristic equation, and one who waits does so for
    an exponential time of rate mu (1 - r^b).

    Raises:
        ModelError: unless rates are above zero and batch >= 1.
        UnstableError: when more arrives than full batches can carry.
    """

    arrivals_per_s: float
    services_per_s: float
    batch: int
    joins: bool = False

    @property
    def utilisation(self) -> float:
        """Share of time the server is busy: lambda / (lambda + mu (1 - r)), or r when jobs join."""
        if self.joins:
            return math.exp(-self._exponent)
        # 1 - r, with all its digits near saturation.
        apart = -math.expm1(-self._exponent)
        return self.arrivals_per_s / (self.arrivals_per_s + self.services_per_s * apart)

    @property
    def busy_mean(self) -> float:
        """Mean number of busy servers; the mean number in service is lambda / mu."""
        return self.utilisation

    @property
    def waits_probability(self) -> float:
        """Probability that an arrival waits: the server is busy, or when jobs join, its batch is full."""
        return math.exp(-self.batch * self._exponent) if self.joins else self.utilisation

    @property
    def in_system_variance(self) -> float:
        """Variance of the number present, L + lambda^2 Var R: those who came during a response (Little, in law)."""
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

    def _probability(self, present: int) -> float:
        # The number present is that of the arrivals during a response: those during the service, geometric in q, and
        # those during the waiting, geometric in r if there is any.
        during = self.arrivals_per_s / (self.arrivals_per_s + self.services_per_s)
        rate = self._waiting_rate_per_s
        before = self.arrivals_per_s / (self.arrivals_per_s + rate)
        counts = np.arange(present + 1)
        both = float(np.sum(before**counts * during ** (present - counts)))
        waits = self.waits_probability
        return (1 - during) * ((1 - waits) * during**present + waits * (1 - before) * both)


@dataclass(frozen=True)
class FullBatchService(BulkServer):
    """A server that waits until `batch` jobs are there, and serves exactly so many in one exponential time.

    Assumes Poisson arrivals at `arrivals_per_s` and exponential services at `services_per_s` (Gross and Harris, 3.2,
    full batches). Waiting includes the time until the batch is full.

    Raises:
        ModelError: unless rates are above zero and batch >= 1.
        UnstableError: when more arrives than full batches can carry.
    """

    arrivals_per_s: float
    services_per_s: float
    batch: int

    @property
    def name(self) -> str:
        """Kendall's notation and the policy."""
        return f"M/M[{self.batch}]/1 with full batches"

    @property
    def utilisation(self) -> float:
        """Share of time the server is busy, lambda / (b mu)."""
        return self.arrivals_per_s / (self.batch * self.services_per_s)

    @property
    def busy_mean(self) -> float:
        """Mean number of busy servers; the mean number in service is lambda / mu."""
        return self.utilisation

    @property
    def waits_probability(self) -> float:
        """Probability that an arrival waits: all but the one who makes an idle server's batch full."""
        return 1 - self._probability(self.batch - 1)

    @property
    def waiting_mean_s(self) -> float:
        """Mean waiting time, by Little's law: (b - 1) / (2 lambda) for the batch, and for the server."""
        return self.queue_length_mean / self.arrivals_per_s

    @property
    def response_mean_s(self) -> float:
        """Mean response time, waiting plus service."""
        return self.waiting_mean_s + 1 / self.services_per_s

    @property
    def queue_length_mean(self) -> float:
        """Mean number waiting."""
        return self.in_system_mean - self.arrivals_per_s / self.services_per_s

    @property
    def in_system_mean(self) -> float:
        """Mean number present, (b - 1) / 2 + r / (1 - r): two independent parts."""
        return (self.batch - 1) / 2 + 1 / math.expm1(self._exponent)

    @property
    def in_system_variance(self) -> float:
        """Variance of the number present, (b^2 - 1) / 12 + r / (1 - r)^2."""
        return (self.batch**2 - 1) / 12 - 1 / (math.expm1(self._exponent) * math.expm1(-self._exponent))

    def _probability(self, present: int) -> float:
        # One part is uniform on 0..b-1, the other geometric in r: p(n) = (1 - r^(n+1)) / b below b, and from b - 1 on
        # (1 - r^b) r^(n-b+1) / b.
        within = min(present + 1, self.batch)
        further = math.exp(-self._exponent * (present + 1 - within))
        return -math.expm1(-self._exponent * within) * further / self.batch


@dataclass(frozen=True)
class BulkArrivals(Queue):
    """Jobs that arrive several at a time at one server, M[X]/M/1 (Gross and Harris, 3.1).

    Assumes batches as a Poisson process at `batches_per_s`, of a size of mean `batch_mean` and squared variation
    `batch_squared_variation` (0 when it is always the same), each job served alone in an exponential time at
    `services_per_s`, first come first served.

    Raises:
        ModelError: unless rates are above zero, and a size of at least 1 can have this mean and variation.
        UnstableError: when as much arrives as can be served.
    """

    batches_per_s: float
    services_per_s: float
    batch_mean: float
    batch_squared_variation: float = 0.0

    def __post_init__(self) -> None:
        where = self.name
        check_rates(where, {"batches_per_s": self.batches_per_s, "services_per_s": self.services_per_s})
        check_rates(where, {"batch_mean": self.batch_mean})
        check_at_least_zero(where, {"batch_squared_variation": self.batch_squared_variation})
        if self.batch_mean < 1:
            raise ModelError(f"{where}: batch_mean", f"must be at least 1, not {self.batch_mean}")
        variance, part = self.batch_squared_variation * self.batch_mean**2, self.batch_mean % 1
        if variance < part * (1 - part) - 1e-9 or (self.batch_mean == 1 and variance > 0):
            raise ModelError(
                f"{where}: batch_squared_variation", "belongs to no whole size >= 1 of this mean"
            )
        check_stable(where, self.utilisation)

    @property
    def name(self) -> str:
        """Kendall's notation."""
        return "M[X]/M/1"

    @property
    def arrivals_per_s(self) -> float:  # type: ignore[override]
        """Jobs that arrive, batches times their mean size."""
        return self.batches_per_s * self.batch_mean

    @property
    def utilisation(self) -> float:
        """Share of time the server is busy, rho = jobs / services."""
        return self.arrivals_per_s / self.services_per_s

    @property
    def busy_mean(self) -> float:
        """Mean number of busy servers, rho."""
        return self.utilisation

    @property
    def waits_probability(self) -> float:
        """Probability that a job waits: all but the first of a batch that finds nobody, 1 - (1 - rho) / E[X]."""
        return 1 - (1 - self.utilisation) / self.batch_mean

    @property
    def waiting_mean_s(self) -> float:
        """Mean waiting time: for those who are there, and for those of the own batch who go first."""
        return self.response_mean_s - 1 / self.services_per_s

    @property
    def response_mean_s(self) -> float:
        """Mean response time, by Little's law."""
        return self.in_system_mean / self.arrivals_per_s

    @property
    def in_system_mean(self) -> float:
        """Mean number present, rho (1 + E[X^2] / E[X]) / (2 (1 - rho))."""
        ratio = self.batch_mean * (1 + self.batch_squared_variation)
        return self.utilisation * (1 + ratio) / (2 * (1 - self.utilisation))

    @property
    def busy_period_mean_s(self) -> float:
        """Mean length of a busy period, E[X] / (mu (1 - rho)): it begins with a batch."""
        return self.busy_period_jobs_mean / self.services_per_s

    @property
    def busy_period_jobs_mean(self) -> float:
        """Mean number served in a busy period, E[X] / (1 - rho)."""
        return self.batch_mean / (1 - self.utilisation)
