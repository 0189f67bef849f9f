"""The weight of n requests at one station of a product-form network, as a polynomial times a geometric series.

A station with rates r(1), r(2), ... (the last for all larger n) has the weight c(n) = 1 / (r(1) ... r(n)) times the
work to the power n. Knows neither chains nor networks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from waylab.models.description import Station
from waylab.models.solvers.log_sums import log_of, log_sum

Array = NDArray[np.float64]
# By how much a rate may exceed the last one and still count as rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class QueueingStation:
    """A station that is not a delay, as the customers of R closed chains see it.

    `demands_s` (R,): seconds of work that a request of each chain brings. `rates` (M,): the speed with 1, 2, ...
    present; the last for all larger n. `alone` is the speed that a request has alone, in an empty network. `first`
    (N + 1,) is None unless the whole speed serves the first request alone; then it is the probability that this is a
    request of a closed chain while n = 0..N of them are present.
    """

    demands_s: Array
    rates: Array
    alone: float
    first: Array | None = None

    @property
    def key(self) -> tuple[bytes, bytes, float, bytes]:
        """Equal for identical stations."""
        first = b"" if self.first is None else self.first.tobytes()
        return self.demands_s.tobytes(), self.rates.tobytes(), self.alone, first


def serves_one_at_a_time(station: Station) -> bool:
    """Whether the station has rates and serves in order of arrival: its whole speed serves the first request."""
    return bool(station.rates) and station.discipline != "ps"


def station_rates(station: Station, most: int | None = None) -> Array:
    """Speeds with 1, 2, ... present, until they are constant, or up to `most` present."""
    if station.rates:
        rates = np.array(station.rates)
    else:
        assert station.servers is not None, "a delay has no last rate"
        last = station.servers if most is None else max(1, min(station.servers, most))
        rates = np.arange(1.0, last + 1.0)
    if most is not None:
        rates = rates[: max(1, most)]
    different = np.flatnonzero(rates != rates[-1])
    return rates[: (different[-1] + 2 if different.size else 1)]


def rates_up_to(rates: Array, most: int) -> Array:
    """Speeds with 1..most present."""
    if len(rates) >= most:
        return rates[:most]
    return np.concatenate([rates, np.full(most - len(rates), rates[-1])])


def log_capacity(rates: Array, most: int) -> Array:
    """Log of c(n) = 1 / (r(1) ... r(n)) for n = 0..most."""
    return np.concatenate([[0.0], -np.cumsum(np.log(rates_up_to(rates, most)))])


def factors(rates: Array, most: int) -> tuple[Array, float | None]:
    """Split the series c(n) into log of a polynomial p and the last rate r: sum c(n) w^n = p(w) / (1 - w / r).

    p(n) = c(n) (1 - r(n) / r) has as many terms as there are different rates, and none is negative while no rate
    exceeds the last. Otherwise p is the series itself up to `most`, and there is no last rate (None).
    For m servers: Reiser and Kobayashi (1975), with p(n) = c(n) (1 - n/m), n < m.
    """
    rates = rates[: max(1, most)]
    last = float(rates[-1])
    if (rates > last * (1 + _ROUNDING)).any():
        return log_capacity(rates, most), None
    left = np.maximum(1 - np.concatenate([[0.0], rates[:-1]]) / last, 0.0)
    return log_capacity(rates, len(rates) - 1) + log_of(left), last


def rates_beside_open(rates: Array, load: float) -> Array:
    """Speeds that n closed customers see at a station that also serves open classes of `load` (seconds per second).

    Summing out the j open requests gives the weights c'(n) = sum over j of C(n+j, j) load^j c(n+j), and the speeds
    c'(n-1) / c'(n); beyond the last different rate they are r - load. The tail of the sum has closed form; every
    term is positive. For one server: 1 - load (Lavenberg and Reiser, 1980).
    """
    if load == 0:
        return rates
    different = len(rates) - 1
    left = float(rates[-1]) - load
    capacity = log_capacity(rates, different)
    count = np.arange(different + 1)
    log_load = np.log(load)
    weights = np.empty(different + 1)
    # Terms up to the last different rate are summed one by one; the number of requests beyond it is geometric.
    tail = capacity[-1] - np.log(left / rates[-1])
    powers = _log_choose(different, count) + (different - count) * log_load
    for present in count:
        others = np.arange(different - present)
        head = (
            _log_choose(present + others, others)
            + others * log_load
            + capacity[present : present + len(others)]
        )
        rest = tail + powers[: present + 1] - (present - count[: present + 1]) * np.log(left)
        weights[present] = log_sum(np.concatenate([head, rest]))
    return np.concatenate([np.exp(weights[:-1] - weights[1:]), [left]])


def waiting_of(queue: QueueingStation, most: int) -> Array:
    """For n = 0..most present, the number that waits.

    With servers or processor sharing it is the number in excess of a system without contention, n - r(n) / r(1).
    """
    if queue.first is not None:
        return np.asarray(np.arange(most + 1) - queue.first[: most + 1])
    return excess(queue.rates, most, queue.alone)


def excess(rates: Array, most: int, alone: float) -> Array:
    """For n = 0..most present, n minus the speed in units of the speed with one request."""
    return np.asarray(np.arange(most + 1) - np.concatenate([[0.0], rates_up_to(rates, most)]) / alone)


def closed_is_first(rates: Array, load: float, most: int) -> Array:
    """Probability that the first request is a closed one, with n = 0..most closed requests and an open load present.

    The order of all present is random, so it is the mean of n / (n + j) over the number j of open requests, whose
    weights are C(n+j, j) load^j c(n+j). The sum ends where the rest is below the rounding error.
    """
    count = np.arange(most + 1)
    if load == 0:
        return np.asarray(np.minimum(count, 1.0))
    ratio = load / float(rates[-1])
    spread = math.sqrt(most * ratio) / (1 - ratio)
    last = math.ceil(most * ratio / (1 - ratio) + 12 * spread - 50 / math.log(ratio)) + len(rates) + 50
    others = np.arange(last + 1)
    capacity = log_capacity(rates, most + last)
    shares = np.zeros(most + 1)
    for present in count[1:]:
        weights = (
            _log_choose(present + others, others) + others * math.log(load) + capacity[present:][: last + 1]
        )
        likely = np.exp(weights - weights.max())
        shares[present] = (likely @ (present / (present + others))) / likely.sum()
    return shares


def kinds(queues: Sequence[QueueingStation]) -> tuple[list[int], list[list[int]]]:
    """Group identical queues: the first of each kind, and all of the kind."""
    groups: dict[tuple[bytes, bytes, float, bytes], list[int]] = {}
    for index, queue in enumerate(queues):
        groups.setdefault(queue.key, []).append(index)
    return [same[0] for same in groups.values()], list(groups.values())


def _log_choose(total: NDArray[np.int64] | int, chosen: NDArray[np.int64]) -> Array:
    return np.asarray(
        gammaln(np.add(total, 1.0)) - gammaln(chosen + 1.0) - gammaln(np.subtract(total, chosen) + 1.0)
    )
