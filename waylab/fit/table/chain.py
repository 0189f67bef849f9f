"""The chain: smooth monotone w(n) and z(k), fitted through the closed cycle to X, holding and response times together.

w(n) is how long a worker is held with n workers busy, z(k) the time outside with k requests outside. A table with
several deployments (numbers of servers or middlewares, shares of writes ...) shares the shapes of both curves: a
deployment multiplies the time at low load (level) and the rate at saturation (capacity) of each.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from waylab.fit.table.curves import RateCurve
from waylab.fit.table.cycle import CycleMeans, cycle_means, cycle_shares, cycle_slopes
from waylab.fit.table.discrepancy import CYCLE_MAX, discrepancy
from waylab.fit.table.effects import Effects, deployment_of
from waylab.fit.table.interface import CellPrediction, RefusedFitError
from waylab.fit.table.least_squares import damped_least_squares
from waylab.fit.table.left_over import LeftOver
from waylab.fit.table.observations import CellSettings, ObservedCell

Array = NDArray[np.float64]

_PARTS_CACHED = 2048
# Parts of a request that the cycle may be made of, and states of the cycle at most: beyond, fluctuations hardly matter.
_GRAINS = (1, 4)
_STATES_MAX = 4096


@dataclass(frozen=True)
class ChainPrior:
    """How smooth the curves are, before there is data.

    The logit of a curve's slope is a random walk over the doublings of n, with this drift and roughness for each
    doubling; it begins near `start` and ends near `end`. The effects of a queue and of the pool's size on w are small.
    """

    # The best of 0.6 to 1.5 over pools and clients, whichever of three data sets is left out.
    drift: float = 1.2
    roughness: float = 0.5
    start: float = -1.5
    end: float | None = 3.0
    spread: float = 1.5
    queue_spread: float = 0.06
    pool_spread: float = 0.05


# Relative standard error of a cell at least, and the factor for holding and response times against throughput.
_NOISE_MIN = 0.012
_HOLDING_NOISE = 2.0
_INSIDE_NOISE = 3.0


@dataclass(frozen=True)
class _Parts:
    """What does not depend on parameters: busy workers and clients outside for each n."""

    busy: Array
    outside: Array
    queued: Array
    holding: Array
    leaving: Array


@lru_cache(maxsize=_PARTS_CACHED)
def _parts(clients: int, slots: int, knots: int, grain: int) -> _Parts:
    curve = RateCurve(2.0 ** (knots - 1))
    inside = np.arange(1, clients * grain + 1) / grain
    busy = np.minimum(inside, slots).astype(float)
    outside = inside[::-1]
    return _Parts(busy, outside, 1 - busy / inside, curve.weights(busy), curve.weights(outside))


class _Layout:
    """Which place of the parameter vector holds what."""

    def __init__(self, knots: int, effects: int) -> None:
        self.knots = knots
        self.effects = effects
        self.w = slice(0, knots + 1)
        self.z = slice(knots + 1, 2 * knots + 2)
        self.queue, self.pool = self.z.stop, self.z.stop + 1
        size = self.pool + 1
        # Level and capacity of w, then of z.
        self.shifts = [slice(size + part * effects, size + (part + 1) * effects) for part in range(4)]
        self.size = size + 4 * effects
        self.slopes = np.zeros(self.size, dtype=bool)
        self.slopes[1 : knots + 1] = True
        self.slopes[self.z.start + 1 : self.z.stop] = True


def _times_inside(cells: Sequence[ObservedCell]) -> bool:
    return any(one.mean.holding_s or one.mean.response_middleware_s for one in cells)


def _slots(settings: CellSettings) -> int:
    return settings.slots or settings.clients


@dataclass(frozen=True)
class ChainModel:
    """The chain with a prior; `effects` describes how deployments differ, none for a single deployment."""

    name: str = "chain"
    prior: ChainPrior = field(default_factory=ChainPrior)
    effects: Effects = field(default_factory=Effects)

    def fit(self, cells: Sequence[ObservedCell]) -> "FittedChain":
        """Fit by damped least squares with derivatives.

        Raises:
            RefusedFitError: with fewer than two different numbers of clients, or with and without a pool together.
        """
        if len({one.settings.clients for one in cells}) < 2 and not self.effects.among:
            raise RefusedFitError(
                "the chain needs two different numbers of clients; measure another number of clients"
            )
        if len({one.settings.slots > 0 for one in cells}) > 1:
            raise RefusedFitError("cells with and without a middleware cannot share one chain")
        # Without times inside, fluctuations cannot be told from bends of the curves.
        grains = _GRAINS if _times_inside(cells) and not self.effects.among else _GRAINS[:1]
        return max((FittedChain(self, cells, one) for one in grains), key=lambda found: found.log_evidence)


class FittedChain:
    """A chain with its parameters."""

    def __init__(self, model: ChainModel, cells: Sequence[ObservedCell], grain: int) -> None:
        self._grain = grain
        self._prior = model.prior
        self._effects = model.effects.of(cells)
        # Without a middleware, clients and servers are apart as behind a pool as large as the clients.
        self._has_pool = cells[0].settings.slots > 0
        # Room for predictions at four times the calibrated clients; beyond, the last slope holds.
        knots = len(RateCurve(4.0 * max(one.settings.clients for one in cells)).knots)
        self._layout = _Layout(knots, self._effects.size)
        self._log_slots = math.log(np.mean([_slots(one.settings) for one in cells]))
        spreads = [one.throughput_spread for one in cells if one.throughput_spread is not None]
        repetitions = float(np.mean([one.repetitions for one in cells]))
        run_noise = float(np.median(spreads)) / math.sqrt(repetitions) if spreads else 0.0
        self._noise = math.hypot(_NOISE_MIN, run_noise) if run_noise > _NOISE_MIN else _NOISE_MIN
        self._cells = cells
        self._deployments: dict[str, list[CellSettings]] = {}
        for one in cells if model.effects.among else ():
            self._deployments.setdefault(deployment_of(one.settings), []).append(one.settings)
        ratios = [
            one.mean.throughput_clients_per_s * one.mean.response_clients_s / one.settings.clients
            for one in cells
            if one.mean.throughput_clients_per_s and one.mean.response_clients_s
        ]
        self._law = float(np.median(ratios)) if ratios else 1.0
        found = damped_least_squares(self._start(), self._errors, *self._priors())
        self._values, self._covariance, self.log_evidence = found
        self._left_over = self._leave_over()

    @property
    def parameters(self) -> Mapping[str, float]:
        """Times at one request, and the small effects of queue and pool."""
        layout, values = self._layout, self._values
        found = {
            "w(1)_s": math.exp(values[0]),
            "z(1)_s": math.exp(values[layout.z.start]),
            "queue_effect": float(values[layout.queue]),
            "pool_effect": float(values[layout.pool]),
            "variability": 1 / self._grain,
        }
        names = ("w_level", "w_capacity", "z_level", "z_capacity")
        for part, name in zip(layout.shifts, names, strict=True):
            for effect, value in zip(self._effects.names, values[part], strict=True):
                found[f"{name}.{effect}"] = float(value)
        return found

    @property
    def unidentified(self) -> Sequence[str]:
        """Which curves have no measurement of their own."""
        if _times_inside(self._cells):
            return ()
        return ("w and z apart: neither holding times nor response times of the middlewares are measured",)

    def predict(self, settings: CellSettings) -> CellPrediction:
        """Solve the cycle for these settings.

        Raises:
            RefusedFitError: when only one of calibration and settings has a middleware.
        """
        if (settings.slots > 0) != self._has_pool:
            raise RefusedFitError("cells with and without a middleware were not calibrated together")
        means, (by_x, by_inside, _) = self._solve(self._values, settings, True)
        spread = spread_inside = None
        if self._deployments:
            unlike = discrepancy(settings, self._deployments.get(deployment_of(settings), ()))
            spread = math.hypot(self._spread(by_x), unlike)
            cycle = settings.clients / means.throughput_per_s / means.inside_s
            spread_inside = math.hypot(self._spread(by_inside), unlike * min(cycle, CYCLE_MAX))
        rate = means.throughput_per_s * self._left_over.ratio("throughput", settings)
        response_s = self._law * settings.clients / rate
        if not self._has_pool:
            return CellPrediction(rate, response_s, bottleneck="server or network", spread=spread)
        slots = settings.slots
        if means.busy > 0.9 * slots:
            bottleneck = "workers"
        elif means.holding_s > settings.clients / means.throughput_per_s - means.inside_s:
            bottleneck = "behind the workers"
        else:
            bottleneck = "clients or network"
        inside_s = means.inside_s * self._left_over.ratio("inside", settings)
        return CellPrediction(
            rate,
            response_s,
            min(inside_s, settings.clients / rate),
            means.holding_s,
            bottleneck=bottleneck,
            spread=spread,
            spread_inside=spread_inside,
        )

    def _leave_over(self) -> LeftOver:
        """What the cycle does not explain of the calibration cells."""
        found = []
        for one in self._cells:
            means, _ = self._solve(self._values, one.settings, False)
            ratios = {"throughput": math.log(one.throughput_per_s / means.throughput_per_s)}
            if self._has_pool and one.mean.response_middleware_s:
                ratios["inside"] = math.log(one.mean.response_middleware_s / means.inside_s)
            found.append((one.settings, ratios))
        return LeftOver(found)

    def _spread(self, slopes: Array) -> float:
        return math.sqrt(max(float(slopes @ self._covariance @ slopes), 0.0) + self._noise**2)

    def _solve(
        self, values: Array, settings: CellSettings, slopes: bool
    ) -> tuple[CycleMeans, tuple[Array, Array, Array]]:
        layout = self._layout
        linear, chain_rule = values.copy(), np.ones_like(values)
        shares = 1 / (1 + np.exp(-values[layout.slopes]))
        linear[layout.slopes] = shares
        chain_rule[layout.slopes] = shares * (1 - shares)
        row = self._effects.row(settings)
        grain = max(1, min(self._grain, _STATES_MAX // settings.clients))
        parts = _parts(settings.clients, _slots(settings), layout.knots, grain)
        log_w, w_by = self._curve(linear, layout.w, 0, parts.busy, parts.holding, row)
        log_z, z_by = self._curve(linear, layout.z, 2, parts.outside, parts.leaving, row)
        log_pool = math.log(settings.slots) - self._log_slots if self._has_pool else 0.0
        log_w = log_w + linear[layout.queue] * parts.queued + linear[layout.pool] * log_pool
        log_departures = np.log(parts.busy) - log_w
        probabilities = cycle_shares(np.log(parts.outside) - log_z, log_departures)
        departures = np.exp(log_departures)
        busy = np.concatenate(([0.0], parts.busy))
        means = cycle_means(probabilities, departures, busy, grain)
        if not slopes:
            return means, (values, values, values)
        w_by[:, layout.queue] = parts.queued
        w_by[:, layout.pool] = log_pool
        by_x, by_inside, by_holding = cycle_slopes(probabilities, departures, busy, z_by, w_by)
        return means, (by_x * chain_rule, by_inside * chain_rule, by_holding * chain_rule)

    def _curve(
        self, linear: Array, place: slice, shift: int, numbers: Array, weights: Array, row: Array
    ) -> tuple[Array, Array]:
        """Logarithm of a curve at these numbers present, and its derivatives of shape (numbers, parameters)."""
        layout = self._layout
        by = np.zeros((len(numbers), layout.size))
        level = capacity = 0.0
        if row.size:
            level = float(row @ linear[layout.shifts[shift]])
            capacity = float(row @ linear[layout.shifts[shift + 1]])
        slopes = linear[place][1:]
        curve = RateCurve(2.0 ** (layout.knots - 1))
        if row.size:
            # Below one request the slope is the first; so a larger capacity shifts the curve and bends nothing.
            numbers = numbers * math.exp(-(level + capacity))
            weights = curve.weights(numbers)
        logs = linear[place.start] + level + weights @ slopes
        by[:, place.start] = 1.0
        by[:, place.start + 1 : place.stop] = weights
        if row.size:
            steep = curve.slopes(numbers) @ slopes
            by[:, layout.shifts[shift]] = (1 - steep)[:, None] * row
            by[:, layout.shifts[shift + 1]] = -steep[:, None] * row
        return logs, by

    def _errors(self, values: Array) -> tuple[Array, Array]:
        errors, slopes = [], []
        for one in self._cells:
            means, (by_x, by_inside, by_holding) = self._solve(values, one.settings, True)
            compared = [(means.throughput_per_s, one.throughput_per_s, by_x, 1.0)]
            if self._has_pool and one.mean.holding_s:
                compared.append((means.holding_s, one.mean.holding_s, by_holding, _HOLDING_NOISE))
            if self._has_pool and one.mean.response_middleware_s:
                compared.append((means.inside_s, one.mean.response_middleware_s, by_inside, _INSIDE_NOISE))
            for found, measured, by, factor in compared:
                errors.append(math.log(found / measured) / (self._noise * factor))
                slopes.append(by / (self._noise * factor))
        return np.array(errors), np.array(slopes)

    def _start(self) -> Array:
        layout, prior = self._layout, self._prior
        values = np.zeros(layout.size)
        ramp = prior.start + prior.drift * np.arange(layout.knots)
        cycles = [one.settings.clients / one.throughput_per_s for one in self._cells]
        held = [
            one.mean.holding_s or one.mean.response_middleware_s or cycle
            for one, cycle in zip(self._cells, cycles, strict=True)
        ]
        values[0] = math.log(0.9 * min(held))
        values[1 : layout.knots + 1] = ramp
        outside = [
            cycle - (one.mean.response_middleware_s or 0.7 * cycle)
            for one, cycle in zip(self._cells, cycles, strict=True)
        ]
        values[layout.z.start] = math.log(max(min(outside), 0.05 * min(held)))
        values[layout.z.start + 1 : layout.z.stop] = ramp
        for part, means in zip(layout.shifts, self._effects.means, strict=True):
            values[part] = means
        return values

    def _priors(self) -> tuple[Array, Array]:
        """Rows and right-hand sides: the prior is a normal one for each row."""
        layout, prior = self._layout, self._prior
        rows: list[Array] = []
        sides: list[float] = []

        def add(places: Sequence[tuple[int, float]], mean: float, spread: float) -> None:
            row = np.zeros(layout.size)
            for place, factor in places:
                row[place] = factor / spread
            rows.append(row)
            sides.append(mean / spread)

        for curve in (layout.w, layout.z):
            first, last = curve.start + 1, curve.stop - 1
            add([(first, 1.0)], prior.start, prior.spread)
            for place in range(first, last):
                add([(place, -1.0), (place + 1, 1.0)], prior.drift, prior.roughness)
            if prior.end is not None:
                add([(last, 1.0)], prior.end, prior.spread)
        add([(layout.queue, 1.0)], 0.0, prior.queue_spread)
        add([(layout.pool, 1.0)], 0.0, prior.pool_spread)
        expected = zip(layout.shifts, self._effects.means, self._effects.spreads, strict=True)
        for part, means, spreads in expected:
            for place, mean, spread in zip(range(part.start, part.stop), means, spreads, strict=True):
                add([(place, 1.0)], float(mean), float(spread))
        return np.array(rows), np.array(sides)
