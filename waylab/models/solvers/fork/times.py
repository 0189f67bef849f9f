"""Waiting for the legs of a fork: order statistics and synchronisation. Knows no networks.

Times in seconds, rates per second. A leg's service is exponential; legs of one request are served independently.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from waylab.models.errors import ModelError

Array = NDArray[np.float64]
# Quadrature: panels of the time axis, from this share of the shortest mean to this multiple of the longest.
_FIRST = 1e-3
_LAST = 45.0
_PANELS = 36
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
# Up to this many times, all their subsets are enumerated.
_SETS_MAX = 8
_TOLERANCE = 1e-12


def harmonic(branches: int) -> float:
    """1 + 1/2 + ... + 1/K: the mean of the largest of K exponential times of mean 1.

    Raises:
        ModelError: for fewer than one branch.
    """
    return math.fsum(1 / number for number in range(1, _whole("branches", branches) + 1))


def order_statistic_s(means_s: Sequence[float], needed: int, delays_s: Sequence[float] = ()) -> float:
    """Mean time until `needed` of K independent exponential times are over; time i begins after `delays_s[i]`.

    Equal means without delays: mean times (1/K + 1/(K-1) + ...), `needed` terms. Up to 8 means without delays:
    inclusion and exclusion, the sum over all sets A of those times of c(|A|) / sum of their rates, with
    c(j) = (-1)^(j-m) C(j-1, m-1), m = K - needed + 1. Otherwise the integral over t of the probability that fewer than
    `needed` are over at t (a Poisson binomial distribution, so a sum of positive terms), by Gauss-Legendre quadrature,
    accurate to about 1e-12. Source: David and Nagaraja, Order Statistics (2003), 5.3.

    Raises:
        ModelError: for a mean or delay that is negative or not finite, or `needed` outside 1..K.
    """
    means = np.array(means_s, dtype=float)
    delays = np.array(delays_s, dtype=float) if len(delays_s) else np.zeros(len(means))
    if means.ndim != 1 or not len(means) or delays.shape != means.shape:
        raise ModelError("means_s", "must name at least one time, and delays_s as many or none")
    for name, values in (("means_s", means), ("delays_s", delays)):
        if not np.isfinite(values).all() or (values < 0).any():
            raise ModelError(name, f"must be finite numbers >= 0, not {values.tolist()}")
    if not 1 <= needed <= len(means):
        raise ModelError("needed", f"must lie between 1 and {len(means)}, not {needed}")
    if not means.any():
        return float(np.sort(delays)[needed - 1])
    if not delays.any() and np.ptp(means) <= _TOLERANCE * means[0]:
        return float(means[0]) * math.fsum(1 / left for left in range(len(means), len(means) - needed, -1))
    if not delays.any() and means.all() and len(means) <= _SETS_MAX:
        members, signs = _sets(len(means), needed)
        return float(signs @ (1 / (members @ (1 / means))))
    times, weights = _grid(means, delays)
    return float(weights @ _fewer_than(needed, times, means, delays))


def left_behind(means_s: Sequence[float], needed: int, delays_s: Sequence[float] = ()) -> Array:
    """(K,) probability that each of K independent exponential times is not among the first `needed` that are over.

    The integral of its density times the probability that at least `needed` of the others are over. Means above 0.
    """
    means = np.array(means_s, dtype=float)
    delays = np.array(delays_s, dtype=float) if len(delays_s) else np.zeros(len(means))
    if np.ptp(means) == 0 and not delays.any():
        return np.full(len(means), 1 - needed / len(means))
    times, weights = _grid(means, delays)
    left = np.zeros(len(means))
    for index, (mean, delay) in enumerate(zip(means, delays, strict=True)):
        others = np.arange(len(means)) != index
        fewer = _fewer_than(needed, times, means[others], delays[others])
        density = np.where(times > delay, np.exp(-np.maximum(times - delay, 0.0) / mean) / mean, 0.0)
        left[index] = weights @ (density * (1 - fewer))
    return left


def synchronisation(branches: int, rho: float) -> float:
    """Ratio of the response time of K forked queues to that of one M/M/1; rho 0 gives H_K.

    (H_K / H_2 + 4/11 (1 - H_K / H_2) rho) (12 - rho) / 8: exact for K = 1 and 2, within 5 % of simulation up to K = 32
    according to the authors. Source: Nelson and Tantawi, Approximate analysis of fork/join synchronization in parallel
    queues, IEEE Trans. Computers 37 (1988), eq. 6 and 19.
    """
    if branches == 1:
        return 1.0
    more = harmonic(branches) / 1.5
    return (more + 4 / 11 * (1 - more) * rho) * (12 - rho) / 8


@lru_cache(maxsize=64)
def _sets(count: int, needed: int) -> tuple[Array, Array]:
    """All nonempty subsets of `count` times, as rows of 0 and 1, and their coefficients."""
    members = np.array(
        [[index >> bit & 1 for bit in range(count)] for index in range(1, 2**count)], dtype=float
    )
    least = count - needed + 1
    signs = [
        (-1.0) ** (size - least) * math.comb(size - 1, least - 1) if size >= least else 0.0
        for size in members.sum(axis=1).astype(int).tolist()
    ]
    return members, np.array(signs)


def _grid(means: Array, delays: Array) -> tuple[Array, Array]:
    """Times and weights of the quadrature: panels between the starts of legs, finer after each start."""
    shortest = means[means > 0].min()
    steps = np.concatenate([[0.0], np.geomspace(_FIRST * shortest, _LAST * means.max(), _PANELS)])
    edges = np.unique(np.concatenate([delay + steps for delay in np.unique(delays)]))
    widths = np.diff(edges)
    times = edges[:-1, None] + widths[:, None] * (_NODES + 1) / 2
    return times.ravel(), (widths[:, None] * _WEIGHTS / 2).ravel()


def _fewer_than(needed: int, times: Array, means: Array, delays: Array) -> Array:
    """P(fewer than `needed` are over at a time), for each time."""
    counts = np.zeros((needed, len(times)))
    counts[0] = 1.0
    for mean, delay in zip(means, delays, strict=True):
        passed = np.maximum(times - delay, 0.0)
        left = np.exp(-passed / mean) if mean > 0 else (times < delay).astype(float)
        over = -np.expm1(-passed / mean) if mean > 0 else (times >= delay).astype(float)
        counts[1:] = counts[1:] * left + counts[:-1] * over
        counts[0] *= left
    return np.asarray(counts.sum(axis=0))


def _whole(name: str, number: int) -> int:
    if isinstance(number, bool) or int(number) != number or number < 1:
        raise ModelError(name, f"must be a whole number >= 1, not {number}")
    return int(number)
