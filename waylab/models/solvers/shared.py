"""Several closed chains at shared queues: products over the lattice of their populations.

One series for each chain describes its places that are not shared. Knows no networks.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from waylab.models.solvers.lattice import Lattice
from waylab.models.solvers.log_sums import leave_one_out, log_of
from waylab.models.solvers.series import times_all
from waylab.models.solvers.weights import QueueingStation, factors, kinds, log_capacity, waiting_of

Array = NDArray[np.float64]
Numbers = tuple[Array, Array, Array]


def solve_shared(
    populations: tuple[int, ...],
    delays: list[Array],
    series: list[list[QueueingStation]],
    queues: Sequence[QueueingStation],
) -> tuple[list[Array], list[Numbers]]:
    """Solve the shared queues.

    `delays[r]` weighs n customers of chain r in its delays, `series[r]` lists the queues of its own.
    Returns for each chain the weights of n = 0..N_r of its customers anywhere but in those (the other chains
    complete), and for each shared queue the mean present (R,) and waiting (R,), and P(n present).
    """
    lattice = Lattice(populations)
    alone = [times_all(delay, own) for delay, own in zip(delays, series, strict=True)]
    firsts, members = kinds(queues)

    def times(values: Array, kind: int) -> Array:
        return _times_shared(lattice, values, queues[firsts[kind]])

    leaves = leave_one_out(lattice.separate(alone), [len(same) for same in members], times)
    found: list[Numbers] = [(alone[0], alone[0], alone[0])] * len(queues)
    for kind, same in enumerate(members):
        numbers = _split(lattice, queues[firsts[kind]], leaves[kind])
        for index in same:
            found[index] = numbers
    complete = times(leaves[0], 0)
    del leaves
    rests = []
    for chain, own in enumerate(series):
        values = complete
        if own:
            values = lattice.separate([*alone[:chain], delays[chain], *alone[chain + 1 :]])
            for kind, same in enumerate(members):
                for _ in same:
                    values = times(values, kind)
        rests.append(np.moveaxis(values, chain, -1).reshape(-1, populations[chain] + 1)[-1].copy())
    return rests, found


def _times_shared(lattice: Lattice, values: Array, queue: QueueingStation) -> Array:
    log_demands = log_of(queue.demands_s)
    most = sum(size for size, demand in zip(lattice.populations, queue.demands_s, strict=True) if demand > 0)
    log_factors, last = factors(queue.rates, most)
    if len(log_factors) > 1:
        values = lattice.times_polynomial(values, log_factors, log_demands)
    return values if last is None else lattice.times_geometric(values, log_demands - np.log(last))


def _split(lattice: Lattice, queue: QueueingStation, rest: Array) -> Numbers:
    most = sum(size for size, demand in zip(lattice.populations, queue.demands_s, strict=True) if demand > 0)
    weights, total = lattice.station_weights(log_capacity(queue.rates, most), log_of(queue.demands_s))
    shares = lattice.split(weights, rest)
    present = np.bincount(total.ravel(), weights=shares.ravel(), minlength=most + 1).astype(float)
    # A waiting request is a random one of those present: chain r has the share n_r / |n|.
    waiting = (waiting_of(queue, most) / np.maximum(np.arange(most + 1), 1))[total] * shares
    lengths = np.zeros(len(lattice.populations))
    waits = np.zeros_like(lengths)
    for axis, size in enumerate(shares.shape):
        others = tuple(other for other in range(shares.ndim) if other != axis)
        count = np.arange(size)
        lengths[axis] = shares.sum(axis=others) @ count
        waits[axis] = waiting.sum(axis=others) @ count
    return lengths, waits, present
