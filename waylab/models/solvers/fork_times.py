"""How long a request waits for its legs: formulas for fork and join with one fork and nothing else. No networks.

Times in seconds, rates per second. A leg's service is exponential; legs of one request are served independently.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from waylab.models.errors import ModelError, UnstableError

Array = NDArray[np.float64]
# Quadrature: panels of the time axis, from this share of the shortest mean to so many of the longest.
_FIRST = 1e-3
_LAST = 45.0
_PANELS = 36
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
# Up to so many times all their sets are listed.
_SETS_MAX = 8
_ROUNDS_MAX = 10_000
_TOLERANCE = 1e-12


class ClosedForkJoin(NamedTuple):
    """What N customers get who think, fork, and join again."""

    throughput_per_s: float
    response_s: float


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
    right to about 1e-12. Source: David and Nagaraja, Order Statistics (2003), 5.3.

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


def two_branches_response_s(arrivals_per_s: float, services_per_s: float) -> float:
    """Open fork-join of two M/M/1: (12 - rho) / 8 / (mu - lambda). Exact.

    Source: Flatto and Hahn (1984); Nelson and Tantawi, Approximate analysis of fork/join synchronization in parallel
    queues, IEEE Trans. Computers 37 (1988), eq. 6.

    Raises:
        UnstableError: when lambda is not below mu.
    """
    rho = _stable(arrivals_per_s, services_per_s)
    return (12 - rho) / 8 / (services_per_s - arrivals_per_s)


def nelson_tantawi_response_s(arrivals_per_s: float, services_per_s: float, branches: int) -> float:
    """Open fork-join of K M/M/1: exact for K = 1 and 2, within 5 % of simulation up to K = 32 (their claim).

    R = (H_K / H_2 + 4/11 (1 - H_K / H_2) rho) (12 - rho) / 8 / (mu - lambda).
    Source: Nelson and Tantawi (1988), eq. 19.

    Raises:
        UnstableError: when lambda is not below mu.
        ModelError: for fewer than one branch.
    """
    rho = _stable(arrivals_per_s, services_per_s)
    return synchronisation(_whole("branches", branches), rho) / (services_per_s - arrivals_per_s)


def interpolated_response_s(arrivals_per_s: float, services_per_s: float, branches: int) -> float:
    """Open fork-join of K M/M/1, between its light and its heavy traffic limit: exact in both, and for K = 1 and 2.

    R = (H_K + (V_K - H_K) rho) / (mu - lambda), with V_K = sum over r = 1..K of C(K, r) (-1)^(r-1) times the sum over
    m = 1..r of C(r, m) (m-1)! / r^(m+1). The alternating sum is done in whole numbers.
    Source: Varma and Makowski, Interpolation approximations for symmetric fork-join queues, Performance Evaluation 20
    (1994).

    Raises:
        UnstableError: when lambda is not below mu.
        ModelError: for fewer than one branch, or more than 100.
    """
    rho = _stable(arrivals_per_s, services_per_s)
    light = harmonic(branches)
    return (light + (_heavy(branches) - light) * rho) / (services_per_s - arrivals_per_s)


def split_merge_response_s(arrivals_per_s: float, services_per_s: float, branches: int) -> float:
    """Open split-merge: the next request forks only when all K legs of the one before are done. Exact.

    An M/G/1 queue whose service is the largest of K exponential times: mean H_K / mu, variance (1 + 1/4 + ... + 1/K^2)
    / mu^2. Source: Harrison and Zertal, Queueing models of RAID systems with maxima of waiting times (2007), 2.

    Raises:
        UnstableError: when lambda H_K is not below mu: far earlier than without the barrier.
    """
    _positive(arrivals_per_s, services_per_s)
    mean_s = harmonic(branches) / services_per_s
    rho = arrivals_per_s * mean_s
    if rho >= 1:
        raise UnstableError("split-merge", rho)
    second = mean_s**2 + math.fsum(1 / number**2 for number in range(1, branches + 1)) / services_per_s**2
    return mean_s + arrivals_per_s * second / 2 / (1 - rho)


def varki_closed(service_s: float, branches: int, population: int, think_s: float = 0.0) -> ClosedForkJoin:
    """Closed fork-join of K equal FCFS stations and a think time: mean-value analysis.

    R(n) = S (H_K + L(n-1)), X(n) = n / (Z + R(n)), L(n) = X(n) R(n), L the requests between fork and join.
    Exact for K = 1, for one customer, and for K = 2 without think time; else too slow: by at most 2.4 % in X and 4.6 %
    in R against the exact chain, for Z 0..12 S and K 2 N 1..12, K 3 N 1..8, K 4 N 1..5.
    Source: Varki, Mean value technique for closed fork-join networks, SIGMETRICS 1999; Response time analysis of
    parallel computer and storage systems, IEEE Trans. Parallel and Distributed Systems 12 (2001).

    Raises:
        ModelError: for a service time that is not above 0, or numbers below 1.
    """
    alone = harmonic(branches)
    _closed_numbers((service_s,), population, think_s)
    inside = 0.0
    response_s = throughput = 0.0
    for present in range(1, population + 1):
        response_s = service_s * (alone + inside)
        throughput = present / (think_s + response_s)
        inside = throughput * response_s
    return ClosedForkJoin(throughput, response_s)


def complementary_delays_closed(
    services_s: Sequence[float], population: int, think_s: float = 0.0
) -> ClosedForkJoin:
    """Closed fork-join of K different FCFS stations and a think time: the method of complementary delays.

    Each leg is a chain of N customers of its own: its station, the think time, and a delay in which it waits for its
    siblings. That station sees N sources that are away for Z + R - R_i; R is the mean of the largest of independent
    exponential times of means R_i; a damped fixed point. Against the exact chain, for the numbers of `varki_closed`,
    off by at most 8.3 % in X (too fast without think time) and 7.7 % in R.
    Source: Heidelberger and Trivedi, Analytic queueing models for programs with internal concurrency, IEEE Trans.
    Computers 32 (1983), 4.

    Raises:
        ModelError: for a service time that is not above 0, a population below 1, or no convergence.
    """
    _closed_numbers(services_s, population, think_s)
    services = np.array(services_s, dtype=float)
    legs_s = services.copy()
    response_s = order_statistic_s(legs_s, len(legs_s))
    for _ in range(_ROUNDS_MAX):
        away_s = think_s + response_s - legs_s
        found = np.array(
            [_among_sources(s, float(away), population) for s, away in zip(services, away_s, strict=True)]
        )
        legs_s = np.sqrt(legs_s * found)
        last_s, response_s = response_s, order_statistic_s(legs_s, len(legs_s))
        if abs(math.log((think_s + response_s) / (think_s + last_s))) < _TOLERANCE:
            return ClosedForkJoin(population / (think_s + response_s), response_s)
    raise ModelError("complementary delays", f"did not converge in {_ROUNDS_MAX} rounds")


def synchronisation(branches: int, rho: float) -> float:
    """Nelson and Tantawi's ratio of the response time of K forked queues to that of one; rho 0 gives H_K."""
    if branches == 1:
        return 1.0
    more = harmonic(branches) / 1.5
    return (more + 4 / 11 * (1 - more) * rho) * (12 - rho) / 8


