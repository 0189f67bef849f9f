"""Two forms of waiting times in queues with exponential service, and the response times that follow from them.

Knows no queue: only the probability of waiting, the number of requests ahead, and the rate at which they leave.
"""

import math
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from scipy.special import exprel

from waylab.models.elementary.queue import Queue
from waylab.models.uniformisation import check_share, poisson_window

Array = NDArray[np.float64]


class ExponentialWait(Queue):
    """Queues where a request that waits does so for an exponential time: P(W > t) = C exp(-d t).

    C is `waits_probability`; the service that follows is exponential and independent of the waiting.
    """

    @property
    def waiting_mean_s(self) -> float:
        """Mean waiting time, C / d."""
        return self.waits_probability / self._waiting_rate_per_s

    @property
    def waiting_variance_s2(self) -> float:
        """Variance of the waiting time, C (2 - C) / d^2."""
        return self.waits_probability * (2 - self.waits_probability) / self._waiting_rate_per_s**2

    @property
    def response_mean_s(self) -> float:
        """Mean response time, waiting plus service."""
        return self.waiting_mean_s + 1 / self._service_rate_per_s

    @property
    def response_variance_s2(self) -> float:
        """Variance of the response time: waiting and service are independent."""
        return self.waiting_variance_s2 + 1 / self._service_rate_per_s**2

    def waiting_quantile_s(self, share: float) -> float:
        """Quantile of the waiting time, ln(C / (1 - share)) / d, or 0."""
        check_share(share)
        chance = self.waits_probability
        if chance <= 1 - share:
            return 0.0
        return (math.log(chance) - math.log1p(-share)) / self._waiting_rate_per_s

    @property
    def _waiting_rate_per_s(self) -> float:
        raise NotImplementedError

    @property
    def _service_rate_per_s(self) -> float:
        raise NotImplementedError

    def _waiting_survival(self, time_s: float) -> float:
        return self.waits_probability * math.exp(-self._waiting_rate_per_s * time_s)

    def _response_survival(self, time_s: float) -> float:
        # P(S + V > t) = P(S > t) + mu * integral of exp(-mu s) exp(-d (t - s)) over s in 0..t. The usual difference of
        # two exponentials over mu - d is undefined where the two rates are equal; this form is not.
        service, waiting = self._service_rate_per_s, self._waiting_rate_per_s
        slow, apart = min(service, waiting), abs(service - waiting)
        both = time_s * math.exp(-slow * time_s) * float(exprel(-apart * time_s))
        return math.exp(-service * time_s) + self.waits_probability * service * both


class Line:
    """Waiting time behind others that leave at a constant rate, followed by an exponential service.

    `ahead[j]` is the probability that j departures precede the service; they form a Poisson process at
    `departures_per_s` while any request waits. Both the waiting time and the response time are
    phase-type; they are summed over the number of departures (uniformisation), with positive terms only.
    """

    def __init__(self, ahead: Array, departures_per_s: float, services_per_s: float) -> None:
        self._ahead = ahead
        self._departures_per_s = departures_per_s
        self._services_per_s = services_per_s
        # Still in the line after k departures.
        self._in_line = np.concatenate((np.cumsum(ahead[:0:-1])[::-1], [0.0]))
        # With each departure of the full station, the request's own service ends with probability mu / rate.
        self._stay = max(0.0, 1 - services_per_s / departures_per_s)
        self._in_service = np.fromiter(accumulate(ahead.tolist(), self._next_in_service), float)

    @property
    def waits_probability(self) -> float:
        """Probability of waiting."""
        return float(self._in_line[0])

    @property
    def waiting_mean_s(self) -> float:
        """Mean of the waiting time."""
        return self._ahead_mean / self._departures_per_s

    @property
    def waiting_variance_s2(self) -> float:
        """Variance of the waiting time: that of a random number of exponential times."""
        mean = self._ahead_mean
        spread = float(self._ahead @ (np.arange(self._ahead.size) - mean) ** 2)
        return (mean + spread) / self._departures_per_s**2

    @property
    def response_variance_s2(self) -> float:
        """Variance of waiting plus service."""
        return self.waiting_variance_s2 + 1 / self._services_per_s**2

    def waiting_survival(self, time_s: float) -> float:
        """Probability of a longer waiting time."""
        first, weights = poisson_window(self._departures_per_s * time_s)
        remaining = self._in_line[first : first + weights.size]
        return float(weights[: remaining.size] @ remaining)

    def response_survival(self, time_s: float) -> float:
        """Probability of a longer response time."""
        first, weights = poisson_window(self._departures_per_s * time_s)
        counts = np.arange(first, first + weights.size)
        last = self._ahead.size - 1
        seen = np.minimum(counts, last)
        remaining = self._in_service[seen] * self._stay ** (counts - seen) + self._in_line[seen]
        return float(weights @ remaining)

    def _next_in_service(self, remaining: float, new: float) -> float:
        return remaining * self._stay + new

    @property
    def _ahead_mean(self) -> float:
        return float(self._ahead @ np.arange(self._ahead.size))
