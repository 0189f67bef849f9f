"""What a correlated series says about its mean: batch means, effective size, or in words why it is too short.

A series is any numbers taken at equal distances; this file knows nothing of trials.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from waylab.errors import LabError

Array = NDArray[np.float64]

CONFIDENCE = 0.95
# The batch is doubled until neighbouring batches correlate less than this, while so many batches remain.
LAG_1_WANTED = 0.1
BATCHES_MIN = 20
# The batch must be able to double once, or nothing is known about how correlation fades.
VALUES_MIN = 2 * BATCHES_MIN
# What is left at the largest batch is corrected for as if it were autoregressive; beyond this it is too much.
LAG_1_MAX = 0.5
EFFECTIVE_MIN = 10.0
# The lag-1 correlation that is still plausible lies so many standard errors above its estimate: one-sided, 5 %.
_PLAUSIBLE = 1.645
# A series is long enough with about this many effective values. Messages about shorter ones name the length needed.
_EFFECTIVE_WANTED = 30.0


@dataclass(frozen=True, eq=False)
class Spreads:
    """How far the means of several series can be trusted; every field has shape (series,).

    `variance` is that of the mean, with `degrees` of freedom; `lag_1` belongs to the batches that were chosen, and
    `skewness` is that of their mean; `effective` is the number of independent values that would say as much, and
    `least` that number at the largest plausible correlation. `enough` is False where the series is too short, and the
    other numbers are then not to be used.
    """

    variance: Array
    degrees: Array
    batch: NDArray[np.int64]
    lag_1: Array
    skewness: Array
    effective: Array
    least: Array
    enough: NDArray[np.bool_]

    def distances(self, confidence: float = CONFIDENCE) -> tuple[Array, Array]:
        """How far each interval reaches below and above its mean, in the unit of the series.

        Student's interval with Willink's correction for a skewed mean (2005, Communications in Statistics 34(4)),
        as in Skart: with a = skewness / 6, t becomes ((1 + 6 a (t - a))^(1/3) - 1) / (2 a) on either side.
        """
        student = special.stdtrit(self.degrees, 0.5 + confidence / 2)
        part = np.where(np.abs(self.skewness) < 1e-6, 1e-6, self.skewness) / 6
        below, above = (
            (np.cbrt(1 + 6 * part * (side * student - part)) - 1) / (2 * part) for side in (1, -1)
        )
        return below * np.sqrt(self.variance), -above * np.sqrt(self.variance)


@dataclass(frozen=True)
class BatchMeans:
    """The mean of one series with its interval; `refused` says in words why there is none."""

    values: int
    mean: float
    low: float | None
    high: float | None
    batch: int
    batches: int
    lag_1: float
    effective: float
    degrees: float
    refused: str | None


def batch_means(values: ArrayLike, confidence: float = CONFIDENCE) -> BatchMeans:
    """Interval of the mean of a correlated series of shape (values,), in the series' own unit.

    Batch means (Conway 1963; Law, Simulation Modeling and Analysis, 5th ed., 9.5.3): means of neighbouring values
    are nearly independent when the batch is long. `spreads` says how the batch is chosen.

    Raises:
        LabError: unless the values are finite, at least one, and in one dimension.
    """
    series = np.asarray(values, dtype=float)
    if series.ndim != 1 or not series.size or not np.isfinite(series).all():
        raise LabError(
            f"batch means: need finite values in one dimension, not an array of shape {series.shape}"
        )
    mean = float(series.mean())
    if series.size < VALUES_MIN:
        short = too_few(series.size)
        return BatchMeans(series.size, mean, None, None, 1, series.size, math.nan, math.nan, math.nan, short)
    found = spreads(series[None])
    below, above = (float(distance[0]) for distance in found.distances(confidence))
    refused = None if found.enough[0] else too_correlated(found, series.size)
    batch = int(found.batch[0])
    return BatchMeans(
        series.size,
        mean,
        None if refused else mean - below,
        None if refused else mean + above,
        batch,
        series.size // batch,
        float(found.lag_1[0]),
        float(found.effective[0]),
        float(found.degrees[0]),
        refused,
    )


def spreads(series: Array) -> Spreads:
    """Variance of the mean of each series of shape (series, values), values >= VALUES_MIN.

    The smallest batch m = 1, 2, 4 ... whose means have a lag-1 autocorrelation below 0.1, with 20 batches at least.
    That alone covers too little: among series that are too short, those pass whose correlation happens to be
    underestimated, and their variance is underestimated with it. So
    - the autocorrelation is corrected for its bias, (b r + 1) / (b - 4) (Marriott and Pope 1954);
    - what is left of it enters the variance as if the batch means were autoregressive, S^2 / b (1 + r) / (1 - r)
      (as in Skart, Tafazzoli and Wilson 2011), and
    - the degrees of freedom account for r being estimated, 1 / degrees = 1 / b + 1 / ((1 - r^2) b): the variance of
      log S^2 and half of that of log (1 + r) / (1 - r), for r enters only where it is above 0;
    - the interval follows the skewness of the batch means;
    - where no batch has r below 0.1, the largest one serves if its r is below 0.5;
    - the series must be long enough for the largest correlation of single values that is plausible, not only for the
      estimated one (`_least`). Otherwise the few short series whose correlation is far underestimated would pass.
    """
    count, length = series.shape
    raw = series.var(axis=1, ddof=1) / length
    variance, degrees, lag_1, skewness, effective = (np.full(count, np.nan) for _ in range(5))
    batch = np.ones(count, dtype=np.int64)
    enough, open_ = np.zeros(count, dtype=bool), np.ones(count, dtype=bool)
    size = 1
    while open_.any():
        batches = length // size
        # What does not fill a batch is left out at the beginning, where the warm-up was.
        means = series[:, length - batches * size :].reshape(count, batches, size).mean(axis=2)
        correlation = (batches * lag_1_of(means) + 1) / (batches - 4)
        positive = np.clip(correlation, 0.0, 0.95)
        estimate = (
            means.var(axis=1, ddof=1) / batches * (1 + positive) / (1 - positive) * batches * size / length
        )
        last = length // (2 * size) < BATCHES_MIN
        chosen = open_ & (last | (correlation < LAG_1_WANTED))
        variance[chosen], lag_1[chosen], batch[chosen] = estimate[chosen], correlation[chosen], size
        degrees[chosen] = (batches / (1 + 1 / (1 - positive**2)))[chosen]
        skewness[chosen] = (_skewness(means) / np.sqrt(batches * (1 - positive) / (1 + positive)))[chosen]
        steady = estimate <= 0
        shares = np.where(steady, 1.0, raw / np.where(steady, 1.0, estimate))
        effective[chosen] = length * np.minimum(shares, 1.0)[chosen]
        enough[chosen] = ((correlation < LAG_1_MAX) & (length * shares >= EFFECTIVE_MIN))[chosen]
        open_ &= ~chosen
        size *= 2
    least = _least(series)
    return Spreads(
        variance, degrees, batch, lag_1, skewness, effective, least, enough & (least >= EFFECTIVE_MIN)
    )


def _least(series: Array) -> Array:
    """Effective number of values if they are AR(1) with the largest plausible correlation; shape (series,).

    The estimate is corrected for its bias, as in `spreads`, and has the standard error sqrt((1 - r^2) / n) (Bartlett
    1946).
    """
    length = series.shape[1]
    estimate = np.clip((length * lag_1_of(series) + 1) / (length - 4), -1.0, 1.0)
    plausible = np.clip(estimate + _PLAUSIBLE * np.sqrt((1 - estimate**2) / length), 0.0, 0.999)
    return np.asarray(length * (1 - plausible) / (1 + plausible))


def lag_1_of(series: Array) -> Array:
    """Lag-1 autocorrelation of each series of shape (series, values); 0 for a constant one."""
    deviations = series - series.mean(axis=1, keepdims=True)
    own = np.einsum("ij,ij->i", deviations, deviations)
    neighbours = np.einsum("ij,ij->i", deviations[:, 1:], deviations[:, :-1])
    # Rounding leaves a constant series with deviations; they mean nothing.
    constant = own <= 1e-24 * np.maximum(np.einsum("ij,ij->i", series, series), 1e-300)
    return np.where(constant, 0.0, neighbours / np.where(constant, 1.0, own))


def _skewness(series: Array) -> Array:
    deviations = series - series.mean(axis=1, keepdims=True)
    second, third = (deviations**2).mean(axis=1), (deviations**3).mean(axis=1)
    constant = second <= 1e-24 * np.maximum((series**2).mean(axis=1), 1e-300)
    return np.where(constant, 0.0, third / np.where(constant, 1.0, second) ** 1.5)


def ratio_residuals(above: ArrayLike, below: ArrayLike) -> tuple[float, Array]:
    """Ratio of two sums, and the series whose mean varies as the ratio does (Cochran, Sampling Techniques, 1977, 2.11).

    Both of shape (values,): say, the requests of each second that were slow, and all requests of that second.

    Raises:
        LabError: unless both have the same length and the sum below is above zero.
    """
    upper, lower = np.asarray(above, dtype=float), np.asarray(below, dtype=float)
    if upper.shape != lower.shape or upper.ndim != 1 or not lower.sum() > 0:
        raise LabError("ratio: needs two series of the same length, the lower one with a sum above zero")
    ratio = float(upper.sum() / lower.sum())
    return ratio, (upper - ratio * lower) / lower.mean()


def ratio_interval(above: ArrayLike, below: ArrayLike, confidence: float = CONFIDENCE) -> BatchMeans:
    """Interval of a ratio of two sums over a correlated series, both of shape (values,); see `ratio_residuals`.

    Raises:
        LabError: as `ratio_residuals` and `batch_means`.
    """
    ratio, residuals = ratio_residuals(above, below)
    found = batch_means(residuals, confidence)
    low, high = (None if limit is None else ratio + limit for limit in (found.low, found.high))
    return replace(found, mean=ratio, low=low, high=high)


def too_few(values: int) -> str:
    """Say that a series is too short to be judged."""
    return f"too short: {values} values, and it takes {VALUES_MIN} to see how they depend on each other"


def too_correlated(found: Spreads, values: int, index: int = 0) -> str:
    """Say why the batches of one series are not good enough, and about how long it should be."""
    batch, lag_1, effective = (
        int(found.batch[index]),
        float(found.lag_1[index]),
        float(found.effective[index]),
    )
    least = float(found.least[index])
    fewer = f", possibly only {least:.0f}" if least < min(EFFECTIVE_MIN, effective) else ""
    wanted = math.ceil(max(2 * values, values * _EFFECTIVE_WANTED / max(effective, 1e-9)) / 10) * 10
    return (
        f"too short: of {values} values about {effective:.0f} are independent{fewer}, and means of {batch} "
        f"neighbours still correlate by {lag_1:.2f}; some {wanted} values are needed"
    )
