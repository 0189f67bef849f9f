"""M/M/m: m equal servers and one queue. Erlang C by the recursion of Erlang B, which never loses precision."""

import math
from dataclasses import dataclass

from waylab.models.mm1 import UnstableError


def erlang_b(servers: int, offered: float) -> float:
    """Probability that all servers are busy when nobody waits (M/M/m/m).

    `offered` is lambda / mu in Erlang. B(0) = 1, B(k) = a B(k-1) / (k + a B(k-1)) (Kleinrock vol. 1, 3.6).
    """
    if servers < 0 or offered < 0:
        raise ValueError("Erlang B needs servers >= 0 and offered load >= 0")
    blocked = 1.0
    for busy in range(1, servers + 1):
        blocked = offered * blocked / (busy + offered * blocked)
    return blocked


def erlang_c(servers: int, offered: float) -> float:
    """Probability that an arrival has to wait (M/M/m).

    C = B / (1 - rho (1 - B)). The textbook sum with p(0) underflows from some 230 servers on; this does not.
    """
    utilisation = offered / servers
    if utilisation >= 1:
        raise UnstableError(f"M/M/{servers}", utilisation)
    blocked = erlang_b(servers, offered)
    return blocked / (1 - utilisation * (1 - blocked))


@dataclass(frozen=True)
class MMm:
    """The queue with m servers (Jain, box 31.2).

    Assumes Poisson arrivals at `arrivals_per_s`; each of `servers` serves exponentially at `services_per_s`.
    """

    arrivals_per_s: float
    services_per_s: float
    servers: int

    def __post_init__(self) -> None:
        if not (self.arrivals_per_s > 0 and self.services_per_s > 0 and self.servers >= 1):
            raise ValueError("M/M/m needs positive rates and at least one server")
        if self.utilisation >= 1:
            raise UnstableError(f"M/M/{self.servers}", self.utilisation)

    @property
    def utilisation(self) -> float:
        """Share of time one server is busy, rho = lambda / (m mu)."""
        return self.arrivals_per_s / (self.servers * self.services_per_s)

    @property
    def waits_probability(self) -> float:
        """Probability that an arrival has to wait (Erlang C)."""
        return erlang_c(self.servers, self.arrivals_per_s / self.services_per_s)

    @property
    def queue_length_mean(self) -> float:
        """Mean number waiting, C rho / (1 - rho)."""
        return self.waits_probability * self.utilisation / (1 - self.utilisation)

    @property
    def waiting_mean_s(self) -> float:
        """Mean waiting time, C / (m mu - lambda)."""
        return self.waits_probability / (self.servers * self.services_per_s - self.arrivals_per_s)

    @property
    def response_mean_s(self) -> float:
        """Mean response time, waiting plus service."""
        return self.waiting_mean_s + 1 / self.services_per_s

    def waiting_quantile_s(self, share: float) -> float:
        """Waiting time that a share does not exceed: P(W > t) = C exp(-(m mu - lambda) t)."""
        rate = self.servers * self.services_per_s - self.arrivals_per_s
        return max(0.0, math.log(self.waits_probability / (1 - share)) / rate)
