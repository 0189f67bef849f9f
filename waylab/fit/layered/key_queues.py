"""How long requests wait at queues that their keys choose: one queue for each server, with unequal shares of the keys.

A ring gives no two servers the same share. In a closed loop the queue of the server with the largest share grows while
those of the others stay short, so that a few requests wait long and the others hardly at all. The mean wait says
nothing of this. The queues are followed in time steps from the first request of a trial, because this growth takes a
large part of a short trial: each step moves a random number of requests to each queue, and each queue serves as many
as it can (a slotted queue: Bruneel and Kim, Discrete-Time Models for Communication Systems, 1993, chapter 1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Points of a server on the ring (twemproxy): the arcs of random points are shares with a Dirichlet distribution.
_POINTS = 160.0
_RINGS = 16
_STEPS = 300
# A trial of more cycles is as good as an endless one, of which the second half is looked at.
_CYCLES_MAX = 150.0
# Service rates that are tried at once, and how often the search is repeated around the best of them.
_RATES, _PASSES = 9, 2
_WIDEST, _NARROWER = 3.0, 0.2
_SHARES = np.linspace(0.0, 1.0, 101)


@dataclass(frozen=True)
class KeyQueues:
    """Queues that keys choose, in a closed loop: requests in flight, and times of a request that visits them.

    `wait_s` is the mean wait, `elsewhere_s` the rest of the cycle; a trial is measured from `start_s` to `end_s` after
    its first request, 0 for one that has no end.
    """

    queues: int
    clients: int
    wait_s: float
    elsewhere_s: float
    start_s: float = 0.0
    end_s: float = 0.0


@lru_cache(maxsize=16)
def _rings(queues: int) -> tuple[Array, Array]:
    """Shares of the keys on random rings, shape (rings, queues), and standard normal numbers for each step."""
    random = np.random.default_rng(queues)
    return random.dirichlet([_POINTS] * queues, _RINGS), random.standard_normal((_STEPS, _RINGS, queues))


def waits_at_key_queues(groups: Sequence[KeyQueues]) -> list[Array]:
    """Quantiles of the wait on random rings, shape (rings, 101) for each group; their mean is `wait_s`."""
    found: list[Array] = [np.empty(0)] * len(groups)
    for queues in sorted({one.queues for one in groups}):
        places = [place for place, one in enumerate(groups) if one.queues == queues]
        for place, quantiles in zip(places, _followed([groups[place] for place in places]), strict=True):
            found[place] = quantiles
    return found


def _followed(groups: Sequence[KeyQueues]) -> list[Array]:
    """Find the service rate of the queues at which requests wait as long as they should, for groups of one size."""
    wanted = np.array([one.wait_s for one in groups])
    rates = np.array([one.clients / (one.wait_s + one.elsewhere_s) / one.queues for one in groups])
    centre, width = np.log(rates * 1.2), _WIDEST
    for _ in range(_PASSES):
        tried = centre[:, None] + width * np.linspace(-0.5, 0.5, _RATES)
        means, _ = _follow(groups, np.exp(tried), keep=False)
        # The mean wait falls with the rate.
        logs = np.log(np.maximum(means, 1e-12))
        goal = np.log(np.maximum(wanted, 1e-12))
        centre = np.array(
            [np.interp(-want, -row, line) for want, row, line in zip(goal, logs, tried, strict=True)]
        )
        width = _NARROWER
    means, waits = _follow(groups, np.exp(centre)[:, None], keep=True)
    shares = _rings(groups[0].queues)[0]
    found = []
    for place, one in enumerate(groups):
        factor = one.wait_s / max(float(means[place, 0]), 1e-12)
        rows = []
        for ring in range(_RINGS):
            values = waits[:, place, ring, :]
            known = np.isfinite(values).all(axis=1)
            times = values[known].ravel()
            weights = np.tile(shares[ring], int(known.sum()))
            order = np.argsort(times)
            below = np.cumsum(weights[order]) - weights[order] / 2
            rows.append(np.interp(_SHARES, below / weights.sum(), times[order]))
        found.append(factor * np.array(rows))
    return found


def _follow(groups: Sequence[KeyQueues], rates: Array, *, keep: bool) -> tuple[Array, Array]:
    """Mean waits, shape (groups, rates); and all waits, shape (steps, groups, rings, queues), if they are kept."""
    shares, noise = _rings(groups[0].queues)
    clients = np.array([float(one.clients) for one in groups])[:, None, None]
    elsewhere = np.array([one.elsewhere_s for one in groups])
    cycles = elsewhere + np.array([one.wait_s for one in groups])
    ends = np.array([one.end_s or np.inf for one in groups])
    starts = np.array([one.start_s for one in groups])
    endless = ends > _CYCLES_MAX * cycles
    ends = np.where(endless, _CYCLES_MAX * cycles, ends)
    starts = np.where(endless, ends / 2, np.minimum(starts, 0.9 * ends))
    step_s = ends / _STEPS
    first = np.ceil(starts / step_s).astype(int)
    # Requests elsewhere that come back within a step.
    moving = -np.expm1(-step_s / np.maximum(elsewhere, 1e-12))[:, None, None]
    served = (rates * step_s[:, None])[:, :, None, None]
    waiting = np.zeros((*rates.shape, *shares.shape))
    total = np.zeros(rates.shape)
    kept = np.full((_STEPS if keep else 0, len(groups), *shares.shape), np.nan)
    for step in range(_STEPS):
        coming = moving * np.maximum(clients - waiting.sum(axis=3), 0.0)
        mean = coming[..., None] * shares
        arriving = np.maximum(mean + np.sqrt(mean) * noise[step], 0.0)
        waiting = np.maximum(waiting + arriving - served, 0.0)
        counts = step >= first
        weighted = (waiting * shares).sum(axis=3).mean(axis=2)
        total += np.where(counts[:, None], weighted, 0.0)
        if keep:
            kept[step] = np.where(counts[:, None, None], waiting[:, 0] / rates[:, 0, None, None], np.nan)
    return total / (_STEPS - first)[:, None] / rates, kept
