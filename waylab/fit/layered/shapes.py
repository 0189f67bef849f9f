"""Percentiles, and response times of single operations, as multiples of the mean response time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waylab.fit.observations import ModelSettings, TrialObservation
from waylab.fit.table.gaussian_process import GaussianProcess, fit_gaussian_process

Array = NDArray[np.float64]
SHARES = ("50", "95", "99")
_NEEDED = 4


@dataclass(frozen=True)
class _Ratio:
    """A smooth function of settings and utilisation, never beyond the measured ratios."""

    mean: float
    low: float
    high: float
    process: GaussianProcess | None

    def at(self, features: Array) -> float:
        found = self.mean if self.process is None else float(self.process.predict(features)[0])
        return math.exp(min(max(found, self.low), self.high))


@dataclass(frozen=True)
class ResponseShapes:
    """Ratios to the mean response time of all requests."""

    responses: Mapping[str, _Ratio]
    percentiles: Mapping[str, Mapping[str, _Ratio]]

    def responses_s(self, settings: ModelSettings, load: float, mean_s: float) -> dict[str, float]:
        """Mean response time by operation."""
        at = _features([settings], [load])
        return {name: mean_s * ratio.at(at) for name, ratio in self.responses.items()}

    def percentiles_s(
        self, settings: ModelSettings, load: float, mean_s: float
    ) -> dict[str, dict[str, float]]:
        """Percentiles by operation; a higher one is never smaller."""
        at = _features([settings], [load])
        found: dict[str, dict[str, float]] = {}
        for name, ratios in self.percentiles.items():
            values = [mean_s * ratios[share].at(at) for share in SHARES if share in ratios]
            known = [share for share in SHARES if share in ratios]
            found[name] = dict(zip(known, np.maximum.accumulate(values).tolist(), strict=True))
        return found


def fit_shapes(observations: Sequence[TrialObservation], loads: Sequence[float]) -> ResponseShapes:
    """Fit the ratios; `loads` are the utilisations of the busiest centre, by the model."""
    settings = [one.settings for one in observations]

    def ratio(values: Sequence[float | None]) -> _Ratio | None:
        known = [
            (place, math.log(value / one.response_s))
            for place, (one, value) in enumerate(zip(observations, values, strict=True))
            if value
        ]
        if not known:
            return None
        logs = np.array([value for _, value in known])
        process = None
        if len({settings[place] for place, _ in known}) >= _NEEDED:
            rows = _features([settings[place] for place, _ in known], [loads[place] for place, _ in known])
            process = fit_gaussian_process(rows, logs)
        return _Ratio(float(logs.mean()), float(logs.min()), float(logs.max()), process)

    operations = dict.fromkeys(name for one in observations for name in one.responses_s)
    responses, percentiles = {}, {}
    for name in operations:
        found = ratio([one.responses_s.get(name) for one in observations])
        if found is not None and name != "all":
            responses[name] = found
        parts = {
            share: part
            for share in SHARES
            if (part := ratio([one.percentiles_s.get(name, {}).get(share) for one in observations]))
            is not None
        }
        if parts:
            percentiles[name] = parts
    return ResponseShapes(responses, percentiles)


def _features(settings: Sequence[ModelSettings], loads: Sequence[float]) -> Array:
    return np.array(
        [
            (
                math.log(one.clients),
                math.log(max(one.servers, 1)),
                math.log(max(one.replicas, 1)),
                2 * one.writes_share,
                math.log1p(one.value_bytes / 1024),
                math.log(max(one.pool, 1)),
                float(one.rate_per_s > 0),
                2 * load,
            )
            for one, load in zip(settings, loads, strict=True)
        ]
    )
