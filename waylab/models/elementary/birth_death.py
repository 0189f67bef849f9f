"""A general birth-death chain in its steady state, in the log domain: the base of all Markov queues here."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from waylab.models.elementary.input_checks import check_at_least_zero, check_rates, check_stable, check_whole
from waylab.models.elementary.queue import Queue, finite
from waylab.models.errors import ModelError

Array = NDArray[np.float64]


def log_product_form(births_per_s: Array, deaths_per_s: Array) -> Array:
    """Logarithms of weights w(n) = product of births(k) / deaths(k + 1) over k < n, scaled to 0 at the largest.

    Shapes: (K,) and (K,) to (K + 1,). The sums run outwards from the mode, so that the terms that matter stay small and
    keep their digits.
    """
    steps = np.log(births_per_s) - np.log(deaths_per_s)
    mode = int(np.argmax(np.concatenate(([0.0], np.cumsum(steps)))))
    below = -np.cumsum(steps[:mode][::-1])[::-1]
    return np.concatenate((below, [0.0], np.cumsum(steps[mode:])))


@dataclass(frozen=True, eq=False)
class BirthDeath(Queue):
    """A chain on the number present (Kleinrock, Queueing Systems, vol. 1, 3.1).

    `births_per_s[n]` is the rate from n to n + 1, `deaths_per_s[n]` that from n + 1 to n; both of length K. Without
    a tail, K is the largest number. With a tail, the chain continues without limit beyond K at the rates
    `tail_births_per_s` and `tail_deaths_per_s`, and its sum has geometric form. Requests beyond `servers` wait.
    The balance equations are solved as sums of logarithms, because the usual p(0) underflows from about 230 servers.

    Raises:
        ModelError: unless all rates are finite and above zero and the lengths agree.
        UnstableError: for a tail whose birth rate is not below its death rate.
    """

    births_per_s: Array
    deaths_per_s: Array
    tail_births_per_s: float = 0.0
    tail_deaths_per_s: float = 0.0
    servers: int = 1

    def __post_init__(self) -> None:
        check_whole(self.name, "servers", self.servers, 1)
        births = _rates(self.name, "births_per_s", self.births_per_s)
        deaths = _rates(self.name, "deaths_per_s", self.deaths_per_s)
        if births.size != deaths.size:
            raise ModelError(
                self.name, f"needs as many births as deaths, not {births.size} and {deaths.size}"
            )
        tail = {"tail_births_per_s": self.tail_births_per_s, "tail_deaths_per_s": self.tail_deaths_per_s}
        check_at_least_zero(self.name, tail)
        if any(tail.values()):
            check_rates(self.name, tail)
            check_stable(f"{self.name}: tail", self._ratio)
            # The geometric part must start where all servers are busy.
            more = max(0, int(self.servers) - births.size)
            births = np.append(births, np.full(more, self.tail_births_per_s))
            deaths = np.append(deaths, np.full(more, self.tail_deaths_per_s))
        elif not births.size:
            raise ModelError(self.name, "needs at least one birth and one death, or a tail")
        object.__setattr__(self, "births_per_s", births)
        object.__setattr__(self, "deaths_per_s", deaths)

    @property
    def name(self) -> str:
        """The kind of chain."""
        return "birth-death chain"

    @property
    def has_tail(self) -> bool:
        """Whether the number present has no bound."""
        return self.tail_births_per_s > 0

    @property
    def probabilities(self) -> Array:
        """Probability of n = 0..K present, shape (K + 1,).

        Raises:
            ModelError: for a chain with a tail; use `probability(n)`.
        """
        if self.has_tail:
            raise ModelError(f"{self.name}: probabilities", "there is no largest number; use probability(n)")
        return self._explicit

    @cached_property
    def log_probabilities(self) -> Array:
        """Logarithms of the probabilities of 0..K present: finite where the probabilities underflow."""
        weights = log_product_form(self.births_per_s, self.deaths_per_s)
        total = weights
        if self.has_tail:
            total = np.append(weights, weights[-1] + math.log(self._tail_weight))
        return np.asarray(weights - logsumexp(total))

    @property
    def arrivals_per_s(self) -> float:  # type: ignore[override]
        """Mean rate of births. No arrival is lost: a full system has no births."""
        return self.throughput_per_s

    @cached_property
    def throughput_per_s(self) -> float:
        """Mean rate of deaths."""
        deaths = float(self._explicit[1:] @ self.deaths_per_s)
        return deaths + self._beyond * self.tail_deaths_per_s

    @property
    def utilisation(self) -> float:
        """Share of time that one server is busy, the mean of min(n, servers) over the servers."""
        return self.busy_mean / self.servers

    @property
    def busy_mean(self) -> float:
        """Mean of min(n, servers)."""
        busy = np.minimum(np.arange(self._explicit.size), self.servers)
        return float(self._explicit @ busy) + self._beyond * self.servers

    @property
    def in_system_mean(self) -> float:
        """Mean number present."""
        return self._mean(np.arange(self._explicit.size))

    @property
    def in_system_variance(self) -> float:
        """Variance of the number present."""
        return self._variance(np.arange(self._explicit.size))

    @property
    def queue_length_mean(self) -> float:
        """Mean of the number beyond the servers."""
        return self._mean(self._waiting)

    @property
    def queue_length_variance(self) -> float:
        """Variance of the number beyond the servers."""
        return self._variance(self._waiting)

    @property
    def waiting_mean_s(self) -> float:
        """Mean waiting time, by Little's law."""
        return self.queue_length_mean / self.throughput_per_s

    @property
    def response_mean_s(self) -> float:
        """Mean response time, by Little's law."""
        return self.in_system_mean / self.throughput_per_s

    @property
    def busy_period_mean_s(self) -> float:
        """Mean time from the first arrival until the system is empty again."""
        return finite("busy_period_mean_s", self._passage[0])

    @property
    def busy_period_variance_s2(self) -> float:
        """Variance of that time."""
        return finite("busy_period_variance_s2", self._passage[1])

    @property
    def busy_period_jobs_mean(self) -> float:
        """Mean number that leave in a busy period."""
        return finite("busy_period_jobs_mean", self._passage[2])

    @property
    def busy_period_jobs_variance(self) -> float:
        """Variance of the number that leave in a busy period."""
        return finite("busy_period_jobs_variance", self._passage[3])

    @cached_property
    def _explicit(self) -> Array:
        return np.exp(self.log_probabilities)

    @property
    def _ratio(self) -> float:
        return self.tail_births_per_s / self.tail_deaths_per_s

    @property
    def _tail_weight(self) -> float:
        # Sum of r^j over j >= 1.
        return self.tail_births_per_s / (self.tail_deaths_per_s - self.tail_births_per_s)

    @property
    def _beyond(self) -> float:
        # Probability of more than K present.
        return float(self._explicit[-1]) * self._tail_weight if self.has_tail else 0.0

    @property
    def _waiting(self) -> NDArray[np.int64]:
        return np.maximum(np.arange(self._explicit.size) - int(self.servers), 0)

    def _probability(self, present: int) -> float:
        last = self._explicit.size - 1
        if present <= last:
            return float(self._explicit[present])
        return float(self._explicit[last]) * self._ratio ** (present - last) if self.has_tail else 0.0

    def _mean(self, counts: NDArray[np.int64]) -> float:
        mean = float(self._explicit @ counts)
        if self.has_tail:
            mean += self._beyond * (float(counts[-1]) + 1 / (1 - self._ratio))
        return mean

    def _variance(self, counts: NDArray[np.int64]) -> float:
        mean = self._mean(counts)
        variance = float(self._explicit @ (counts - mean) ** 2)
        if self.has_tail:
            # Beyond its last value, the count is geometric: its mean and variance.
            further, spread = 1 / (1 - self._ratio), self._ratio / (1 - self._ratio) ** 2
            variance += self._beyond * ((float(counts[-1]) - mean + further) ** 2 + spread)
        return variance

    @cached_property
    def _passage(self) -> tuple[float, float, float, float]:
        # Time and departures from n present to n - 1 for the first time: mean and variance of each, from the top down.
        # With r = births / deaths: T(n) = 1/mu + r T(n+1), Var T(n) = T(n)^2 + r (Var T(n+1) + T(n+1)^2), and for the
        # departures J(n) = 1 + r J(n+1), Var J(n) = r (Var J(n+1) + J(n+1)^2 + J(n+1) (J(n) - 1)).
        time = time_variance = jobs = jobs_variance = 0.0
        births = [*self.births_per_s.tolist()[1:], self.tail_births_per_s]
        if self.has_tail:
            idle = 1 - self._ratio
            time, jobs = 1 / (self.tail_deaths_per_s - self.tail_births_per_s), 1 / idle
            time_variance = (1 + self._ratio) / (self.tail_deaths_per_s**2 * idle**3)
            jobs_variance = self._ratio * (1 + self._ratio) / idle**3
        for birth, death in zip(reversed(births), reversed(self.deaths_per_s.tolist()), strict=False):
            ratio = birth / death
            here, here_jobs = 1 / death + ratio * time, 1 + ratio * jobs
            time_variance = here * here + ratio * (time_variance + time * time)
            jobs_variance = ratio * (jobs_variance + jobs * jobs + jobs * (here_jobs - 1))
            time, jobs = here, here_jobs
        return time, time_variance, jobs, jobs_variance


