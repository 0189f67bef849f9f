"""The one model of all contrasts: logarithm = treatment + block + error (randomised blocks).

Montgomery, Design and Analysis of Experiments, 8th ed., chapter 4; for incomplete blocks by least squares (4.4).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from waylab.analysis.statistics.repetitions import CONFIDENCE
from waylab.errors import LabError

Array = NDArray[np.float64]

# With one degree of freedom the t factor is 12.7: such an interval spans orders of magnitude and decides nothing.
DEGREES_MIN = 2
_ESTIMABLE = 1e-8


@dataclass(frozen=True, eq=False)
class BlockModel:
    """A fitted model; `residuals` and `fitted` have the shape (values,), in the order of the values.

    `residual_covariance`, of shape (values, values), is that of the residuals for errors of variance 1.
    `deviation` is the standard deviation of the error of a logarithm; None without degrees of freedom.
    """

    treatments: tuple[str, ...]
    blocks: int
    degrees: int
    deviation: float | None
    residuals: Array
    fitted: Array
    residual_covariance: Array
    _coefficients: Array
    _covariance: Array
    _projection: Array

    def contrast(self, weights: Mapping[str, float]) -> "Contrast":
        """Estimate a sum of treatment effects whose weights sum to zero, for example `{"b": 1, "a": -1}`.

        Raises:
            LabError: for an unknown treatment, weights that do not sum to zero, or treatments that no chain of
                blocks connects.
        """
        unknown = [name for name in weights if name not in self.treatments]
        if unknown:
            raise LabError(f"contrast: {unknown[0]!r} is not a treatment of the model")
        if abs(math.fsum(weights.values())) > _ESTIMABLE:
            raise LabError("contrast: the weights must sum to 0")
        row = np.zeros(self._coefficients.size)
        for name, weight in weights.items():
            row[self.treatments.index(name)] = weight
        if np.abs(self._projection @ row - row).max() > _ESTIMABLE:
            raise LabError("contrast: no block connects the two sides")
        variance = float(row @ self._covariance @ row)
        error = None if self.deviation is None else self.deviation * math.sqrt(max(variance, 0.0))
        return Contrast(float(row @ self._coefficients), error, self.degrees)


@dataclass(frozen=True)
class Contrast:
    """A difference of logarithms with its standard error; None without degrees of freedom."""

    estimate: float
    error: float | None
    degrees: float

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
        """Return the t interval; None with fewer than `DEGREES_MIN` degrees of freedom."""
        if self.error is None or self.degrees < DEGREES_MIN:
            return None
        half = float(special.stdtrit(self.degrees, 0.5 + confidence / 2)) * self.error
        return self.estimate - half, self.estimate + half

    def p_above(self, limit: float = 0.0) -> float | None:
        """Return the p-value of the one-sided t test of `contrast <= limit`; small if the contrast lies above."""
        if self.error is None or self.degrees < DEGREES_MIN:
            return None
        if self.error <= 1e-12:
            return 0.0 if self.estimate > limit else 1.0
        return float(special.stdtr(self.degrees, (limit - self.estimate) / self.error))

    def p_below(self, limit: float = 0.0) -> float | None:
        """Return the p-value of the one-sided t test of `contrast >= limit`; small if the contrast lies below."""
        return Contrast(-self.estimate, self.error, self.degrees).p_above(-limit)

    def p_zero(self) -> float | None:
        """Return the p-value of the two-sided t test of `contrast = 0`."""
        above, below = self.p_above(), self.p_below()
        return None if above is None or below is None else min(1.0, 2 * min(above, below))


def contrast_of_mean(values: Sequence[float]) -> Contrast:
    """Return the mean of independent values with its standard error.

    Raises:
        LabError: without any value.
    """
    count = len(values)
    if not count:
        raise LabError("mean: needs a value")
    mean = math.fsum(values) / count
    if count < 2:
        return Contrast(mean, None, 0)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return Contrast(mean, math.sqrt(squares / (count - 1) / count), count - 1)


def fit_blocks(treatments: Sequence[str], blocks: Sequence[object], values: Sequence[float]) -> BlockModel:
    """Fit `ln(value) = treatment + block + error` by least squares; all three of shape (values,).

    With complete blocks this is the randomised-block analysis of variance: (treatments - 1)(blocks - 1) degrees of
    freedom. A block that lacks a treatment still contributes to the effects of the others.

    Raises:
        LabError: unless all have the same length, at least one, and values are finite and above zero.
    """
    if not len(treatments) == len(blocks) == len(values) or not len(values):
        raise LabError("contrasts: give at least one value, and a treatment and a block for each")
    if not all(math.isfinite(value) and value > 0 for value in values):
        raise LabError("contrasts: every value must be finite and above zero")
    names, block_names = list(dict.fromkeys(treatments)), list(dict.fromkeys(blocks))
    columns = np.zeros((len(values), len(names) + len(block_names)))
    for row, (treatment, block) in enumerate(zip(treatments, blocks, strict=True)):
        columns[row, names.index(treatment)] = 1
        columns[row, len(names) + block_names.index(block)] = 1
    logs = np.log(np.asarray(values, dtype=float))
    covariance = np.asarray(np.linalg.pinv(columns.T @ columns, hermitian=True), dtype=float)
    coefficients = covariance @ columns.T @ logs
    fitted = columns @ coefficients
    residuals = logs - fitted
    projection = np.asarray(covariance @ columns.T @ columns, dtype=float)
    degrees = len(values) - int(np.linalg.matrix_rank(columns))
    deviation = math.sqrt(float((residuals**2).sum()) / degrees) if degrees else None
    return BlockModel(
        tuple(names),
        len(block_names),
        degrees,
        deviation,
        residuals,
        np.asarray(fitted, dtype=float),
        np.asarray(np.eye(logs.size) - columns @ covariance @ columns.T, dtype=float),
        coefficients,
        covariance,
        projection,
    )


def blocks_that_decide(treatments: int) -> int:
    """Return the smallest number of complete blocks that leaves `DEGREES_MIN` degrees of freedom."""
    return 1 + -(-DEGREES_MIN // max(treatments - 1, 1))


def blocks_for(
    contrast: Contrast, blocks: int, half_width: float, confidence: float = CONFIDENCE
) -> int | None:
    """Forecast how many blocks narrow the interval to +- `half_width`, with the error of these; None without one.

    The error of a contrast falls with the square root of the number of blocks, and the degrees grow with them.
    """
    if contrast.error is None or contrast.degrees < 1 or not half_width > 0 or blocks < 2:
        return None
    per_block = contrast.degrees / (blocks - 1)
    for count in range(2, 1000):
        degrees = per_block * (count - 1)
        student = float(special.stdtrit(degrees, 0.5 + confidence / 2))
        if degrees >= DEGREES_MIN and student * contrast.error * math.sqrt(blocks / count) <= half_width:
            return count
    return None


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values that are adjusted for their number (Holm 1979), in the same order.

    Rejecting those below 5 % rejects any true hypothesis of the family in at most 5 % of the cases.
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted
