"""The common interface of all single queues, with everything that follows from Little's law."""

import math
from typing import NoReturn

from waylab.models.elementary.input_checks import check_whole
from waylab.models.errors import AssumptionError, ModelError
from waylab.models.uniformisation import check_share, quantile


class Queue:
    """A queue in its steady state. Rates per second and times in seconds are those of accepted requests.

    A property that is unknown under the queue's assumptions raises AssumptionError. The response time is waiting plus
    service; `std` is the standard deviation. A busy period lasts from an arrival at the empty system until the system
    is empty again, with any number of servers.
    """

    kind = "exact"
    """`exact` or `approximation`."""

    arrivals_per_s: float
    """Offered arrivals: given for an open queue, a result for a closed one."""

    @property
    def name(self) -> str:
        """Kendall's notation."""
        return type(self).__name__

    @property
    def loss_probability(self) -> float:
        """Share of the arrivals that are lost."""
        return 0.0

    @property
    def throughput_per_s(self) -> float:
        """Accepted arrivals, and so completions."""
        return self.arrivals_per_s

    @property
    def utilisation(self) -> float:
        """Share of time that one server is busy."""
        self._unknown("the utilisation")

    @property
    def busy_mean(self) -> float:
        """Mean number of busy servers, by Little's law the throughput times the time in service."""
        return self.throughput_per_s * (self.response_mean_s - self.waiting_mean_s)

    @property
    def waits_probability(self) -> float:
        """Probability that an accepted request waits before service."""
        self._unknown("the probability of queueing")

    @property
    def waiting_mean_s(self) -> float:
        """Mean waiting time."""
        self._unknown("waiting")

    @property
    def waiting_variance_s2(self) -> float:
        """Variance of the waiting time."""
        self._unknown("the deviation of waiting")

    @property
    def waiting_std_s(self) -> float:
        """Standard deviation of the waiting time."""
        return math.sqrt(self.waiting_variance_s2)

    @property
    def response_mean_s(self) -> float:
        """Mean response time."""
        self._unknown("the response time")

    @property
    def response_variance_s2(self) -> float:
        """Variance of the response time."""
        self._unknown("the deviation of the response time")

    @property
    def response_std_s(self) -> float:
        """Standard deviation of the response time."""
        return math.sqrt(self.response_variance_s2)

    @property
    def in_system_mean(self) -> float:
        """Mean number waiting or in service, L = X R."""
        return self.throughput_per_s * self.response_mean_s

    @property
    def in_system_variance(self) -> float:
        """Variance of the number waiting or in service."""
        self._unknown("the deviation of the number in the system")

    @property
    def in_system_std(self) -> float:
        """Standard deviation of the number waiting or in service."""
        return math.sqrt(self.in_system_variance)

    @property
    def queue_length_mean(self) -> float:
        """Mean number waiting, Lq = X W."""
        return self.throughput_per_s * self.waiting_mean_s

    @property
    def queue_length_variance(self) -> float:
        """Variance of the number waiting."""
        self._unknown("the deviation of the queue length")

    @property
    def queue_length_std(self) -> float:
        """Standard deviation of the number waiting."""
        return math.sqrt(self.queue_length_variance)

    def probability(self, present: int) -> float:
        """Probability that `present` requests are waiting or in service."""
        check_whole(self.name, "present", present, 0)
        return self._probability(int(present))

    def waiting_cdf(self, time_s: float) -> float:
        """Probability that an accepted request waits at most this long."""
        return 0.0 if time_s < 0 else 1 - self._waiting_survival(time_s)

    def response_cdf(self, time_s: float) -> float:
        """Probability of a response time of at most this length."""
        return 0.0 if time_s < 0 else 1 - self._response_survival(time_s)

    def waiting_quantile_s(self, share: float) -> float:
        """Quantile of the waiting time of accepted requests.

        Raises:
            ModelError: for a share outside of 0 to 1.
            AssumptionError: when the distribution is not known.
        """
        check_share(share)
        if self._waiting_survival(0.0) <= 1 - share:
            return 0.0
        return quantile(self._waiting_survival, share, self.waiting_mean_s)

    def response_quantile_s(self, share: float) -> float:
        """Quantile of the response time of accepted requests.

        Raises:
            ModelError: for a share outside of 0 to 1.
            AssumptionError: when the distribution is not known.
        """
        check_share(share)
        return quantile(self._response_survival, share, self.response_mean_s)

    @property
    def busy_period_mean_s(self) -> float:
        """Mean length of a busy period."""
        self._unknown("the busy period")

    @property
    def busy_period_variance_s2(self) -> float:
        """Variance of the length of a busy period."""
        self._unknown("the busy period")

    @property
    def busy_period_std_s(self) -> float:
        """Standard deviation of the length of a busy period."""
        return math.sqrt(self.busy_period_variance_s2)

    @property
    def busy_period_jobs_mean(self) -> float:
        """Mean number of jobs that are served in a busy period."""
        self._unknown("the busy period")

    @property
    def busy_period_jobs_variance(self) -> float:
        """Variance of the number of jobs that are served in a busy period."""
        self._unknown("the busy period")

    @property
    def busy_period_jobs_std(self) -> float:
        """Standard deviation of the number of jobs that are served in a busy period."""
        return math.sqrt(self.busy_period_jobs_variance)

    def _probability(self, present: int) -> float:
        self._unknown("the distribution of the number in the system")

    def _waiting_survival(self, time_s: float) -> float:
        self._unknown("the distribution of waiting")

    def _response_survival(self, time_s: float) -> float:
        self._unknown("the distribution of the response time")

    def _unknown(self, what: str) -> NoReturn:
        raise AssumptionError(self.name, f"nothing that gives {what}", "it was requested")


def finite(name: str, value: float) -> float:
    """Check that a result is a finite floating-point number.

    Raises:
        ModelError: naming the result.
    """
    if not math.isfinite(value):
        raise ModelError(name, "is larger than a floating-point number can be")
    return value
