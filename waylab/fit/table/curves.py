"""Smooth monotone curves of a time against a number present, in logarithms: w(n) and z(k)."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def knots_to(largest: float, start: float = 1.0) -> Array:
    """Knots at powers of two up to the first that is not smaller than the largest number."""
    count = max(2, int(np.ceil(np.log2(max(largest, 2.0) / start) - 1e-9)) + 1)
    return np.asarray(np.log(start) + np.log(2.0) * np.arange(count))


class RateCurve:
    """ln time as a function of ln n: smooth, with slopes between 0 and 1.

    A slope of 0 is a constant time: no contention. A slope of 1 is a constant rate: saturation. Between knots the
    slope is interpolated linearly, so that the curve has no corners.
    """

    def __init__(self, largest: float) -> None:
        self.knots = knots_to(largest)

    def weights(self, numbers: Array) -> Array:
        """Integrals from ln 1 to ln n of the hat functions at the knots, shape (numbers, knots)."""
        at = np.log(np.maximum(numbers, 1.0))
        step = self.knots[1] - self.knots[0]
        # Integral of the hat function around each knot, from minus infinity; constant slope beyond the last knot.
        places = (at[:, None] - self.knots[None, :]) / step
        rising = np.clip(places, -1, 0)
        falling = np.clip(places, 0, 1)
        areas = step * ((rising + 1) ** 2 / 2 + falling - falling**2 / 2)
        areas[:, 0] -= step / 2
        beyond = np.maximum(at - self.knots[-1], 0)
        areas[:, -1] = step * (rising[:, -1] + 1) ** 2 / 2 + beyond
        return np.asarray(areas)

    def slopes(self, numbers: Array) -> Array:
        """Values of the hat functions at these numbers, shape (numbers, knots); zero below one, constant at the end."""
        at = np.log(np.maximum(numbers, 1e-300))
        step = self.knots[1] - self.knots[0]
        hats = np.clip(1 - np.abs((at[:, None] - self.knots[None, :]) / step), 0, 1)
        hats[at < 0] = 0
        hats[at > self.knots[-1], -1] = 1
        return np.asarray(hats)