class ChainBusyPeriod(Queue):
    """Queues whose number present is a birth-death chain, from which their busy periods follow.

    A busy period lasts from an arrival at the empty system until the system is empty again, with any number of busy
    servers in between.
    """

    @cached_property
    def _chain(self) -> BirthDeath:
        raise NotImplementedError

    @property
    def busy_period_mean_s(self) -> float:
        """Mean length of a busy period: the passage from one present to none."""
        return self._chain.busy_period_mean_s

    @property
    def busy_period_variance_s2(self) -> float:
        """Variance of the length of a busy period."""
        return self._chain.busy_period_variance_s2

    @property
    def busy_period_jobs_mean(self) -> float:
        """Mean number served in a busy period."""
        return self._chain.busy_period_jobs_mean

    @property
    def busy_period_jobs_variance(self) -> float:
        """Variance of the number served in a busy period."""
        return self._chain.busy_period_jobs_variance


def _rates(queue: str, name: str, rates: ArrayLike) -> Array:
    array = np.array(rates, dtype=float)
    if array.ndim != 1:
        raise ModelError(f"{queue}: {name}", f"must be a list of rates, not of {array.ndim} dimensions")
    wrong = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
    if wrong.size:
        index = int(wrong[0])
        raise ModelError(f"{queue}: {name}[{index}]", f"must be a finite number > 0, not {array[index]}")
    return array
