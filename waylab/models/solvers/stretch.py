"""Time of a visit relative to its service, given the mean number present on arrival.

For several servers or rates the mean is not enough, so a distribution of the number present is fitted to it. Knows no
networks.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from waylab.models.solvers.weights import rates_up_to

Array = NDArray[np.float64]
_ROUNDS_MAX = 200
_TOLERANCE = 1e-12
# Without a limit on the number present: this multiple of the mean, and this many more, are considered.
_TIMES = 12
_MORE = 40


def stretch(rates: Array, others: int | None, mean: float) -> float:
    """Time of a visit in units of its service at the speed of one server, for a request that finds `mean` others.

    One server: 1 + mean, as in mean-value analysis. Else the sum over j of p(j) (j+1) / r(j+1), where p is the
    distribution over j = 0..others of a birth-death chain with the death rates r(j) and a finite source of `others`
    (an infinite one when None), whose birth rate is such that its mean is `mean`. Exact for one station with a
    delay; the tests of the fork-join solver check it for other networks.
    """
    if len(rates) == 1:
        return float((1 + mean) / rates[0])
    shares = present_given(rates, others, mean)
    count = np.arange(1, len(shares) + 1)
    return float(shares @ (count / rates_up_to(rates, len(shares))))


def present_given(rates: Array, others: int | None, mean: float) -> Array:
    """The distribution of `stretch`: P(j present), j = 0..others."""
    if others is None:
        most = math.ceil(_TIMES * mean) + _MORE + len(rates)
        log_weights = np.zeros(most + 1)
    else:
        most = others
        count = np.arange(most + 1)
        log_weights = gammaln(most + 1.0) - gammaln(most - count + 1.0)
    if most == 0 or mean <= 0:
        return np.asarray(np.eye(1, most + 1)[0])
    if mean >= most * (1 - _TOLERANCE):
        return np.asarray(np.eye(1, most + 1, most)[0])
    speeds = rates_up_to(rates, most)
    log_weights[1:] -= np.cumsum(np.log(speeds))
    # The tilt at which births equal deaths for the mean number.
    speed = np.interp(mean, np.arange(most + 1), np.concatenate([[0.0], speeds]))
    start = math.log(speed) - (0.0 if others is None else math.log(most - mean))
    return _tilted(log_weights, mean, start)


def _tilted(log_weights: Array, mean: float, start: float) -> Array:
    """Weights times a geometric series, so that the mean is the given one: Newton's method on its log-odds."""
    most = len(log_weights) - 1
    count = np.arange(most + 1)
    wanted = math.log(mean / (most - mean))
    tilt, low, high = start, -math.inf, math.inf
    shares = np.zeros(most + 1)
    for _ in range(_ROUNDS_MAX):
        joint = log_weights + tilt * count
        shares = np.exp(joint - joint.max())
        shares /= shares.sum()
        found = float(shares @ count)
        missing = float(shares @ (most - count))
        if found > 0 and missing > 0:
            error = math.log(found / missing) - wanted
            if abs(error) < _TOLERANCE:
                break
            slope = float(shares @ (count - found) ** 2) * most / (found * missing)
            step = -error / slope if slope > 0 else -math.copysign(1.0, error)
        else:
            error = -1.0 if found == 0 else 1.0
            step = -math.copysign(8.0, error)
        low, high = (tilt, high) if error < 0 else (low, tilt)
        tilt += step
        if not low < tilt < high:
            tilt = (low + high) / 2
    return shares
