"""M/G/1 with processor sharing: one server that all requests present share evenly."""

from dataclasses import dataclass

from waylab.models.elementary.input_checks import as_service, check_rates, check_stable
from waylab.models.elementary.mg1 import PoissonServer
from waylab.models.elementary.service_times import second_moment_s2
from waylab.models.service import Service


@dataclass(frozen=True)
class ProcessorSharing(PoissonServer):
    """M/G/1-PS: all requests present share the server evenly (Kleinrock, Queueing Systems, vol. 2, 4.4).

    Assumes Poisson arrivals at `arrivals_per_s`. The number present and the mean response depend on the service time by
    its mean only; a plain number is the mean of an exponential one. Waiting is the response time minus the service
    time.

    Raises:
        ModelError: unless the rate and the mean are above zero.
        UnstableError: when arrivals reach the service capacity.
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
        """Mean service time of a request that is alone."""
        return self._service.mean_s

    @property
    def service_second_moment_s2(self) -> float:
        """Mean of the squared service time: it matters for busy periods only."""
        return second_moment_s2(self._service)

    @property
    def waits_probability(self) -> float:
        """Probability that an arrival has to share the server, rho."""
        return self.utilisation

    @property
    def waiting_mean_s(self) -> float:
        """Mean delay by other requests, rho E[S] / (1 - rho)."""
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

    @property
    def _service(self) -> Service:
        return as_service(self.name, self.service)

    def _probability(self, present: int) -> float:
        return self._idle * self.utilisation**present
