"""Thousands of variants of a closed network of one class at once, for fits, bootstraps and searches.

The same mathematics as the solvers of one network, vectorised over the variants. Knows no networks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from waylab.models.errors import ModelError
from waylab.models.solvers.log_sums import accumulate, convolve, delay_weights, leave_one_out, log_sum
from waylab.models.solvers.weights import factors, log_capacity

Array = NDArray[np.float64]
# Stands for a demand of zero, as a share of the largest: far below floating-point resolution.
_NOTHING = 1e-30
# Up to here products fit into floats: 4 to the power of the clients, and 1 over the factorial of the servers.
_PLAIN_CLIENTS = 300
_PLAIN_SERVERS = 150
# Numbers in a block of variants: what fits into the CPU cache.
_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class Variants:
    """V variants of a closed network of K stations."""

    throughput_per_s: Array
    """(V,)"""
    response_s: Array
    """(V,) without the think time."""
    queue_length: Array
    """(V, K)"""


def closed_throughput(
    demands_s: ArrayLike,
    clients: int,
    think_s: ArrayLike = 0.0,
    servers: Sequence[int | None] | None = None,
) -> Variants:
    """Solve variants of a closed network of one class exactly.

    Assumes a product form: exponential service at stations that serve first come first served, anything at
    processor sharing. `demands_s` (V, K) or (K,): visits times service time, in seconds; `think_s` scalar or (V,);
    `servers` (K,): of each station, None for a delay; single servers if not given. Single servers and delays use
    mean-value analysis (Reiser and Lavenberg, 1980), several servers convolution of logarithms (Buzen, 1973).

    Raises:
        ModelError: for a number out of its range, or a variant without any work.
    """
    demands, thinks = _checked(demands_s, clients, think_s)
    kinds = [1] * demands.shape[1] if servers is None else list(servers)
    if len(kinds) != demands.shape[1]:
        raise ModelError(
            "servers", f"must name {demands.shape[1]} stations, as demands_s does, not {len(kinds)}"
        )
    for count in kinds:
        if count is not None and (isinstance(count, bool) or int(count) != count or count < 1):
            raise ModelError("servers", f"must be whole numbers >= 1 or None, not {count}")
    delays = np.array([count is None for count in kinds], dtype=bool)
    delay_s = thinks + demands[:, delays].sum(axis=1)
    queues = np.flatnonzero(~delays)
    queue_length = np.zeros_like(demands)
    counts = [int(kinds[index] or 1) for index in queues]
    if max(counts, default=1) == 1:
        throughput, queue_length[:, queues] = _mean_values(demands[:, queues], clients, delay_s)
    else:
        throughput, queue_length[:, queues] = _products(demands[:, queues], clients, delay_s, counts)
    queue_length[:, delays] = throughput[:, None] * demands[:, delays]
    return Variants(throughput, queue_length.sum(axis=1) / throughput, queue_length)


def _mean_values(demands: Array, clients: int, delay_s: Array) -> tuple[Array, Array]:
    """X(n) = n / (Z + sum D (1 + Q(n-1))), Q(n) = X D (1 + Q(n-1)); stations first, so that sums run over rows."""
    work_s = np.ascontiguousarray(demands.T)
    queue_length = np.zeros_like(work_s)
    throughput = np.zeros(len(delay_s))
    for present in range(1, clients + 1):
        queue_length += 1
        queue_length *= work_s
        throughput = present / (delay_s + queue_length.sum(axis=0))
        queue_length *= throughput
    return throughput, queue_length.T


def _products(demands: Array, clients: int, delay_s: Array, servers: list[int]) -> tuple[Array, Array]:
    """Convolution: with plain numbers where they fit into floats, else with their logarithms."""
    unit_s = np.maximum((demands / servers).max(axis=1), (demands.sum(axis=1) + delay_s) / clients)
    scaled = np.maximum(demands / unit_s[:, None], _NOTHING)
    delays = delay_s / unit_s
    rates = [np.arange(1.0, min(count, clients) + 1.0) for count in servers]
    plain = clients <= _PLAIN_CLIENTS and max(len(speeds) for speeds in rates) <= _PLAIN_SERVERS
    solve = _by_numbers if plain else _by_logarithms
    step = max(1, _BLOCK // (clients + 1))
    blocks = [
        solve(scaled[start : start + step], clients, delays[start : start + step], rates)
        for start in range(0, len(scaled), step)
    ]
    throughput = np.concatenate([block[0] for block in blocks]) / unit_s
    queue_length = np.concatenate([block[1] for block in blocks])
    return throughput, np.where(demands > 0, queue_length, 0.0)


def _by_numbers(scaled: Array, clients: int, delays: Array, rates: list[Array]) -> tuple[Array, Array]:
    """Convolution along the first axis.

    In these units X(n) is at most 1 and at least n / (N + n - 1), so that G(n), the product of 1 / X(1..n), rises
    from 1 to less than 4^N; no part of it is larger, and terms that underflow do not matter.
    """
    series = [np.exp(factors(speeds, clients)[0]) for speeds in rates]

    def times(values: Array, station: int) -> Array:
        demand = scaled[:, station]
        result: Array = values * series[station][-1]
        # From the highest power down, one step of the series for each.
        for factor in series[station][-2::-1]:
            result[1:] = result[:-1] * demand
            result[0] = 0.0
            result += factor * values
        ratio = demand / rates[station][-1]
        for present in range(1, clients + 1):
            result[present] += ratio * result[present - 1]
        return result

    count = np.arange(clients + 1.0)
    queue_length = np.zeros_like(scaled)
    throughput = np.zeros(len(scaled))
    log_scaled = np.log(scaled)
    with np.errstate(under="ignore"):
        base = np.cumprod(np.vstack([np.ones_like(delays), delays / count[1:, None]]), axis=0)
        for station, rest in enumerate(leave_one_out(base, [1] * len(rates), times)):
            powers = log_capacity(rates[station], clients)[:, None] + count[:, None] * log_scaled[:, station]
            weights = np.exp(powers)
            joint = weights * rest[::-1]
            total = joint.sum(axis=0)
            queue_length[:, station] = count @ joint / total
            if station == 0:
                throughput = (weights[:-1] * rest[-2::-1]).sum(axis=0) / total
    return throughput, queue_length


def _by_logarithms(scaled: Array, clients: int, delays: Array, rates: list[Array]) -> tuple[Array, Array]:
    count = np.arange(clients + 1)

    def times(values: Array, station: int) -> Array:
        log_demand = np.log(scaled[:, station])
        log_factors, last = factors(rates[station], clients)
        assert last is not None, "the rates of servers rise"
        powers = np.arange(len(log_factors)) * log_demand[:, None]
        return accumulate(convolve(values, log_factors + powers), log_demand - np.log(last))

    queue_length = np.zeros_like(scaled)
    throughput = np.zeros(len(scaled))
    for station, rest in enumerate(leave_one_out(delay_weights(delays, clients), [1] * len(rates), times)):
        weights = log_capacity(rates[station], clients) + count * np.log(scaled[:, station])[:, None]
        joint = weights + rest[:, ::-1]
        total = log_sum(joint, axis=1)
        queue_length[:, station] = np.exp(joint - total[:, None]) @ count
        if station == 0:
            throughput = np.exp(log_sum(weights[:, :-1] + rest[:, -2::-1], axis=1) - total)
    return throughput, queue_length


def _checked(demands_s: ArrayLike, clients: int, think_s: ArrayLike) -> tuple[Array, Array]:
    demands = np.atleast_2d(np.asarray(demands_s, dtype=float))
    if demands.ndim != 2 or demands.shape[1] == 0:
        raise ModelError("demands_s", "must have the shape (variants, stations)")
    if not (np.isfinite(demands).all() and (demands >= 0).all()):
        raise ModelError("demands_s", "must be finite numbers of seconds >= 0")
    if isinstance(clients, bool) or int(clients) != clients or clients < 1:
        raise ModelError("clients", f"must be a whole number >= 1, not {clients}")
    thinks = np.asarray(think_s, dtype=float)
    if thinks.ndim > 1 or (thinks.ndim == 1 and len(thinks) != len(demands)):
        raise ModelError("think_s", f"must be one number or one for each of {len(demands)} variants")
    if not (np.isfinite(thinks).all() and (thinks >= 0).all()):
        raise ModelError("think_s", "must be finite numbers of seconds >= 0")
    thinks = np.broadcast_to(thinks, len(demands))
    idle = np.flatnonzero(demands.sum(axis=1) + thinks == 0)
    if len(idle):
        raise ModelError(
            f"demands_s[{idle[0]}]", "has no service and no think time: its throughput would be infinite"
        )
    return demands, thinks
