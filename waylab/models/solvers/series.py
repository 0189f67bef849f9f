"""One closed chain at queues of its own: products of one-dimensional series of logarithms.

One series, `others`, describes all other places of the chain. Knows no networks.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from waylab.models.solvers.log_sums import accumulate, convolve, leave_one_out, log_sum
from waylab.models.solvers.weights import QueueingStation, factors, kinds, log_capacity, waiting_of

Array = NDArray[np.float64]


def multiplier(queue: QueueingStation, size: int) -> Callable[[Array], Array]:
    """Function that multiplies a series of this size by the weights of a queue with one chain."""
    log_demand = float(np.log(queue.demands_s[0]))
    log_factors, last = factors(queue.rates, size - 1)
    log_factors = log_factors + np.arange(len(log_factors)) * log_demand

    def times(values: Array) -> Array:
        values = convolve(values, log_factors)
        return values if last is None else accumulate(values, log_demand - np.log(last))

    return times


def times_all(values: Array, queues: Sequence[QueueingStation]) -> Array:
    """Multiply a series by the weights of several queues with one chain."""
    firsts, members = kinds(queues)
    for first, same in zip(firsts, members, strict=True):
        times = multiplier(queues[first], len(values))
        for _ in same:
            values = times(values)
    return values


def solve_series(
    others: Array, queues: Sequence[QueueingStation]
) -> tuple[float, list[tuple[float, float, Array]]]:
    """Throughput of the chain; and for each queue the mean present, the mean waiting, and P(n present), n = 0..N.

    `others` (N + 1,) weighs n customers anywhere else: delays, and queues that are shared with other chains.
    """
    if not queues:
        return float(np.exp(others[-2] - others[-1])), []
    firsts, members = kinds(queues)
    times = [multiplier(queues[first], len(others)) for first in firsts]
    leaves = leave_one_out(others, [len(same) for same in members], lambda values, kind: times[kind](values))
    found: list[tuple[float, float, Array]] = [(0.0, 0.0, others)] * len(queues)
    for first, same, rest in zip(firsts, members, leaves, strict=True):
        numbers = _split(queues[first], rest)
        for index in same:
            found[index] = numbers
    weights, rest = _weights(queues[firsts[0]], len(others)), leaves[0]
    throughput = np.exp(log_sum(weights[:-1] + rest[-2::-1]) - log_sum(weights + rest[::-1]))
    return float(throughput), found


def _weights(queue: QueueingStation, size: int) -> Array:
    return np.asarray(log_capacity(queue.rates, size - 1) + np.arange(size) * np.log(queue.demands_s[0]))


def _split(queue: QueueingStation, rest: Array) -> tuple[float, float, Array]:
    joint = _weights(queue, len(rest)) + rest[::-1]
    present = np.exp(joint - log_sum(joint))
    return float(present @ np.arange(len(rest))), float(present @ waiting_of(queue, len(rest) - 1)), present
