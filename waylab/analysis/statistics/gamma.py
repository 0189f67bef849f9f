"""A gamma distribution fitted to positive values that are counted in buckets, and how far it is from them."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from waylab.errors import LabError

Array = NDArray[np.float64]

# Nearly equal values have a shape beyond this; a density would be a needle that no figure can show.
_SHAPE_MAX = 1e6


@dataclass(frozen=True)
class Gamma:
    """Shape (no unit) and scale (unit of the values); `distance` is that of Kolmogorov and Smirnov, 0 to 1."""

    shape: float
    scale: float
    distance: float

    def share_below(self, values: ArrayLike) -> Array:
        """Cumulative distribution at values of any shape, in their unit."""
        return np.asarray(special.gammainc(self.shape, np.asarray(values, dtype=float) / self.scale))


def fit_gamma(values: ArrayLike, counts: ArrayLike) -> Gamma:
    """Fit by maximum likelihood; `values` of shape (buckets,) in rising order, `counts` how often each was seen.

    The shape k solves ln k - digamma(k) = ln(mean) - mean(ln), the scale is mean / k (Johnson, Kotz and Balakrishnan,
    Continuous Univariate Distributions 1, 1994, 17.7.2). The largest distance between both cumulative distributions
    is described, not tested: requests of one run are correlated, so that a p-value would mean nothing.

    Raises:
        LabError: unless there are two different values at least, all above zero, or when they are nearly equal.
    """
    places, weights = np.asarray(values, dtype=float), np.asarray(counts, dtype=float)
    if places.ndim != 1 or places.shape != weights.shape or (weights < 0).any():
        raise LabError("gamma fit: needs one count, not below zero, for each value")
    places, weights = places[weights > 0], weights[weights > 0]
    if places.size < 2 or not (places > 0).all() or not np.isfinite(places).all():
        raise LabError("gamma fit: needs two different values at least, all above zero")
    total = float(weights.sum())
    mean = float(places @ weights) / total
    spread = math.log(mean) - float(np.log(places) @ weights) / total
    if spread <= 1 / (2 * _SHAPE_MAX):
        raise LabError("gamma fit: the values are nearly equal")

    def off(logged: float) -> float:
        return logged - float(special.digamma(math.exp(logged))) - spread

    shape = math.exp(optimize.brentq(off, math.log(1e-6), math.log(10 * _SHAPE_MAX), xtol=1e-12))
    found = Gamma(shape, mean / shape, 0.0)
    below = np.cumsum(weights) / total
    fitted = found.share_below(places)
    distance = float(np.maximum(np.abs(below - fitted), np.abs(below - weights / total - fitted)).max())
    return Gamma(found.shape, found.scale, distance)
