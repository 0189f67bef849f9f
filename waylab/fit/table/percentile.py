"""The 95th percentile of the response time in the middlewares, from its mean.

A request behind a queue waits for many services that are nearly independent, so that the standard deviation of its time
grows with the square root of the mean. The excess of the percentile over the mean, divided by that root, is therefore
nearly the same at any load; the ratio of percentile and mean is not.
"""

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
class PercentileExcess:
    """The excess over the mean, divided by the square root of the mean, as a smooth function of the settings."""

    process: GaussianProcess
    low: float
    high: float

    def p95_s(self, settings: CellSettings, mean_s: float) -> float:
        """The 95th percentile for this mean; the excess is never beyond the calibrated ones."""
        found = float(self.process.predict(_features([settings]))[0])
        return mean_s + math.sqrt(mean_s) * math.exp(min(max(found, self.low), self.high))


def _features(settings: Sequence[CellSettings]) -> Array:
    crowd = [[math.log1p(one.clients / one.slots) if one.slots else 0.0] for one in settings]
    return np.hstack([features_of(settings), np.array(crowd)])


def fit_percentile_excess(cells: Sequence[ObservedCell]) -> PercentileExcess | None:
    """Fit to the cells that have both, with the percentile above the mean; nothing with fewer than three."""
    known = [
        (one.settings, math.log((p95_s - mean_s) / math.sqrt(mean_s)))
        for one in cells
        if (p95_s := one.mean.response_p95_s)
        and (mean_s := one.mean.response_middleware_s)
        and p95_s > mean_s
    ]
    if len(known) < _NEEDED:
        return None
    values = np.array([value for _, value in known])
    process = fit_gaussian_process(_features([one for one, _ in known]), values)
    return PercentileExcess(process, float(values.min()), float(values.max()))
