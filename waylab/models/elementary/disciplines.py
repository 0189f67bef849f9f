"""One server that does not go by arrival: processor sharing, and priorities of several classes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waylab.models.elementary.inputs import as_service, check_at_least_zero, check_rates, check_stable
from waylab.models.elementary.mg1 import PoissonServer
from waylab.models.elementary.service_law import second_moment_s2
from waylab.models.errors import ModelError
from waylab.models.service import Service

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ProcessorSharing(PoissonServer):
    """M/G/1-PS: all who are present share the server evenly (Kleinrock, Queueing Systems, vol. 2, 4.4).

    Assumes Poisson arrivals at `arrivals_per_s`. The number present and the mean response depend on the service time
    by its mean only; a plain number is the mean of an exponential one. Waiting is the response less the service alone.

    Raises:
        ModelError: unless the rate and the mean are above zero.
        UnstableError: when as much arrives as can be served.
    """

    arrivals_per_s: float
    service: Service | float

    def __post_init__(self) -> None:
        check_rates(self.name, {"arrivals_per_s": self.arrivals_per_s})
        check_stable(self.name, self.arrivals_per_s * as_service(self.name, self.service).mean_s)

    @property
    def name(self) -> str:
        """Kendall's notation."""
        return "M/G/1-PS"

    @property
    def service_mean_s(self) -> float:
        """Mean service time, with the server to oneself."""
        return self._service.mean_s

    @property
    def service_second_moment_s2(self) -> float:
        """Mean of the squared service time: it matters for busy periods only."""
        return second_moment_s2(self._service)

    @property
    def waits_probability(self) -> float:
        """Probability that an arrival finds somebody to share with, rho."""
        return self.utilisation

    @property
    def waiting_mean_s(self) -> float:
        """Mean delay by the others, rho E[S] / (1 - rho)."""
        return self.utilisation * self.response_mean_s

    @property
    def response_mean_s(self) -> float:
        """Mean response time, E[S] / (1 - rho)."""
        return self.service_mean_s / self._idle

    @property
    def response_variance_s2(self) -> float:
        """Variance of the response time for exponential service, R^2 (2 + rho) / (2 - rho).

        Coffman, Muntz and Trotter, Waiting time distributions for processor-sharing systems, JACM 17, 1970.

        Raises:
            AssumptionError: for other than exponential service.
        """
        if not self._service.is_exponential:
            self._unknown("the deviation of the response time of other than exponential service")
        return self.response_mean_s**2 * (2 + self.utilisation) / (2 - self.utilisation)

    @property
    def in_system_variance(self) -> float:
        """Variance of the number present, rho / (1 - rho)^2."""
        return self.utilisation / self._idle**2

    def conditional_response_s(self, service_s: float) -> float:
        """Mean response time of one who needs this service time, x / (1 - rho)."""
        check_at_least_zero(self.name, {"service_s": service_s})
        return service_s / self._idle

    @property
    def _service(self) -> Service:
        return as_service(self.name, self.service)

    def _probability(self, present: int) -> float:
        return self._idle * self.utilisation**present


@dataclass(frozen=True)
class Priorities(PoissonServer):
    """One server and several classes, of which the first goes first; within a class by arrival.

    Assumes Poisson arrivals at `class_arrivals_per_s` and independent service times; a plain number is the mean of an
    exponential one. Without `preemptive` a service that has begun is ended (Cobham, Operations Research 2, 1954);
    with it, it is interrupted and goes on later from where it was (preemptive resume; Kleinrock, vol. 2, 3.4).
    Waiting is the response less the own service, interruptions included. Arrays have one entry per class.

    Raises:
        ModelError: unless there is a service for every class, and rates and means are above zero.
        UnstableError: when as much arrives as can be served, all classes together.
    """

    class_arrivals_per_s: Sequence[float]
    services: Sequence[Service | float]
    preemptive: bool = False

    def __post_init__(self) -> None:
        arrivals = tuple(self.class_arrivals_per_s)
        services = tuple(self.services)
        if not arrivals or len(arrivals) != len(services):
            raise ModelError(
                f"{self.name}: services", f"must be one for each class, {len(arrivals)}, not {len(services)}"
            )
        check_rates(
            self.name, {f"class_arrivals_per_s[{index}]": rate for index, rate in enumerate(arrivals)}
        )
        object.__setattr__(self, "class_arrivals_per_s", arrivals)
        object.__setattr__(self, "services", tuple(as_service(self.name, service) for service in services))
        check_stable(self.name, self.utilisation)

    @property
    def name(self) -> str:
        """Kendall's notation and the discipline."""
        return f"M/G/1 with {'preemptive' if self.preemptive else 'non-preemptive'} priorities"

    @property
    def arrivals_per_s(self) -> float:  # type: ignore[override]
        """Arrivals of all classes."""
        return math.fsum(self.class_arrivals_per_s)

    @property
    def service_mean_s(self) -> float:
        """Mean service time over all classes."""
        return float(self._shares @ self._means_s)

    @property
    def service_second_moment_s2(self) -> float:
        """Mean of the squared service time over all classes."""
        return float(self._shares @ self._seconds_s2)

    @property
    def class_utilisation(self) -> Array:
        """Share of time the server is busy with each class."""
        return self._arrivals * self._means_s

    @property
    def class_waits_probability(self) -> Array:
        """Probability that an arrival of the class cannot begin at once."""
        if self.preemptive:
            return np.cumsum(self.class_utilisation)
        return np.full(self._arrivals.size, self.utilisation)

    @property
    def class_waiting_mean_s(self) -> Array:
        """Mean waiting time of each class, before and between the parts of its service.

        With u(p) the utilisation by the classes up to p, W(p) = W0 / ((1 - u(p-1)) (1 - u(p))), where W0 is the mean
        rest of the service in progress, lambda E[S^2] / 2 over all classes; with preemption over those up to p, and
        the own service takes E[S] / (1 - u(p-1)).
        """
        upto = np.cumsum(self.class_utilisation)
        before = upto - self.class_utilisation
        residual = np.cumsum(self._arrivals * self._seconds_s2 / 2)
        if not self.preemptive:
            return residual[-1] / ((1 - before) * (1 - upto))
        return residual / ((1 - before) * (1 - upto)) + self._means_s * before / (1 - before)

    @property
    def class_response_mean_s(self) -> Array:
        """Mean response time of each class."""
        return self.class_waiting_mean_s + self._means_s

    @property
    def class_queue_length_mean(self) -> Array:
        """Mean number waiting or interrupted of each class."""
        return self._arrivals * self.class_waiting_mean_s

    @property
    def class_in_system_mean(self) -> Array:
        """Mean number present of each class."""
        return self._arrivals * self.class_response_mean_s

    @property
    def waits_probability(self) -> float:
        """Probability over all classes that an arrival cannot begin at once."""
        return float(self._shares @ self.class_waits_probability)

    @property
    def waiting_mean_s(self) -> float:
        """Mean waiting time over all classes."""
        return float(self._shares @ self.class_waiting_mean_s)

    @property
    def response_mean_s(self) -> float:
        """Mean response time over all classes."""
        return float(self._shares @ self.class_response_mean_s)

    @property
    def _arrivals(self) -> Array:
        return np.array(self.class_arrivals_per_s, dtype=float)

    @property
    def _shares(self) -> Array:
        return self._arrivals / self._arrivals.sum()

    @property
    def _means_s(self) -> Array:
        return np.array([as_service(self.name, service).mean_s for service in self.services])

    @property
    def _seconds_s2(self) -> Array:
        return np.array([second_moment_s2(as_service(self.name, service)) for service in self.services])