@lru_cache(maxsize=64)
def _sets(count: int, needed: int) -> tuple[Array, Array]:
    """All sets of `count` times but the empty one, as rows of 0 and 1, and the coefficient of each."""
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
    """Times and weights of the quadrature: panels between the moments at which legs begin, finer after each of them."""
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


def _heavy(branches: int) -> float:
    if branches > 100:
        raise ModelError("branches", f"must be at most 100, not {branches}")
    # Over the common denominator of all r^(m+1) the sum is whole.
    unit = math.lcm(*range(1, branches + 1)) ** (branches + 1)
    total = 0
    for r in range(1, branches + 1):
        inner = sum(math.comb(r, m) * math.factorial(m - 1) * (unit // r ** (m + 1)) for m in range(1, r + 1))
        total += (-1) ** (r - 1) * math.comb(branches, r) * inner
    return total / unit


def _among_sources(service_s: float, away_s: float, population: int) -> float:
    """Response time of a single server whose N sources are away for `away_s`: mean-value analysis."""
    length = response_s = 0.0
    for present in range(1, population + 1):
        response_s = service_s * (1 + length)
        length = present * response_s / (away_s + response_s)
    return response_s


def _positive(arrivals_per_s: float, services_per_s: float) -> None:
    for name, rate in (("arrivals_per_s", arrivals_per_s), ("services_per_s", services_per_s)):
        if not (math.isfinite(rate) and rate > 0):
            raise ModelError(name, f"must be a finite number > 0, not {rate}")


def _stable(arrivals_per_s: float, services_per_s: float) -> float:
    _positive(arrivals_per_s, services_per_s)
    rho = arrivals_per_s / services_per_s
    if rho >= 1:
        raise UnstableError("fork-join", rho)
    return rho


def _whole(name: str, number: int) -> int:
    if isinstance(number, bool) or int(number) != number or number < 1:
        raise ModelError(name, f"must be a whole number >= 1, not {number}")
    return int(number)


def _closed_numbers(services_s: Sequence[float], population: int, think_s: float) -> None:
    _whole("population", population)
    for service_s in services_s:
        if not (math.isfinite(service_s) and service_s > 0):
            raise ModelError("service_s", f"must be a finite number > 0, not {service_s}")
    if not (math.isfinite(think_s) and think_s >= 0):
        raise ModelError("think_s", f"must be a finite number >= 0, not {think_s}")
