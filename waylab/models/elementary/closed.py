"""Closed birth-death queues, such as M/M/c//N: N clients think, then visit one station. Exact."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from waylab.models.elementary.birth_death import BirthDeath, ChainBusyPeriod, log_product_form
from waylab.models.elementary.closed_passage import closed_response_time
from waylab.models.elementary.input_checks import check_at_least_zero, check_rates, check_whole
from waylab.models.elementary.waiting import Line
from waylab.models.errors import AssumptionError, ModelError
from waylab.models.phase_type import PhaseType

Array = NDArray[np.float64]


def closed_probabilities(clients: int, think_s: float, rates_per_s: Array) -> Array:
    """Probability of n = 0..N at the station, shape (N + 1,).

    Birth rate (N - n) / Z, death rate `rates_per_s[n - 1]`, the last of them for all larger n. Nothing is checked, so
    that fits can call it often.
    """
    if clients == 0 or not _thinks(clients, think_s):
        at_station = np.zeros(clients + 1)
        at_station[-1] = 1.0
        return at_station
    births = np.arange(clients, 0, -1) / think_s
    log_weights = log_product_form(births, _rates_to(clients, rates_per_s))
    return np.asarray(np.exp(log_weights - logsumexp(log_weights)))


class ClosedChain(ChainBusyPeriod):
    """The common part of the closed queues. Knows only the clients, the think time and the rates."""

    clients: int
    think_s: float

    @cached_property
    def _rates(self) -> Array:
        """Completions per second with n = 1..slots at the station, constant for larger n, shape (slots,)."""
        raise NotImplementedError

    @property
    def slots(self) -> int:
        """The largest number in service; further requests wait."""
        return int(self._rates.size)

    @cached_property
    def probabilities(self) -> Array:
        """Probability of n = 0..N customers at the station, shape (N + 1,)."""
        return closed_probabilities(self.clients, self.think_s, self._rates)

    @property
    def arrivals_per_s(self) -> float:  # type: ignore[override]
        """Arrivals at the station: every departing customer comes again."""
        return self.throughput_per_s

    @cached_property
    def throughput_per_s(self) -> float:
        """Completions per second, the mean of the rate."""
        return float(self.probabilities[1:] @ _rates_to(self.clients, self._rates))

    @property
    def busy_mean(self) -> float:
        """Mean number in service."""
        return float(self.probabilities @ np.minimum(self._counts, self.slots))

    @property
    def utilisation(self) -> float:
        """Share of time that one slot is busy."""
        return self.busy_mean / self.slots

    @property
    def in_system_mean(self) -> float:
        """Mean number waiting or in service at the station."""
        return float(self.probabilities @ self._counts)

    @property
    def in_system_variance(self) -> float:
        """Variance of the number at the station."""
        return float(self.probabilities @ (self._counts - self.in_system_mean) ** 2)

    @property
    def queue_length_mean(self) -> float:
        """Mean number waiting."""
        return float(self.probabilities @ np.maximum(self._counts - self.slots, 0))

    @property
    def queue_length_variance(self) -> float:
        """Variance of the number waiting."""
        waiting = np.maximum(self._counts - self.slots, 0)
        return float(self.probabilities @ (waiting - self.queue_length_mean) ** 2)

    @property
    def response_mean_s(self) -> float:
        """Mean time at the station, by Little's law."""
        return self.in_system_mean / self.throughput_per_s

    @property
    def waiting_mean_s(self) -> float:
        """Mean time before service, by Little's law."""
        return self.queue_length_mean / self.throughput_per_s

    @property
    def holding_mean_s(self) -> float:
        """Mean time in service, during which a slot is busy."""
        return self.busy_mean / self.throughput_per_s

    @property
    def waits_probability(self) -> float:
        """Probability that an arrival finds all slots busy, in the system with one customer fewer."""
        return self._line.waits_probability

    @property
    def waiting_variance_s2(self) -> float:
        """Variance of the waiting time."""
        return self._line.waiting_variance_s2

    @property
    def response_variance_s2(self) -> float:
        """Variance of the response time."""
        return self._line.response_variance_s2 if self._is_linear else self.response_time.variance_s2

    @cached_property
    def response_time(self) -> PhaseType:
        """The response time as a phase-type time; see `closed_response_time` for what it assumes.

        Raises:
            ModelError: when more than about 300 customers may wait; simulate.
        """
        return closed_response_time(self._seen, self.think_s, self._rates)

    @property
    def _counts(self) -> NDArray[np.int64]:
        return np.arange(self.clients + 1)

    @cached_property
    def _chain(self) -> BirthDeath:
        if not _thinks(self.clients, self.think_s):
            raise AssumptionError(self.name, "a think time above 0", "without it the busy period never ends")
        births = np.arange(self.clients, 0, -1) / self.think_s
        return BirthDeath(births, _rates_to(self.clients, self._rates), servers=self.slots)

    @cached_property
    def _line(self) -> Line:
        # Arrival theorem: an arrival sees the same system with one customer fewer. While it waits, all slots are busy,
        # so the departures before it occur at the last rate, whatever arrives behind it.
        ahead = np.concatenate(([self._seen[: self.slots].sum()], self._seen[self.slots :]))
        return Line(ahead, float(self._rates[-1]), float(self._rates[0]))

    @cached_property
    def _seen(self) -> Array:
        return closed_probabilities(self.clients - 1, self.think_s, self._rates)

    @cached_property
    def _is_linear(self) -> bool:
        # Slots that serve independently, each at one rate: the response time is then a wait and one service.
        each = self._rates / np.arange(1, self.slots + 1)
        return bool(np.allclose(each, each[0], rtol=1e-12, atol=0))

    def _probability(self, present: int) -> float:
        return float(self.probabilities[present]) if present <= self.clients else 0.0

    def _waiting_survival(self, time_s: float) -> float:
        return self._line.waiting_survival(time_s)

    def _response_survival(self, time_s: float) -> float:
        if self._is_linear:
            return self._line.response_survival(time_s)
        return self.response_time.survival(time_s)


