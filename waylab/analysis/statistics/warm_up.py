"""Where the warm-up of a series ends: MSER-5. Knows nothing of trials; a series has one value per second."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from waylab.errors import LabError

Array = NDArray[np.float64]

BATCH = 5
# Fewer batches are mostly noise; a series that is too short for so many batches of five has smaller ones.
_BATCHES_WANTED = 20
VALUES_MIN = _BATCHES_WANTED


@dataclass(frozen=True)
class WarmUp:
    """How many values to cut off at the beginning.

    `steady` is False when half would have to go. `refused` says in words why the series is too short; then `steady` is
    None. Nothing is cut in either case.
    """

    values: int
    cut: int
    batch: int
    steady: bool | None
    refused: str | None


def mser(values: ArrayLike, batch: int | None = None) -> WarmUp:
    """Find the cut that makes the standard error of the mean of the rest smallest; values of shape (values,).

    MSER-5: over means z of five neighbours, the cut d <= m / 2 with the smallest sum of (z_i - mean)^2 over i > d,
    divided by (m - d)^2 (White 1997, Simulation 69(6); White, Cobb and Spratt 2000). A smallest value at the very
    end of that range suggests that the series never reached a steady state (Hoad, Robinson and Davies 2010, JORS
    61(9)); `steady_state.py` tests this.
    The batch is smaller than five where the series has fewer than a hundred values.

    Raises:
        LabError: unless the values are finite and in one dimension, and the batch at least 1.
    """
    series = np.asarray(values, dtype=float)
    if series.ndim != 1 or not np.isfinite(series).all():
        raise LabError(f"warm-up: needs finite values in one dimension, not an array of shape {series.shape}")
    if batch is not None and batch < 1:
        raise LabError(f"warm-up: a batch has at least one value, not {batch}")
    if series.size < VALUES_MIN:
        refused = f"too short: {series.size} values, and it takes {VALUES_MIN} to find a warm-up"
        return WarmUp(series.size, 0, 1, None, refused)
    size = batch or min(BATCH, series.size // _BATCHES_WANTED)
    count = series.size // size
    means = series[: count * size].reshape(count, size).mean(axis=1)
    errors = standard_errors(means)
    half = count // 2
    considered = errors[: half + 1]
    # Values that differ only by rounding count as equal; the earliest cut is used.
    cut = int(np.flatnonzero(considered <= considered.min() * (1 + 1e-9) + 1e-300)[0])
    steady = cut < half
    return WarmUp(series.size, cut * size if steady else 0, size, steady, None)


def standard_errors(means: Array) -> Array:
    """MSER statistic of every cut d = 0 ... m - 2 for batch means of shape (m,), in their unit squared."""
    centred = (means - means.mean())[::-1]
    sizes = np.arange(1, means.size + 1)
    around = np.cumsum(centred**2) - np.cumsum(centred) ** 2 / sizes
    return np.asarray((np.maximum(around, 0.0) / sizes**2)[:0:-1])
