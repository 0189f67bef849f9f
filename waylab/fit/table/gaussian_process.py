"""Gaussian process over logarithms of settings: a baseline, and the smoother of what a chain leaves over."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from waylab.fit.table.observations import CellSettings

Array = NDArray[np.float64]

_STEPS_MAX = 25
_NOISE_SHARE_MIN = 1e-4


def features_of(settings: Sequence[CellSettings]) -> Array:
    """Settings as numbers, logarithms where a ratio matters, shape (settings, features)."""
    return np.array(
        [
            (
                math.log(one.clients),
                math.log(max(one.workers, 1)),
                math.log(max(one.servers, 1)),
                math.log(max(one.middlewares, 1)),
                math.log(max(one.client_machines, 1)),
                2 * one.writes_share,
                math.log1p(one.multiget_keys),
                float(one.sharded),
                math.log1p(one.value_bytes),
            )
            for one in settings
        ]
    )


@dataclass(frozen=True)
class GaussianProcess:
    """A smooth function with a linear trend in each feature that varies, fitted to values."""

    used: Array
    points: Array
    trend: Array
    lengths: Array
    noise: float
    answers: Array

    def predict(self, features: Array) -> Array:
        """The mean at features of shape (points, features)."""
        reduced = features[:, self.used.astype(bool)]
        return np.asarray(
            _columns(reduced) @ self.trend + _kernel(reduced, self.points, self.lengths) @ self.answers
        )


def _columns(points: Array) -> Array:
    return np.hstack([np.ones((len(points), 1)), points])


def _kernel(left: Array, right: Array, lengths: Array) -> Array:
    apart = (left[:, None, :] - right[None, :, :]) / lengths
    return np.asarray(np.exp(-0.5 * (apart**2).sum(axis=2)))


def fit_gaussian_process(features: Array, values: Array) -> GaussianProcess:
    """Fit lengths and noise by the marginal likelihood, with weak priors; the trend by ridge regression."""
    used = np.ptp(features, axis=0) > 1e-9
    points = features[:, used]
    columns = _columns(points)
    ridge = 0.05 * np.eye(columns.shape[1])
    ridge[0, 0] = 1e-9
    trend = np.asarray(np.linalg.solve(columns.T @ columns + ridge, columns.T @ values), dtype=np.float64)
    rest = values - columns @ trend

    squares = (points[:, None, :] - points[None, :, :]) ** 2

    def objective(logs: Array) -> tuple[float, Array]:
        """Minus the logarithm of the marginal likelihood, with the best scale, and its gradient."""
        kernel = np.exp(-0.5 * squares @ np.exp(-2 * logs[:-1]))
        noise = math.exp(logs[-1])
        factor = cho_factor(kernel + noise * np.eye(len(points)), lower=True)
        inverse = cho_solve(factor, np.eye(len(points)))
        answers = inverse @ rest
        fit = max(float(rest @ answers), 1e-12)
        log_determinant = 2 * float(np.log(np.diag(factor[0])).sum())
        prior = ((logs[:-1] - 0.5) ** 2).sum() / 2 + (logs[-1] + 4) ** 2 / 8
        value = 0.5 * (len(rest) * math.log(fit / len(rest)) + log_determinant) + float(prior)
        inner = 0.5 * (inverse - len(rest) / fit * np.outer(answers, answers))
        by_length = np.einsum("ij,ij,ijk->k", inner, kernel, squares) * np.exp(-2 * logs[:-1])
        by_noise = noise * float(np.trace(inner))
        gradient = np.append(by_length + logs[:-1] - 0.5, by_noise + (logs[-1] + 4) / 4)
        return value, gradient

    start = np.array([0.5] * points.shape[1] + [-4.0])
    bounds = [(-1.5, 3.0)] * points.shape[1] + [(math.log(_NOISE_SHARE_MIN), 1.0)]
    found = minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _STEPS_MAX}
    )
    lengths = np.asarray(np.exp(found.x[:-1]), dtype=np.float64)
    noise = math.exp(found.x[-1])
    answers = np.linalg.solve(_kernel(points, points, lengths) + noise * np.eye(len(points)), rest)
    return GaussianProcess(used.astype(float), points, trend, lengths, noise, np.asarray(answers))
