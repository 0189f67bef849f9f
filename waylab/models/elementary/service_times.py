"""Properties of a service time that a single-server queue needs: moments, arrivals during a service, phases.

Knows the distributions of `Service`, and no queue.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammainc

from waylab.models.service import Service

Array = NDArray[np.float64]

# For the lognormal time: standard deviations on either side, and points.
_REACH, _POINTS = 9.0, 1501


def second_moment_s2(service: Service) -> float:
    """Mean of the squared service time."""
    return service.mean_s**2 * (1 + service.squared_variation)


def third_moment_s3(service: Service) -> float:
    """Mean of the third power of the service time."""
    cube, variation = service.mean_s**3, service.squared_variation
    if service.distribution == "lognormal":
        return cube * (1 + variation) ** 3
    if service.distribution == "hyperexponential":
        return 6 * math.fsum(share * mean_s**3 for share, mean_s in _two_phases(service))
    if service.distribution == "empirical":
        return math.fsum(value**3 for value in service.values_s) / len(service.values_s)
    # Gamma, and with it Erlang, exponential and, at zero variation, deterministic.
    return cube * (1 + variation) * (1 + 2 * variation)


def more_arrivals(service: Service, arrivals_per_s: float, largest: int) -> Array:
    """Probability of more than n Poisson arrivals during one service, for n = 0..largest, shape (largest + 1,)."""
    counts = np.arange(largest + 1)
    offered = arrivals_per_s * service.mean_s
    if service.distribution == "deterministic":
        return np.asarray(gammainc(counts + 1, offered))
    if service.distribution == "hyperexponential":
        parts = [
            share * (arrivals_per_s * mean_s / (1 + arrivals_per_s * mean_s)) ** (counts + 1)
            for share, mean_s in _two_phases(service)
        ]
        return np.asarray(sum(parts))
    if service.distribution == "empirical":
        values, times = np.unique(service.values_s, return_counts=True)
        return _mixed_poisson(arrivals_per_s * values, times / times.sum(), counts)
    if service.distribution == "lognormal":
        # A smooth function under the normal density: equal steps are an optimal quadrature.
        width = math.sqrt(math.log1p(service.squared_variation))
        normal = np.linspace(-_REACH, _REACH, _POINTS)
        weights = np.exp(-(normal**2) / 2)
        times_s = service.mean_s * np.exp(width * normal - width**2 / 2)
        return _mixed_poisson(arrivals_per_s * times_s, weights / weights.sum(), counts)
    # Gamma: the number of arrivals is negative binomial.
    shape = 1 / service.squared_variation
    return np.asarray(betainc(counts + 1, shape, offered / (shape + offered)))


def _mixed_poisson(means: Array, weights: Array, counts: NDArray[np.int64]) -> Array:
    return np.array([float(weights @ gammainc(count + 1, means)) for count in counts])


def _two_phases(service: Service) -> tuple[tuple[float, float], tuple[float, float]]:
    """Share and mean of two exponential phases of balanced means, share * mean the same for both."""
    variation = service.squared_variation
    one = (1 + math.sqrt((variation - 1) / (variation + 1))) / 2
    return (one, service.mean_s / (2 * one)), (1 - one, service.mean_s / (2 * (1 - one)))
