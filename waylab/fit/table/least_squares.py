"""Damped least squares with a normal prior, a robust loss, and the evidence for the model."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_STEPS_MAX = 30
_CONVERGED = 1e-3
# Squared size, in standard errors, beyond which the influence of a cell grows no more (pseudo-Huber loss).
_OUTLIER = 4.0


class FittedValues(NamedTuple):
    """The best values, their covariance and the logarithm of the evidence by Laplace's approximation.

    The evidence is known up to a constant of the prior.
    """

    values: Array
    covariance: Array
    log_evidence: float


def damped_least_squares(
    start: Array, errors_of: Callable[[Array], tuple[Array, Array]], rows: Array, sides: Array
) -> FittedValues:
    """Minimise the errors, in standard errors, and the pulls of the prior, `rows @ values - sides`.

    `errors_of` also returns the derivatives of the errors, of shape (errors, values).
    """
    values, damping = start, 1e-2

    def cost(errors: Array, pulls: Array) -> float:
        robust = 2 * _OUTLIER * (np.sqrt(1 + errors**2 / _OUTLIER) - 1)
        return float(robust.sum() + pulls @ pulls)

    errors, slopes = errors_of(values)
    pulls = rows @ values - sides
    best = cost(errors, pulls)
    for _ in range(_STEPS_MAX):
        weighted = slopes * (1 + errors**2 / _OUTLIER)[:, None] ** -0.5
        uphill = weighted.T @ errors + rows.T @ pulls
        curvature = weighted.T @ slopes + rows.T @ rows
        for _ in range(10):
            damped = curvature + damping * np.diag(np.diag(curvature) + 1e-9)
            step = np.clip(-np.linalg.solve(damped, uphill), -2, 2)
            new_errors, new_slopes = errors_of(values + step)
            new_pulls = rows @ (values + step) - sides
            new = cost(new_errors, new_pulls)
            if new < best:
                break
            damping *= 4
        else:
            break
        done = best - new < _CONVERGED * max(1.0, best)
        values, errors, slopes, pulls, best = values + step, new_errors, new_slopes, new_pulls, new
        damping = max(damping / 5, 1e-6)
        if done:
            break
    # Laplace's approximation: the inverse of the curvature at the best values.
    weighted = slopes * (1 + errors**2 / _OUTLIER)[:, None] ** -0.5
    curvature = weighted.T @ slopes + rows.T @ rows
    covariance = np.asarray(np.linalg.pinv(curvature, hermitian=True), dtype=np.float64)
    log_determinant = float(np.linalg.slogdet(curvature + 1e-9 * np.eye(len(values)))[1])
    return FittedValues(values, covariance, -0.5 * (best + log_determinant))
