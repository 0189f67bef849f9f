"""Percentiles, and response times of single operations, from the mean response time of all requests.

There are two models of percentiles. `ratio` is a smooth function of settings and utilisation: the percentile over the
mean. `passage` is the distribution of the time through the parts of the network (`passages.py`), times a smooth
function for what it leaves over. The caller chooses between them by their errors at held-out configurations.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waylab.fit.layered.passages import PassageTimes, ResponseParts, fit_widths
from waylab.fit.observations import ModelSettings, TrialObservation
from waylab.fit.table.gaussian_process import GaussianProcess, fit_gaussian_process

Array = NDArray[np.float64]
SHARES = ("50", "95", "99")
RATIO, PASSAGE = "ratio", "passage"
_NEEDED = 3


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


_ByOperation = Mapping[str, Mapping[str, _Ratio]]


@dataclass(frozen=True)
class ResponseShapes:
    """Ratios to the mean response time of all requests, and to the percentiles of a passage through the network."""

    responses: Mapping[str, _Ratio]
    percentiles: _ByOperation
    # Relative to the percentiles of a passage, with its two fitted variances; `None`: no percentiles were measured.
    left_over: _ByOperation
    widths: tuple[float, float] | None

    def responses_s(self, settings: ModelSettings, load: float, mean_s: float) -> dict[str, float]:
        """Mean response time by operation."""
        at = _features([settings], [load])
        return {name: mean_s * ratio.at(at) for name, ratio in self.responses.items()}

    def percentiles_s(
        self, settings: ModelSettings, load: float, parts: ResponseParts
    ) -> dict[str, dict[str, dict[str, float]]]:
        """Percentiles by model and operation; a higher one is never smaller."""
        at = _features([settings], [load])
        means = dict.fromkeys(SHARES, parts.mean_s)
        found = {RATIO: _scaled(self.percentiles, at, means)} if self.percentiles else {}
        if self.widths is not None:
            passages = PassageTimes([parts])
            values = {
                share: float(passages.percentile_s(int(share) / 100, *self.widths)[0]) for share in SHARES
            }
            found = {PASSAGE: _scaled(self.left_over, at, values), **found}
        return found


def blended(
    models_s: Mapping[str, Mapping[str, Mapping[str, float]]], weights: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """The weighted geometric mean of the models of percentiles; without weights for any of them, the first."""
    used = {name: weights[name] for name in models_s if weights.get(name, 0.0) > 0}
    if not used:
        used = dict.fromkeys(list(models_s)[:1], 1.0)
    total = sum(used.values())
    first = models_s[next(iter(used))] if used else {}
    return {
        operation: {
            share: math.exp(
                sum(weight * math.log(models_s[name][operation][share]) for name, weight in used.items())
                / total
            )
            for share in values
        }
        for operation, values in first.items()
    }


def _scaled(
    ratios: _ByOperation, features: Array, values_s: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    found = {}
    for name, parts in ratios.items():
        known = [share for share in SHARES if share in parts]
        times_s = [values_s[share] * parts[share].at(features) for share in known]
        found[name] = dict(zip(known, np.maximum.accumulate(times_s).tolist(), strict=True))
    return found


def fit_shapes(
    observations: Sequence[TrialObservation], loads: Sequence[float], parts: Sequence[ResponseParts]
) -> ResponseShapes:
    """Fit both models; `loads` are the utilisations of the busiest centre and `parts` those of the response time."""
    settings = [one.settings for one in observations]
    rows = _features(settings, loads)
    means_s = np.array([one.response_s for one in observations])
    operations = dict.fromkeys(name for one in observations for name in one.responses_s)
    responses = {
        name: found
        for name in operations
        if name != "all"
        and (found := _ratio(rows, [one.responses_s.get(name) for one in observations], means_s)) is not None
    }

    def by_operation(bases_s: Mapping[str, Array]) -> dict[str, dict[str, _Ratio]]:
        found = {}
        for name in operations:
            ratios = {
                share: ratio
                for share in SHARES
                if (ratio := _ratio(rows, _measured(observations, name, share), bases_s[share])) is not None
            }
            if ratios:
                found[name] = ratios
        return found

    percentiles = by_operation(dict.fromkeys(SHARES, means_s))
    known = [place for place, value in enumerate(_measured(observations, "all", "95")) if value]
    if not known:
        return ResponseShapes(responses, percentiles, {}, None)
    # Of the measured mean, so that errors of the mean are not taken for errors of the shape.
    factors = means_s / np.array([one.mean_s for one in parts])
    passages = PassageTimes([one.scaled(factor) for one, factor in zip(parts, factors.tolist(), strict=True)])
    seen_s = np.array([value or math.nan for value in _measured(observations, "all", "95")])
    widths = fit_widths(passages, seen_s)
    bases_s = {share: passages.percentile_s(int(share) / 100, *widths) for share in SHARES}
    return ResponseShapes(responses, percentiles, by_operation(bases_s), widths)


def _measured(observations: Sequence[TrialObservation], operation: str, share: str) -> list[float | None]:
    return [one.percentiles_s.get(operation, {}).get(share) for one in observations]


def _ratio(features: Array, values: Sequence[float | None], bases: Array) -> _Ratio | None:
    known = [place for place, value in enumerate(values) if value]
    if not known:
        return None
    logs = np.log(np.array([values[place] for place in known], dtype=float) / bases[known])
    process = None
    if len({tuple(row) for row in features[known].tolist()}) >= _NEEDED:
        process = fit_gaussian_process(features[known], logs)
    return _Ratio(float(logs.mean()), float(logs.min()), float(logs.max()), process)


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
