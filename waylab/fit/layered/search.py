"""Damped least squares through a solver that has no derivatives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_ROUNDS = 12
_CONVERGED = 1e-3
STEP = 0.03
# Squared size, in standard errors, beyond which the influence of a trial grows no more (pseudo-Huber loss).
_OUTLIER = 4.0


@dataclass(frozen=True)
class Prior:
    """Logarithms of the parameters before there is data, and how uncertain they are."""

    centre: Array
    widths: Array


@dataclass(frozen=True)
class Minimum:
    """Where a search ended: logarithms of the parameters, curvature and derivatives of the errors, errors and cost."""

    logs: Array
    curvature: Array
    slopes: Array
    errors: Array
    cost: float


def losses(errors: Array, noise: float) -> Array:
    """Pseudo-Huber loss, summed over the last axis."""
    scaled = errors / noise
    return np.asarray(2 * _OUTLIER * (np.sqrt(1 + scaled**2 / _OUTLIER) - 1).sum(axis=-1))


def weights_of(errors: Array, noise: float) -> Array:
    """By how much each error counts, in the inverse of its variance."""
    return np.asarray((1 + (errors / noise) ** 2 / _OUTLIER) ** -0.5 / noise**2)


def search(
    errors: Callable[[Array, Sequence[float]], Array],
    logs: Array,
    prior: Prior,
    noise: float,
    foreign: Sequence[float],
) -> Minimum:
    """Damped Gauss-Newton with finite differences."""
    before, widths = prior.centre, prior.widths

    def cost(found: Array, at: Array) -> float:
        return float(losses(found, noise) + (((at - before) / widths) ** 2).sum())

    size, damping = len(logs), 1e-2
    curvature, least = np.eye(size), np.inf
    base, slopes = np.empty(0), np.empty((0, size))
    for _ in range(_ROUNDS):
        rows = np.vstack([logs, logs + STEP * np.eye(size)])
        found = errors(rows, foreign)
        base, slopes = found[0], ((found[1:] - found[0]) / STEP).T
        weights = weights_of(base, noise)
        uphill = slopes.T @ (weights * base) + (logs - before) / widths**2
        curvature = (slopes.T * weights) @ slopes + np.diag(widths**-2.0)
        best = least = cost(base, logs)
        for _ in range(6):
            step = np.clip(
                -np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), uphill), -1.0, 1.0
            )
            there = errors((logs + step)[None, :], foreign)[0]
            new = cost(there, logs + step)
            if new < best:
                break
            damping *= 5
        else:
            break
        logs, base, least = logs + step, there, new
        damping = max(damping / 5, 1e-6)
        if best - new < _CONVERGED * max(1.0, best):
            break
    return Minimum(logs, curvature, slopes, base, float(least))
