"""A closed cycle of two stations whose rates depend on the number present: exact, with derivatives.

Clients are either outside (think time, network, the clients' machines) or inside (waiting for a worker, or held by
one). With k outside, requests arrive at rate k / z(k); with n inside, min(n, W) workers are busy and requests leave at
rate b / w(b), where b is the number of busy workers and W the size of the pool.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CycleMeans:
    """Steady-state means: rate per second, times in seconds, numbers of requests."""

    throughput_per_s: float
    inside_s: float
    holding_s: float
    busy: float
    waiting: float


def cycle_shares(log_arrivals: Array, log_departures: Array) -> Array:
    """Probabilities of n = 0..N inside.

    `log_arrivals[n]` is the logarithm of the rate of arrivals with n inside, n = 0..N-1; `log_departures[n]` that of
    departures with n + 1 inside.
    """
    logs = np.zeros(len(log_arrivals) + 1)
    np.cumsum(log_arrivals - log_departures, out=logs[1:])
    shares = np.exp(logs - logs.max())
    return np.asarray(shares / shares.sum())


def cycle_means(shares: Array, departures: Array, busy: Array, grain: int = 1) -> CycleMeans:
    """Means of a cycle with these probabilities; `busy[n]` workers are busy with n / grain inside."""
    throughput = float(shares[1:] @ departures)
    inside = float(shares @ np.arange(len(shares))) / grain
    working = float(shares @ busy)
    return CycleMeans(throughput, inside / throughput, working / throughput, working, inside - working)


def cycle_slopes(
    shares: Array, departures: Array, busy: Array, outside_by: Array, holding_by: Array
) -> tuple[Array, Array, Array]:
    """Derivatives of ln X, of ln of the time inside and of ln of the holding time, each of shape (parameters,).

    `outside_by[n]` and `holding_by[n]` are the derivatives of ln z with n inside and of ln w with n + 1 inside, of
    shape (N, parameters). The derivative of a mean f is its covariance with that of ln p, which is a cumulative sum;
    summed by parts, it needs one product for each mean.
    """
    counts = np.arange(len(shares))
    found = []
    for values in (np.concatenate(([0.0], departures)), counts.astype(float), busy):
        mean = shares @ values
        tails = np.cumsum((shares * (values - mean))[::-1])[::-1][1:]
        found.append((tails / mean) @ (holding_by - outside_by))
    direct = (shares[1:] * departures) / (shares[1:] @ departures)
    by_throughput = found[0] - direct @ holding_by
    return by_throughput, found[1] - by_throughput, found[2] - by_throughput
