"""G/G/1 and G/G/m: only means and variations are known. The approximation of Allen and Cunneen."""

from dataclasses import dataclass

from waylab.models.elementary.input_checks import check_at_least_zero, check_rates, check_stable, check_whole
from waylab.models.elementary.mmm import MMm
from waylab.models.elementary.queue import Queue


class GeneralServers(Queue):
    """The common part of G/G/1 and G/G/m."""

    kind = "approximation"

    arrivals_per_s: float
    services_per_s: float
    servers: int
    arrival_squared_variation: float
    service_squared_variation: float

    def __post_init__(self) -> None:
        where = "G/G/m"
        check_rates(where, {"arrivals_per_s": self.arrivals_per_s, "services_per_s": self.services_per_s})
        check_whole(where, "servers", self.servers, 1)
        variations = {
            "arrival_squared_variation": self.arrival_squared_variation,
            "service_squared_variation": self.service_squared_variation,
        }
        check_at_least_zero(where, variations)
        check_stable(self.name, self.utilisation)

    @property
    def name(self) -> str:
        """Kendall's notation."""
        return f"G/G/{self.servers}"

    @property
    def utilisation(self) -> float:
        """Share of time one server is busy, rho = lambda / (m mu); exact."""
        return self.arrivals_per_s / (self.servers * self.services_per_s)

    @property
    def busy_mean(self) -> float:
        """Mean number of busy servers, lambda / mu; exact."""
        return self.arrivals_per_s / self.services_per_s

    @property
    def waiting_mean_s(self) -> float:
        """Mean waiting time, that of M/M/m times the mean of the two variations.

        Allen and Cunneen (Allen, Probability, Statistics, and Queueing Theory, 1990, 5.4), with Erlang's C itself for
        the probability of queueing. Exact for M/M/m and M/G/1. Otherwise it is neither an upper nor a lower bound:
        too high for regular arrivals at little load, too low for M/D/m with several servers (Cosmetatos 1975).
        Its relative error vanishes only in the limit of saturation (one server: Kingman 1962; a fixed number of
        servers: Köllerström 1974).
        """
        variation = (self.arrival_squared_variation + self.service_squared_variation) / 2
        return variation * MMm(self.arrivals_per_s, self.services_per_s, self.servers).waiting_mean_s

    @property
    def response_mean_s(self) -> float:
        """Mean response time, waiting plus service."""
        return self.waiting_mean_s + 1 / self.services_per_s


@dataclass(frozen=True)
class GGm(GeneralServers):
    """Several servers, independent times between arrivals and of service, first come first served.

    The squared variations are variance over squared mean: 1 for exponential times, 0 for constant ones.

    Raises:
        ModelError: unless rates are above zero, variations at least zero, and there is a server.
        UnstableError: when arrivals reach the service capacity.
    """

    arrivals_per_s: float
    services_per_s: float
    servers: int
    arrival_squared_variation: float = 1.0
    service_squared_variation: float = 1.0


@dataclass(frozen=True)
class GG1(GeneralServers):
    """One server, independent times between arrivals and of service, first come first served; see GGm.

    Raises:
        ModelError: unless rates are above zero and variations at least zero.
        UnstableError: when arrivals reach the service capacity.
    """

    arrivals_per_s: float
    services_per_s: float
    arrival_squared_variation: float = 1.0
    service_squared_variation: float = 1.0

    @property
    def servers(self) -> int:  # type: ignore[override]
        """One."""
        return 1