@dataclass(frozen=True)
class ClosedBirthDeath(ClosedChain):
    """A pool of slots whose speed depends on the number of busy slots: M/M/./N with rates w(n).

    `clients` customers think for `think_s` seconds on average, then visit a station that completes
    `rates_per_s[n - 1]` requests per second with n present. The last rate is used for all larger n. There are as many
    slots as rates; further requests wait, first come first served. Assumes exponential completions at the current
    rate. The think time, including all other time without queueing, may have any distribution with this mean (a delay
    station is insensitive: Baskett, Chandy, Muntz and Palacios, JACM 22, 1975). The product form is summed as
    logarithms, because the recursion with p(0) = 1 - sum turns negative at populations of some tens. The state found
    by an arrival is exact by the arrival theorem. The distributions of waiting and response are exact if each request
    in service is equally likely to leave next.

    Raises:
        ModelError: unless clients >= 1, think time >= 0, and all rates are finite and above zero.
    """

    clients: int
    think_s: float
    rates_per_s: Sequence[float]

    def __post_init__(self) -> None:
        where = "M/M/./N"
        check_whole(where, "clients", self.clients, 1)
        check_at_least_zero(where, {"think_s": self.think_s})
        rates = tuple(float(rate) for rate in np.ravel(np.asarray(self.rates_per_s, dtype=float)))
        if not rates:
            raise ModelError(f"{where}: rates_per_s", "needs at least one")
        check_rates(where, {f"rates_per_s[{index}]": rate for index, rate in enumerate(rates)})
        object.__setattr__(self, "rates_per_s", rates)

    @property
    def name(self) -> str:
        """A name in the style of Kendall's notation."""
        return f"M/w(n)/{self.slots}//{self.clients}"

    @cached_property
    def _rates(self) -> Array:
        return np.array(self.rates_per_s)


@dataclass(frozen=True)
class ClosedMMc(ClosedChain):
    """The machine repairman model, M/M/c//N: N customers, a delay station, and one station of c servers.

    Assumes exponential service of mean `service_s`, first come first served. The delay (think time plus
    all other time without queueing) has mean `think_s` and any distribution: a delay station is insensitive to it
    (BCMP theorem). Birth-death chain on the number n at the servers, birth rate (N - n) / Z,
    death rate min(n, c) / S (Kleinrock, vol. 1, 3.8; Jain, 34.3); a special case of ClosedBirthDeath.

    Raises:
        ModelError: unless clients >= 1, servers >= 1, service time > 0 and think time >= 0.
    """

    clients: int
    servers: int
    service_s: float
    think_s: float

    def __post_init__(self) -> None:
        where = "M/M/c//N"
        check_whole(where, "clients", self.clients, 1)
        check_whole(where, "servers", self.servers, 1)
        check_rates(where, {"service_s": self.service_s})
        check_at_least_zero(where, {"think_s": self.think_s})

    @property
    def name(self) -> str:
        """Kendall's notation."""
        return f"M/M/{self.servers}//{self.clients}"

    @cached_property
    def _rates(self) -> Array:
        return np.arange(1, self.servers + 1) / self.service_s


def _thinks(clients: int, think_s: float) -> bool:
    """Whether there is a think time; one whose rate would overflow counts as none."""
    return think_s > 0 and clients / float(think_s) < 1e300


def _rates_to(clients: int, rates_per_s: Array) -> Array:
    return rates_per_s[np.minimum(np.arange(clients), rates_per_s.size - 1)]
