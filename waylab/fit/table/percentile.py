"""The 95th percentile of the response time in the middlewares, as a multiple of its mean."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waylab.fit.table.gaussian_process import GaussianProcess, features_of, fit_gaussian_process
from waylab.fit.table.observations import CellSettings, ObservedCell

Array = NDArray[np.float64]
_NEEDED = 3


@dataclass(frozen=True)
class PercentileRatio:
    """A smooth function of the settings: near 1 behind a long queue, larger at low load."""

    process: GaussianProcess
    low: float
    high: float

    def ratio(self, settings: CellSettings) -> float:
        """The 95th percentile divided by the mean; never beyond the calibrated ratios."""
        found = float(self.process.predict(_features([settings]))[0])
        return math.exp(min(max(found, self.low), self.high))


def _features(settings: Sequence[CellSettings]) -> Array:
    crowd = [[math.log1p(one.clients / one.slots) if one.slots else 0.0] for one in settings]
    return np.hstack([features_of(settings), np.array(crowd)])


def fit_percentile_ratio(cells: Sequence[ObservedCell]) -> PercentileRatio | None:
    """Fit to the cells that have both; nothing with fewer than three."""
    known = [
        (one.settings, math.log(one.mean.response_p95_s / one.mean.response_middleware_s))
        for one in cells
        if one.mean.response_p95_s and one.mean.response_middleware_s
    ]
    if len(known) < _NEEDED:
        return None
    values = np.array([value for _, value in known])
    process = fit_gaussian_process(_features([one for one, _ in known]), values)
    return PercentileRatio(process, float(values.min()), float(values.max()))
