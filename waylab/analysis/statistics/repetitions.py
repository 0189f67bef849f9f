"""Means over repetitions: the run is the experimental unit, requests within it are only sub-samples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from waylab.errors import LabError

CONFIDENCE = 0.95
# Wider than any interval of use; its exponential and its reciprocal are still numbers.
_EXPONENT_MAX = 200.0


@dataclass(frozen=True)
class MeanInterval:
    """A mean of `count` values with its interval, in the unit of the values; no interval for fewer than two."""

    count: int
    mean: float | None
    low: float | None
    high: float | None

    def bounds(self) -> tuple[float, float] | None:
        """Return both ends of the interval, or None if there is no interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> MeanInterval:
    """Mean and two-sided t interval of independent values (Jain, Computer Systems Performance Analysis, 1991, 13)."""
    count = len(values)
    if not count:
        return MeanInterval(0, None, None, None)
    mean = math.fsum(values) / count
    if count == 1:
        return MeanInterval(1, mean, None, None)
    half = half_width(values, confidence)
    return MeanInterval(count, mean, mean - half, mean + half)


def positive_mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> MeanInterval:
    """Mean of values that cannot be negative, such as rates and times, with an interval that is never below zero.

    The t interval of the logarithm of the mean, by the delta method: mean * exp(+- t s / (mean sqrt r)) (Casella and
    Berger, Statistical Inference, 2002, 5.5.4). For small spreads it equals the t interval of the mean.

    Raises:
        LabError: for a value below zero.
    """
    if any(value < 0 for value in values):
        raise LabError(f"mean of a positive quantity: a value is {min(values)}, below zero")
    found = mean_interval(values, confidence)
    if not found.mean or found.high is None:
        return found
    spread = math.exp(min((found.high - found.mean) / found.mean, _EXPONENT_MAX))
    return MeanInterval(found.count, found.mean, found.mean / spread, found.mean * spread)


def geometric_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> MeanInterval:
    """Geometric mean with the t interval of the logarithms: for times and rates, whose errors are proportions.

    Raises:
        LabError: for a value that is not above zero.
    """
    if any(not value > 0 for value in values):
        raise LabError(f"geometric mean: every value must be above zero, not {min(values)}")
    found = mean_interval([math.log(value) for value in values], confidence)
    mean, low, high = (
        None if value is None else math.exp(value) for value in (found.mean, found.low, found.high)
    )
    return MeanInterval(found.count, mean, low, high)


def half_width(values: Sequence[float], confidence: float = CONFIDENCE) -> float:
    """Half of the t interval of the mean: t s / sqrt(r), for two values or more."""
    student = float(special.stdtrit(len(values) - 1, 0.5 + confidence / 2))
    return student * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def relative_half_width(values: Sequence[float], confidence: float = CONFIDENCE) -> float | None:
    """Half-width over the absolute mean; None for fewer than two values or a mean of zero."""
    mean = math.fsum(values) / len(values) if values else 0.0
    if len(values) < 2 or mean == 0:
        return None
    return half_width(values, confidence) / abs(mean)


def corrected_precision(precision: float) -> float:
    """What half-width of the *estimated* mean is enough for e of the true one: e / (1 + e).

    Law, Simulation Modeling and Analysis, 5th ed., 9.4.1.

    Raises:
        LabError: unless the precision is above 0.
    """
    if not precision > 0:
        raise LabError(f"precision: must be above 0, not {precision}")
    return precision / (1 + precision)


def repetitions_needed(
    values: Sequence[float], precision: float, confidence: float = CONFIDENCE
) -> int | None:
    """Smallest r with t s / sqrt(r) <= e / (1 + e) |mean|, with s and mean of these values (Jain 13.9, with Law's e).

    A forecast for telling how long it will take, not a promise. None for fewer than two values or a mean of zero.
    """
    wanted = corrected_precision(precision)
    mean = math.fsum(values) / len(values) if values else 0.0
    if len(values) < 2 or mean == 0:
        return None
    spread = float(np.std(values, ddof=1)) / abs(mean)
    count = 2
    while float(special.stdtrit(count - 1, 0.5 + confidence / 2)) * spread / math.sqrt(count) > wanted:
        # Steps of a hundredth: exact where it is near, fast where it is far.
        count += max(1, count // 100)
    return count
