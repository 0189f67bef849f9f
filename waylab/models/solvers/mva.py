"""Exact mean-value analysis of closed networks of single servers and delays: an independent check of convolution.

M. Reiser and S. Lavenberg, Mean-value analysis of closed multichain queuing networks (1980). It has no rates
and no multiple servers, because their recursion with p(0) = 1 - sum loses all digits.
"""

import numpy as np
from numpy.typing import NDArray

from waylab.models.errors import AssumptionError
from waylab.models.features import require
from waylab.models.network import Network
from waylab.models.result import Result
from waylab.models.solvers.products import PRODUCT_FORM, closed_part, demands, result

Array = NDArray[np.float64]
# Product of the chains' populations times stations: all their queue lengths are kept.
_NUMBERS_MAX = 50_000_000


def solve_mva(network: Network) -> Result:
    """Solve a closed network of single servers and delays exactly.

    Assumes a product form, as convolution does, and stations whose speed does not depend on the number present. By
    the arrival theorem, a customer of chain r that arrives at a queue sees the network without itself:
    R_kr(n) = D_kr (1 + Q_k(n - e_r)), X_r = n_r / (Z_r + sum R_kr), Q_k = sum X_r R_kr. Times in seconds.

    Raises:
        AssumptionError: for rates, several servers, a feature without a product form, or too many populations.
        ModelError: for a chain without any work.
    """
    require(network, "mva", (PRODUCT_FORM | {"closed"}) - {"several servers", "rates"})
    found = demands(network)
    demands_s, delays = found.demands_s, found.delays
    points = 1
    for population in found.populations:
        points *= population + 1
    if len(found.populations) > 1 and points * len(network.stations) > _NUMBERS_MAX:
        raise AssumptionError(
            "mva",
            f"at most {_NUMBERS_MAX:,} populations of the chains times stations",
            f"there are {points:,} times {len(network.stations)}; use linearizer, or simulate",
        )
    delay_s = found.think_s + demands_s[:, delays].sum(axis=1)
    work_s = np.where(delays, 0.0, demands_s)
    throughput, response_s = _recursion(found.populations, delay_s, work_s)
    response_s = np.where(delays, demands_s, response_s)
    queue_length = throughput[:, None] * response_s
    waiting = np.maximum(throughput[:, None] * (response_s - demands_s), 0.0)
    return result(found, "mva", closed_part(found, throughput, queue_length, waiting))


def _recursion(populations: tuple[int, ...], delay_s: Array, work_s: Array) -> tuple[Array, Array]:
    """Throughput (R,) and response per request (R, K) at the full populations, level by level of their sum.

    All populations with the same sum are computed together; they need only those with one customer fewer.
    """
    shape = tuple(population + 1 for population in populations)
    rows = np.arange(int(np.prod(shape)))
    places = np.array(np.unravel_index(rows, shape))
    strides = np.append(np.cumprod(shape[:0:-1])[::-1], 1).astype(int)
    total = places.sum(axis=0)
    order = np.argsort(total, kind="stable")
    levels = np.split(order, np.flatnonzero(np.diff(total[order])) + 1)
    queue_length = np.zeros((len(rows), work_s.shape[1]))
    throughput, response_s = np.zeros(len(populations)), np.zeros_like(work_s)
    for level in levels[1:]:
        for chain, stride in enumerate(strides):
            rows = level[places[chain, level] > 0]
            here_s = work_s[chain] * (1 + queue_length[rows - stride])
            rate = places[chain, rows] / (delay_s[chain] + here_s.sum(axis=1))
            queue_length[rows] += rate[:, None] * here_s
            throughput[chain], response_s[chain] = rate[-1], here_s[-1]
    return throughput, response_s
