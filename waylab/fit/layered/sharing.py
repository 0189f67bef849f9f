"""How much longer work takes because threads share the cores of a host."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Array = NDArray[np.float64]

# How close logarithms of stretches must be.
CLOSE = 1e-6
_GUESSES = 14
# Beyond so many threads the number that runs is as good as its mean.
_THREADS_COUNTED = 64


def falling_root(gap: Callable[[Array], Array], high: Array) -> Array:
    """Where a falling function is zero between 0 and `high`, by false position (Illinois)."""
    low, above, below = np.zeros_like(high), gap(np.zeros_like(high)), gap(high)
    side = np.zeros_like(high)
    # No crowding: the function is not positive anywhere.
    none = above <= 0
    for _ in range(_GUESSES):
        with np.errstate(divide="ignore", invalid="ignore"):
            place = low + (high - low) * np.clip(np.nan_to_num(above / (above - below), nan=0.5), 0.0, 1.0)
        here = gap(place)
        up = here > 0
        low, high = np.where(up, place, low), np.where(up, high, place)
        below = np.where(up, np.where(side > 0, below / 2, below), here)
        above = np.where(up, here, np.where(side < 0, above / 2, above))
        side = np.where(up, 1.0, -1.0)
        if np.abs(here[~none]).max(initial=0.0) < CLOSE:
            break
    return np.asarray(np.where(none, 0.0, place))


def crowding(threads: Array, busy: Array, cores: Array) -> Array:
    """How much longer a thread runs beside the others that are busy: E max(1, k / cores), itself among the k."""
    share = np.clip(busy / np.maximum(threads, 1), 1e-12, 1 - 1e-12)
    others = threads - 1
    plain = np.maximum(1.0, (1 + others * share) / cores)
    if threads.max() > _THREADS_COUNTED:
        return plain
    counts = np.arange(int(others.max()) + 1)
    rest = others[..., None] - counts
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = (
            gammaln(others[..., None] + 1)
            - gammaln(counts + 1)
            - gammaln(np.maximum(rest, 0) + 1)
            + counts * np.log(share)[..., None]
            + rest * np.log1p(-share)[..., None]
        )
    weights = np.exp(np.where(rest >= 0, logs, -np.inf))
    return np.asarray((weights * np.maximum(1.0, (1 + counts) / cores[..., None])).sum(axis=-1))
