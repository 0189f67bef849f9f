"""The distribution of a response time from the parts of its mean: delays, shared queues, and queues of the keys.

A request passes the queues that all requests share in many small steps, so that this passage is a phase-type time of
many phases. It is lumped into one gamma distribution: its mean comes from the network, and its variance grows in
proportion to its mean, as that of a sum of independent phases (Neuts, Matrix-Geometric Solutions, 1981, chapter 2).
The variance of a phase is not known from means; it is fitted to measured percentiles. What a request waits for its own
server is added (`key_queues.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from waylab.fit.layered.key_queues import KeyQueues, waits_at_key_queues
from waylab.fit.layered.network import ENDLESS, CycleNetwork, CycleSolutions
from waylab.fit.observations import ModelSettings

Array = NDArray[np.float64]

# Waits below this share of the response hardly change a percentile.
_NEGLIGIBLE = 0.002
_WAITS, _BASES = 40, 15
_BASE_SHARES = (np.arange(_BASES) + 0.5) / _BASES
_ROUNDS, _TRIED = 3, 9
_PHASE_WIDTHS, _DELAY_WIDTHS = (-4.0, 0.5), (-2.5, 0.0)


@dataclass(frozen=True)
class ResponseParts:
    """Mean times of a request: outside of queues, `passing_s` at shared queues, `key_wait_s` at its own server.

    Outside of queues, `constant_s` are known delays that are always the same, such as those of emulated links, and
    `delay_s` is the rest. `visiting` is the share of the requests that wait for a server of their own.
    """

    constant_s: float
    delay_s: float
    passing_s: float
    key_wait_s: float = 0.0
    visiting: float = 1.0
    queues: int = 1
    clients: int = 1
    think_s: float = 0.0
    start_s: float = 0.0
    end_s: float = 0.0

    @property
    def mean_s(self) -> float:
        """All parts."""
        return self.constant_s + self.delay_s + self.passing_s + self.key_wait_s

    def scaled(self, factor: float) -> "ResponseParts":
        """All times of a request multiplied."""
        return replace(
            self,
            constant_s=factor * self.constant_s,
            delay_s=factor * self.delay_s,
            passing_s=factor * self.passing_s,
            key_wait_s=factor * self.key_wait_s,
        )


def response_parts(
    network: CycleNetwork,
    found: CycleSolutions,
    place: int,
    settings: ModelSettings,
    window_s: tuple[float, float],
) -> ResponseParts:
    """The parts of the mean response time of a solved network; a trial is measured between the times of `window_s`."""
    rate, response_s = float(found.throughput_per_s[place]), float(found.response_s[place])
    constant_s, waits_s, visiting = settings.outer_delay_s, 0.0, 1.0
    for index, one in enumerate(network.centres):
        if one.queues >= ENDLESS:
            # Several workers of a server are a delay that varies.
            constant_s += 0.0 if one.by_key else one.visits * one.fan * one.alone_s
        # With a pool, numbers present are those of a full one. In an open loop, queues have an end of their own.
        elif one.by_key and not network.slots and not network.rate_per_s:
            waiting = float(found.present[place, index] - found.utilisation[place, index] * one.queues)
            wait_s = one.fan * max(waiting, 0.0) / rate
            if wait_s > waits_s:
                visiting = min(1.0, one.visits)
            waits_s += wait_s
    constant_s = min(constant_s, response_s)
    delay_s = min(max(network.delay_s - settings.outer_delay_s, 0.0), response_s - constant_s)
    waits_s = min(waits_s, response_s - constant_s - delay_s)
    return ResponseParts(
        constant_s,
        delay_s,
        response_s - constant_s - delay_s - waits_s,
        waits_s,
        visiting,
        max(settings.servers, 1),
        network.clients,
        network.think_s,
        *window_s,
    )


class PassageTimes:
    """Response times of several configurations, for any variances of their parts."""

    def __init__(self, parts: Sequence[ResponseParts]) -> None:
        self.parts = parts
        self._constant = np.array([one.constant_s for one in parts])
        self._delay = np.array([one.delay_s for one in parts])
        self._passing = np.array([one.passing_s for one in parts])
        self._waits = [np.zeros((1, _WAITS))] * len(parts)
        unlike = [
            place
            for place, one in enumerate(parts)
            if one.queues > 1 and one.key_wait_s > _NEGLIGIBLE * one.mean_s
        ]
        groups = [_queues_of(parts[place]) for place in unlike]
        shares = np.linspace(0, 1, 101)
        middles = (np.arange(_WAITS) + 0.5) / _WAITS
        for place, found in zip(unlike, waits_at_key_queues(groups), strict=True):
            self._waits[place] = np.array([np.interp(middles, shares, row) for row in found])
        for place, one in enumerate(parts):
            if place not in unlike:
                self._passing[place] += one.key_wait_s

    def percentile_s(self, share: float, delay_width: float, phase_s: float) -> Array:
        """A percentile of each configuration, the mean over rings.

        `delay_width` is the standard deviation of the delay relative to its mean, and `phase_s` the variance of the
        passage divided by its mean.
        """
        mean = np.maximum(self._constant + self._delay + self._passing, 1e-12)
        # A passage has at least one phase.
        passing = np.minimum(phase_s, self._passing) * self._passing
        variance = np.maximum((delay_width * self._delay) ** 2 + passing, (1e-4 * mean) ** 2)
        # A shifted gamma distribution: no response is faster than the delays alone.
        shift = self._constant + self._delay * max(0.0, 1 - 3 * delay_width)
        above = np.maximum(mean - shift, 1e-6 * mean)
        shape = above**2 / variance
        base = shift[:, None] + (variance / above)[:, None] * gammaincinv(shape[:, None], _BASE_SHARES)
        found = np.empty(len(self.parts))
        exact = shift + variance / above * gammaincinv(shape, share)
        for place, one in enumerate(self.parts):
            waits = self._waits[place]
            if waits.shape[0] == 1:
                found[place] = exact[place]
                continue
            sums = (waits[:, :, None] + base[place][None, None, :]).reshape(len(waits), -1)
            found[place] = np.exp(np.log(_mixed(sums, base[place], one.visiting, share)).mean())
        return found


def _mixed(sums: Array, base: Array, visiting: float, share: float) -> Array:
    """A quantile of requests of which a share waits; `sums` has a row for each ring."""
    if visiting >= 1:
        return np.asarray(np.quantile(sums, share, axis=1))
    weights = np.concatenate(
        (np.full(sums.shape[1], visiting / sums.shape[1]), np.full(base.size, (1 - visiting) / base.size))
    )
    rows = []
    for row in sums:
        values = np.concatenate((row, base))
        order = np.argsort(values)
        rows.append(np.interp(share, np.cumsum(weights[order]) - weights[order] / 2, values[order]))
    return np.array(rows)


def _queues_of(one: ResponseParts) -> KeyQueues:
    wait_s = one.key_wait_s / max(one.visiting, 1e-6)
    elsewhere_s = one.mean_s + one.think_s - wait_s
    return KeyQueues(
        one.queues, one.clients, wait_s, max(elsewhere_s, 0.01 * one.mean_s), one.start_s, one.end_s
    )


def fit_widths(passages: PassageTimes, p95_s: Array) -> tuple[float, float]:
    """Fit the two variances to measured 95th percentiles (not a number: unknown); `delay_width` and `phase_s`."""
    known = np.isfinite(p95_s)
    logs = np.log(p95_s[known])
    typical_s = float(np.median([one.mean_s for one in passages.parts]))
    delay, phase = -1.5, -1.5

    def cost(delay: float, phase: float) -> float:
        found = passages.percentile_s(0.95, 10**delay, typical_s * 10**phase)
        return float(np.abs(np.log(found[known]) - logs).mean()) + 0.001 * (
            abs(phase + 1.5) + abs(delay + 1.5)
        )

    for round_ in range(_ROUNDS):
        width = 0.5**round_
        for low, high, which in ((*_PHASE_WIDTHS, "phase"), (*_DELAY_WIDTHS, "delay")):
            here = phase if which == "phase" else delay
            half = width * (high - low) / 2
            tried = np.clip(np.linspace(here - half, here + half, _TRIED), low, high)
            costs = [cost(delay, one) if which == "phase" else cost(one, phase) for one in tried]
            best = float(tried[int(np.argmin(costs))])
            phase, delay = (best, delay) if which == "phase" else (phase, best)
    return 10**delay, typical_s * 10**phase
