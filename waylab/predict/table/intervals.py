"""Prediction intervals from errors at held-out cells inside the calibration set (conformal)."""

import math
from collections.abc import Sequence

import numpy as np

LEVEL = 0.9
# Half of the interval of a normal variate, in standard deviations.
NORMAL = 1.645
# With few errors, the quantile is pulled towards this one: the error of a chain at interpolated pool sizes in
# published studies is 8 to 10 % at the 90th percentile.
QUANTILE_BEFORE = 0.1
# The same to four times the calibrated clients.
QUANTILE_BEFORE_FAR = 0.2
# Times in the middlewares beyond the calibrated settings: they are a small difference of a cycle and a time outside.
QUANTILE_BEFORE_BEYOND = 0.3
_WEIGHT_BEFORE = 3.0


def half_width(errors: Sequence[float], run_spread: float, before: float = QUANTILE_BEFORE) -> float:
    """Half the width of the interval of ln of the measured value.

    The quantile of the absolute errors has the rank (n + 1) x 0.9, as a split conformal interval. With few errors, it
    is drawn towards `before`. An interval is never narrower than the variation from run to run.
    """
    sizes = np.sort(np.abs(np.asarray(errors, dtype=float)))
    found = before
    if sizes.size:
        place = min(sizes.size, math.ceil(LEVEL * (sizes.size + 1))) - 1
        weight = sizes.size / (sizes.size + _WEIGHT_BEFORE)
        found = math.exp(weight * math.log(max(float(sizes[place]), 1e-4)) + (1 - weight) * math.log(before))
    return max(found, NORMAL * run_spread)


def around(value: float, half: float) -> tuple[float, float]:
    """The interval of a positive value whose logarithm is uncertain by `half`."""
    return value * math.exp(-half), value * math.exp(half)
