"""M/G/1: one server, Poisson arrivals, any service time (Pollaczek and Khinchine)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from waylab.models.elementary.input_checks import as_service, check_at_least_zero, check_rates, check_stable
from waylab.models.elementary.queue import Queue
from waylab.models.elementary.service_times import more_arrivals, third_moment_s3
from waylab.models.errors import AssumptionError, ModelError
from waylab.models.phase_type import PhaseType
from waylab.models.service import Service

Array = NDArray[np.float64]


class PoissonServer(Queue):
    """One server with Poisson arrivals that is never idle while a request is present.

    Its busy periods do not depend on the discipline (Takagi, Queueing Analysis, vol. 1, 1.2).
    """

    @property
    def service_mean_s(self) -> float:
        """Mean service time."""
        raise NotImplementedError

    @property
    def service_second_moment_s2(self) -> float:
        """Mean of the squared service time."""
        raise NotImplementedError

    @property
    def utilisation(self) -> float:
        """Share of time the server is busy, rho = lambda E[S]."""
        return self.arrivals_per_s * self.service_mean_s

    @property
    def busy_mean(self) -> float:
        """Mean number of busy servers, rho."""
        return self.utilisation

    @property
    def residual_mean_s(self) -> float:
        """Mean residual service that an arrival finds, 0 for an idle server: lambda E[S^2] / 2."""
        return self.arrivals_per_s * self.service_second_moment_s2 / 2

    @property
    def busy_period_mean_s(self) -> float:
        """Mean length of a busy period, E[S] / (1 - rho)."""
        return self.service_mean_s / self._idle

    @property
    def busy_period_variance_s2(self) -> float:
        """Variance of a busy period, (Var S + rho E[S]^2) / (1 - rho)^3."""
        variance = self.service_second_moment_s2 - self.service_mean_s**2
        return (max(0.0, variance) + self.utilisation * self.service_mean_s**2) / self._idle**3

    @property
    def busy_period_jobs_mean(self) -> float:
        """Mean number served in a busy period, 1 / (1 - rho)."""
        return 1 / self._idle

    @property
    def busy_period_jobs_variance(self) -> float:
        """Variance of the number served in a busy period, (rho (1 - rho) + lambda^2 E[S^2]) / (1 - rho)^3."""
        both = self.utilisation * self._idle + 2 * self.arrivals_per_s * self.residual_mean_s
        return both / self._idle**3

    @property
    def _idle(self) -> float:
        return 1 - self.utilisation


@dataclass(frozen=True)
class MG1(PoissonServer):
    """One server, first come first served (Kleinrock, Queueing Systems, vol. 1, chapter 5).

    Assumes Poisson arrivals at `arrivals_per_s` and independent service times. `service` is a Service, or the mean of
    a time of which only the `squared_variation` is known (default 1, an exponential time), and, for
    the deviations of waiting and response, its `third_moment_s3`. With a Service, the distribution of the number
    present is known. If the service is exponential, Erlang or hyperexponential, waiting and response are phase-type
    times (Neuts, 1981, 3.2). Constant service, a variation of 0, is M/D/1.

    Raises:
        ModelError: for a rate or a mean that is not above zero, or moments that no random variable has.
        UnstableError: when arrivals reach the service capacity.
    """

    arrivals_per_s: float
    service: Service | float
    squared_variation: float | None = None
    third_moment_s3: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.name, {"arrivals_per_s": self.arrivals_per_s})
        service = as_service(self.name, self.service)
        if isinstance(self.service, Service) and not (self.squared_variation is self.third_moment_s3 is None):
            raise ModelError(
                f"{self.name}: squared_variation", "belongs to a plain mean; the Service has its own"
            )
        if self.squared_variation is not None:
            check_at_least_zero(self.name, {"squared_variation": self.squared_variation})
        elif self.third_moment_s3 is not None:
            raise ModelError(f"{self.name}: third_moment_s3", "is given without a squared_variation")
        check_stable(self.name, self.arrivals_per_s * service.mean_s)
        if self.third_moment_s3 is not None:
            check_rates(self.name, {"third_moment_s3": self.third_moment_s3})
            # E[S^2]^2 <= E[S] E[S^3] for any time.
            least = self.service_second_moment_s2**2 / self.service_mean_s
            if self.third_moment_s3 < least * (1 - 1e-9):
                raise ModelError(
                    f"{self.name}: third_moment_s3", f"is at least {least:.6g} for these two moments"
                )

    @property
    def name(self) -> str:
        """Kendall's notation."""
        return "M/D/1" if self.service_squared_variation == 0 else "M/G/1"

    @property
    def service_mean_s(self) -> float:
        """Mean service time."""
        return self.service.mean_s if isinstance(self.service, Service) else float(self.service)

    @property
    def service_squared_variation(self) -> float:
        """Variance of the service time over its squared mean."""
        if isinstance(self.service, Service):
            return self.service.squared_variation
        return 1.0 if self.squared_variation is None else float(self.squared_variation)

    @property
    def service_second_moment_s2(self) -> float:
        """Mean of the squared service time."""
        return self.service_mean_s**2 * (1 + self.service_squared_variation)

    @property
    def waits_probability(self) -> float:
        """Probability that an arrival has to wait, rho."""
        return self.utilisation

    @property
    def waiting_mean_s(self) -> float:
        """Mean waiting time, lambda E[S^2] / (2 (1 - rho))."""
        return self.residual_mean_s / self._idle

    @property
    def waiting_variance_s2(self) -> float:
        """Variance of the waiting time, W^2 + lambda E[S^3] / (3 (1 - rho)).

        Raises:
            AssumptionError: when the third moment of the service time is not known.
        """
        third_s3 = self.third_moment_s3
        if third_s3 is None:
            third_s3 = third_moment_s3(self._service("the deviation of waiting"))
        return self.waiting_mean_s**2 + self.arrivals_per_s * third_s3 / (3 * self._idle)

    @property
    def response_mean_s(self) -> float:
        """Mean response time, waiting plus service."""
        return self.waiting_mean_s + self.service_mean_s

    @property
    def response_variance_s2(self) -> float:
        """Variance of the response time: waiting and service are independent."""
        return self.waiting_variance_s2 + self.service_mean_s**2 * self.service_squared_variation

    @property
    def in_system_variance(self) -> float:
        """Variance of the number present, L + lambda^2 Var R (the distributional form of Little's law)."""
        return self.in_system_mean + self.arrivals_per_s**2 * self.response_variance_s2

    @property
    def queue_length_variance(self) -> float:
        """Variance of the number waiting, Lq + lambda^2 Var W."""
        return self.queue_length_mean + self.arrivals_per_s**2 * self.waiting_variance_s2

    def probabilities_to(self, largest: int) -> Array:
        """Probability of n = 0..largest present, shape (largest + 1,).

        By a recursion of positive terms: with b(n) the probability of more than n arrivals during a service,
        p(n) (1 - b(0)) = b(n - 1) p(0) + sum of b(n - k) p(k) over 0 < k < n (Tijms, A First Course in Stochastic
        Models, 9.2).
        """
        more = more_arrivals(
            self._service("the distribution of the number in the system"), self.arrivals_per_s, largest
        )
        found = np.zeros(largest + 1)
        found[0] = self._idle
        for count in range(1, largest + 1):
            total = more[count - 1] * found[0] + more[count - 1 : 0 : -1] @ found[1:count]
            found[count] = total / (1 - more[0])
        return found

    @cached_property
    def waiting_time(self) -> PhaseType:
        """The waiting time: a geometric number of residual service times.

        Raises:
            AssumptionError: unless the service is made of phases.
        """
        service = PhaseType.of_service(self._service("the distribution of waiting"))
        exits = np.maximum(0.0, -np.asarray(service.rates.sum(axis=1)).ravel())
        rest = np.linalg.solve(-service.rates.toarray().T, service.start) / service.mean_s
        again = sparse.csr_array(np.outer(exits, self.utilisation * rest))
        return PhaseType(self.utilisation * rest, service.rates + again)

    @cached_property
    def response_time(self) -> PhaseType:
        """The response time, waiting and then service.

        Raises:
            AssumptionError: unless the service is made of phases.
        """
        service = PhaseType.of_service(self._service("the distribution of the response time"))
        return PhaseType.sum_of([self.waiting_time, service])

    def _service(self, what: str) -> Service:
        """The distribution of service, if it is known."""
        if isinstance(self.service, Service):
            return self.service
        if self.squared_variation is None:
            return Service(float(self.service))
        if self.squared_variation == 0:
            return Service.deterministic(float(self.service))
        raise AssumptionError(
            self.name,
            "a known distribution of service",
            f"only two of its moments are known, and {what} was requested",
        )

    def _probability(self, present: int) -> float:
        size = 64
        while size <= present:
            size *= 2
        if size not in self._known:
            self._known[size] = self.probabilities_to(size)
        return float(self._known[size][present])

    @cached_property
    def _known(self) -> dict[int, Array]:
        return {}

    def _waiting_survival(self, time_s: float) -> float:
        return self.waiting_time.survival(time_s)

    def _response_survival(self, time_s: float) -> float:
        return self.response_time.survival(time_s)
