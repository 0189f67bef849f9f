"""Closed M/M/c//N: N clients think, then queue at c servers. Exact, computed in the log domain."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp


@dataclass(frozen=True)
class ClosedMMc:
    """The machine repairman model: a delay station and one station of c servers, N customers.

    Assumes exponential service of mean `service_s`, first come first served. The delay (think time plus
    anything else that is spent without queueing) has mean `think_s` and any distribution: a delay station is
    insensitive to it (BCMP theorem). Birth-death chain on the number n at the servers, birth rate (N - n) / Z,
    death rate min(n, c) / S; its product form is summed as logarithms, because the plain recursion with
    p(0) = 1 - sum turns negative at populations of some tens (Kleinrock vol. 1, 3.8; Jain, 34.3).
    """

    clients: int
    servers: int
    service_s: float
    think_s: float

    def __post_init__(self) -> None:
        if self.clients < 1 or self.servers < 1 or not self.service_s > 0 or not self.think_s >= 0:
            raise ValueError(
                "M/M/c//N needs clients >= 1, servers >= 1, service time > 0 and think time >= 0"
            )

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """Probability of n = 0..N customers at the servers."""
        if self.think_s == 0:
            at_servers = np.zeros(self.clients + 1)
            at_servers[-1] = 1.0
            return at_servers
        n = np.arange(1, self.clients + 1)
        births = np.log(self.clients - n + 1) - np.log(self.think_s)
        deaths = np.log(np.minimum(n, self.servers)) - np.log(self.service_s)
        log_weights = np.concatenate(([0.0], np.cumsum(births - deaths)))
        return np.exp(log_weights - logsumexp(log_weights))

    @property
    def busy_mean(self) -> float:
        """Mean number of busy servers."""
        return float(self.probabilities @ np.minimum(np.arange(self.clients + 1), self.servers))

    @property
    def utilisation(self) -> float:
        """Share of time one server is busy."""
        return self.busy_mean / self.servers

    @property
    def throughput_per_s(self) -> float:
        """Completions per second, busy servers / service time."""
        return self.busy_mean / self.service_s

    @property
    def in_station_mean(self) -> float:
        """Mean number waiting or in service."""
        return float(self.probabilities @ np.arange(self.clients + 1))

    @property
    def response_mean_s(self) -> float:
        """Mean time at the servers, by Little's law."""
        return self.in_station_mean / self.throughput_per_s
