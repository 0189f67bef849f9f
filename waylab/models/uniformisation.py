"""Uniformisation: times until absorption as sums over a Poisson process, with positive terms only.

Used by the waiting times of finite queues and by phase-type times; knows no queue.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from waylab.models.errors import ModelError

Array = NDArray[np.float64]

# The probability outside of the window is below 1e-30.
_DEVIATIONS = 12.0
# A survival probability below this counts as zero: no representable share below 1 corresponds to it.
_TINY = 1e-290


def poisson_window(mean: float) -> tuple[int, Array]:
    """Probabilities of the counts of a Poisson distribution that matter.

    The logarithms are summed outwards from the mode, so that they stay small and keep their digits, and the sum is
    scaled to one. `scipy.stats.poisson.pmf` loses seven digits in the tails at a mean of 200 000 and takes 3 times
    longer. Returns the first count and the probabilities from there on (Fox and Glynn, Computing Poisson
    probabilities, CACM 31, 1988).
    """
    if mean <= 0:
        return 0, np.ones(1)
    mode = int(mean)
    reach = int(_DEVIATIONS * math.sqrt(mean) + 60)
    first = max(0, mode - reach)
    counts = np.arange(first + 1, mode + reach + 1)
    steps = math.log(mean) - np.log(counts)
    above = np.cumsum(steps[mode - first :])
    below = -np.cumsum(steps[: mode - first][::-1])[::-1]
    weights = np.exp(np.concatenate((below, [0.0], above)))
    return first, np.asarray(weights / weights.sum())


def quantile(survival: Callable[[float], float], share: float, scale: float) -> float:
    """Quantile: the time at which a falling survival function P(time > t) is 1 - share.

    The search starts at `scale`, a typical time. It compares logarithms, because a survival function falls like an
    exponential.

    Raises:
        ModelError: for a share that is not between 0 and 1, both excluded.
    """
    check_share(share)
    target = math.log1p(-share)

    def excess(time: float) -> float:
        return math.log(max(survival(time), _TINY)) - target

    low, high = 0.0, scale
    if excess(low) <= 0:
        return 0.0
    while excess(high) > 0:
        low, high = high, 2 * high
    return float(brentq(excess, low, high, xtol=1e-14 * high, rtol=1e-14))


def check_share(share: float) -> None:
    """Check that a share has a quantile.

    Raises:
        ModelError: unless 0 < share < 1.
    """
    if not 0 < share < 1:
        raise ModelError("share", f"must lie between 0 and 1, not {share}")
