"""Does the level of a series change? Finds steps and drifts. Knows nothing of trials."""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from waylab.errors import LabError

Array = NDArray[np.float64]

VALUES_MIN = 20
# Longer series are averaged over neighbours, to at least so many values. Slow changes remain visible.
_BATCHES = 40
# A step must be so far from both ends, as a share of the series and in values (Andrews 1993).
_TRIMMED, _TRIMMED_VALUES = 0.15, 3
# An early step or an exponential approach is a warm-up. A later step, or a drift over the whole series, is not.
WARM_UP_MAX = 1 / 3
_DECAYS = (0.05, 0.1, 0.2)
_CORRELATION_MAX = 0.95


@dataclass(frozen=True)
class LevelChange:
    """The change that explains a series best.

    `size` is the level at the end minus that at the beginning, as a share of the mean. `statistic` is Student's t of
    that difference. Chance alone exceeds `critical` in at most 5 % of the series.
    """

    values: int  # length of the series
    shape: str  # step, drift or warm-up
    at: int  # values before the step; 0 for the other shapes
    size: float
    statistic: float
    critical: float
    late: bool

    def larger_than(self, share: float) -> bool:
        """Return whether the series changes by more than this share of its mean, and not by chance."""
        return self.statistic > self.critical and abs(self.size) > share


@dataclass(frozen=True)
class _Candidates:
    """Shapes that rise from 0 to 1, of shape (candidates, values), with their names."""

    shapes: Array
    names: tuple[str, ...]
    places: NDArray[np.int64]
    late: NDArray[np.bool_]


def level_change(values: ArrayLike) -> LevelChange:
    """Fit every step, a drift and three exponential warm-ups to a series of shape (values,); return the likeliest one.

    The errors of each fit are autoregressive: their lag-1 correlation is estimated from the residuals of that fit, so
    that the change itself is not taken for correlation, and corrected for its bias (Marriott and Pope 1954). The fit
    is generalised least squares with that correlation (Prais and Winsten 1954). `_critical` explains the limit.

    Raises:
        LabError: unless the values are finite, in one dimension, at least 20, with a mean above zero.
    """
    series = np.asarray(values, dtype=float)
    if series.ndim != 1 or series.size < VALUES_MIN or not np.isfinite(series).all():
        raise LabError(
            f"level: needs {VALUES_MIN} finite values in one dimension, not an array of shape {series.shape}"
        )
    mean = float(series.mean())
    if not mean > 0:
        raise LabError("level: needs a series with a mean above zero")
    size = max(1, series.size // _BATCHES)
    count = series.size // size
    means = series[series.size - count * size :].reshape(count, size).mean(axis=1)
    centred = means - means.mean()
    if float(centred @ centred) <= 1e-24 * float(means @ means):
        return LevelChange(series.size, "drift", 0, 0.0, 0.0, _critical(0.0, count), late=False)
    tried = _candidates(count)
    sizes, statistics, correlations, likelihoods = _fits(centred, tried.shapes)
    best = int(np.argmax(likelihoods))
    return LevelChange(
        series.size,
        tried.names[best],
        series.size - (count - int(tried.places[best])) * size if tried.places[best] else 0,
        float(sizes[best]) / mean,
        float(statistics[best]),
        _critical(float(correlations[best]), count),
        bool(tried.late[best]),
    )


@cache
def _candidates(count: int) -> _Candidates:
    places = np.arange(count)
    edge = max(_TRIMMED_VALUES, math.ceil(_TRIMMED * count))
    steps = np.arange(edge, count - edge + 1)
    rows = [(places >= step).astype(float) for step in steps]
    rows.append(places / (count - 1))
    rows += [1 - np.exp(-places / (share * count)) for share in _DECAYS]
    names = ("step",) * steps.size + ("drift",) + ("warm-up",) * len(_DECAYS)
    late = np.append(steps > WARM_UP_MAX * count, [True, *[False] * len(_DECAYS)])
    return _Candidates(np.array(rows), names, np.append(steps, [0] * (1 + len(_DECAYS))), late)


def _fits(centred: Array, shapes: Array) -> tuple[Array, Array, Array, Array]:
    """Return size, Student's t, correlation of errors and log-likelihood of each shape, fitted with a constant."""
    count = centred.size
    around = shapes - shapes.mean(axis=1, keepdims=True)
    slopes = around @ centred / (around**2).sum(axis=1)
    errors = centred - slopes[:, None] * around
    squares = np.maximum((errors**2).sum(axis=1), 1e-300)
    lag_1 = (errors[:, 1:] * errors[:, :-1]).sum(axis=1) / squares
    correlation = np.clip((count * lag_1 + 1) / (count - 3), 0.0, _CORRELATION_MAX)

    def inner(one: Array, other: Array) -> Array:
        """Inner product of the prewhitened series: the first value, and each one minus r times the one before."""
        here, before = one[..., 1:], one[..., :-1]
        there, before_there = other[..., 1:], other[..., :-1]
        crossed = (here * before_there).sum(axis=-1) + (before * there).sum(axis=-1)
        return np.asarray(
            (1 - correlation**2) * one[..., 0] * other[..., 0]
            + (here * there).sum(axis=-1)
            - correlation * crossed
            + correlation**2 * (before * before_there).sum(axis=-1)
        )

    ones = np.ones(count)
    constant, mixed, shape = inner(ones, ones), inner(shapes, ones), inner(shapes, shapes)
    of_constant, of_shape = inner(ones, centred), inner(shapes, centred)
    determinant = constant * shape - mixed**2
    sizes = (constant * of_shape - mixed * of_constant) / determinant
    levels = (shape * of_constant - mixed * of_shape) / determinant
    left = np.maximum(inner(centred, centred) - levels * of_constant - sizes * of_shape, 1e-300) / (count - 3)
    statistics = np.abs(sizes) / np.sqrt(left * constant / determinant)
    return sizes, statistics, correlation, np.log1p(-(correlation**2)) - count * np.log(left)


def _critical(correlation: float, count: int) -> float:
    """Return the statistic that chance exceeds in at most 5 % of the series of so many values.

    The statistic is the largest of many, and the correlation is estimated, so Student's quantile is too small. The
    limit belongs to the largest correlation that is plausible: the estimate plus two standard errors. It grows with
    that correlation and falls with the number of values. The constants come from simulations of AR(1) with
    coefficients of 0 to 0.9 and 20 to 300 values, which docs/statistics-coverage.md repeats.
    """
    plausible = min(_CORRELATION_MAX, correlation + 2 * math.sqrt((1 - correlation**2) / count))
    larger = math.sqrt((1 + plausible) / (1 - plausible)) - 1
    return 3.7 + 1.6 * larger * math.pow(40 / count, 1.2)
