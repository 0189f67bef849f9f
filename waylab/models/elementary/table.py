"""A single queue as rows to print, with every value that is known of it."""

from collections.abc import Callable

from waylab.models.elementary.queue import Queue
from waylab.models.errors import ModelError

# Name, unit, value.
_ROWS: tuple[tuple[str, str, Callable[[Queue], float]], ...] = (
    ("arrivals", "1/s", lambda queue: queue.arrivals_per_s),
    ("throughput", "1/s", lambda queue: queue.throughput_per_s),
    ("probability of loss", "", lambda queue: queue.loss_probability),
    ("utilisation", "", lambda queue: queue.utilisation),
    ("probability of queueing", "", lambda queue: queue.waits_probability),
    ("busy servers, mean", "", lambda queue: queue.busy_mean),
    ("probability of an empty system", "", lambda queue: queue.probability(0)),
    ("number in system, mean", "", lambda queue: queue.in_system_mean),
    ("number in system, deviation", "", lambda queue: queue.in_system_std),
    ("queue length, mean", "", lambda queue: queue.queue_length_mean),
    ("queue length, deviation", "", lambda queue: queue.queue_length_std),
    ("waiting time, mean", "s", lambda queue: queue.waiting_mean_s),
    ("waiting time, deviation", "s", lambda queue: queue.waiting_std_s),
    ("waiting time, median", "s", lambda queue: queue.waiting_quantile_s(0.5)),
    ("waiting time, 95th percentile", "s", lambda queue: queue.waiting_quantile_s(0.95)),
    ("waiting time, 99th percentile", "s", lambda queue: queue.waiting_quantile_s(0.99)),
    ("response time, mean", "s", lambda queue: queue.response_mean_s),
    ("response time, deviation", "s", lambda queue: queue.response_std_s),
    ("response time, median", "s", lambda queue: queue.response_quantile_s(0.5)),
    ("response time, 95th percentile", "s", lambda queue: queue.response_quantile_s(0.95)),
    ("response time, 99th percentile", "s", lambda queue: queue.response_quantile_s(0.99)),
    ("busy period, mean", "s", lambda queue: queue.busy_period_mean_s),
    ("busy period, deviation", "s", lambda queue: queue.busy_period_std_s),
    ("jobs in a busy period, mean", "", lambda queue: queue.busy_period_jobs_mean),
    ("jobs in a busy period, deviation", "", lambda queue: queue.busy_period_jobs_std),
)


def as_table(queue: Queue) -> list[tuple[str, float, str]]:
    """Rows of name, value and unit, in the same order for all queues, without unknown values.

    Times in seconds, rates per second; a unit of "" belongs to a number, a share or a probability.
    """
    table = []
    for name, unit, value in _ROWS:
        try:
            table.append((name, float(value(queue)), unit))
        except ModelError:
            # Unknown under the assumptions of this queue, or too large for a floating-point number.
            continue
    return table
