"""Adjusts contrasts for a quantity that was measured beside every value: analysis of covariance.

Montgomery, Design and Analysis of Experiments, 8th ed., section 15.3: within treatments and blocks, the logarithm of a
value is a straight line of the logarithm of the covariate. The slope is that of all values, although the error of a
contrast is that of its own treatments; the uncertainty of the slope is added.

The slope costs one degree of freedom. The residuals of some treatments lose a part of it: their share of the squares of
the covariate, because their expected squares are variance * (degrees - share).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from waylab.analysis.statistics.blocks import Contrast, fit_blocks
from waylab.analysis.statistics.repetitions import CONFIDENCE

# With fewer degrees of freedom the slope is too uncertain to help.
DEGREES_MIN = 6


@dataclass(frozen=True)
class Slope:
    """The change of a logarithm with that of the covariate, its standard error and its degrees of freedom.

    `squares` is the sum of squares of the logarithm of the covariate within treatments and blocks.
    """

    estimate: float
    error: float
    degrees: int
    squares: float


def slope(
    treatments: Sequence[str], blocks: Sequence[object], values: Sequence[float], covariate: Sequence[float]
) -> Slope | None:
    """Estimate the slope within treatments and blocks; all of shape (values,), values and covariate above zero.

    None with fewer than `DEGREES_MIN` degrees of freedom, without any variation of the covariate, and if the covariate
    differs between treatments at 5 %: then they may have caused it, and an adjustment would remove a part of their
    effect (Montgomery, 15.3).
    """
    model, beside = fit_blocks(treatments, blocks, values), fit_blocks(treatments, blocks, covariate)
    degrees = model.degrees - 1
    squares = float((beside.residuals**2).sum())
    if degrees < DEGREES_MIN or squares <= 1e-18:
        return None
    without = fit_blocks(["any"] * len(covariate), blocks, covariate)
    between = without.degrees - beside.degrees
    if between > 0:
        ratio = max(0.0, float((without.residuals**2).sum()) - squares) / between / (squares / beside.degrees)
        if float(special.fdtrc(between, beside.degrees, ratio)) < 1 - CONFIDENCE:
            return None
    estimate = float(np.dot(beside.residuals, model.residuals)) / squares
    left = model.residuals - estimate * beside.residuals
    return Slope(estimate, math.sqrt(float((left**2).sum()) / degrees / squares), degrees, squares)


def adjusted_contrast(
    treatments: Sequence[str],
    blocks: Sequence[object],
    values: Sequence[float],
    covariate: Sequence[float],
    found: Slope,
    weights: dict[str, float],
) -> Contrast:
    """Estimate a contrast of values that are adjusted to equal covariates, with this slope.

    Raises:
        LabError: as `BlockModel.contrast`.
    """
    # Relative to their geometric mean, powers of the covariate stay in the range of floating-point numbers.
    centre = math.exp(math.fsum(math.log(one) for one in covariate) / len(covariate))
    equal = [value * (one / centre) ** -found.estimate for value, one in zip(values, covariate, strict=True)]
    contrast = fit_blocks(treatments, blocks, equal).contrast(weights)
    beside = fit_blocks(treatments, blocks, covariate)
    distance = beside.contrast(weights).estimate
    if contrast.error is None:
        return contrast
    share = min(1.0, float((beside.residuals**2).sum()) / found.squares)
    left = contrast.degrees - share
    degrees = math.ceil(left - 1e-9)
    if degrees < 1:
        return Contrast(contrast.estimate, None, 0)
    error = contrast.error * math.sqrt(contrast.degrees / left)
    # The half-widths of both 95 % intervals add up in quadrature. With the factor of few degrees for both errors,
    # intervals of three blocks would be too wide, because the slope has more degrees.
    slope_error = distance * found.error * _student(found.degrees) / _student(degrees)
    return Contrast(contrast.estimate, math.hypot(error, slope_error), degrees)


def _student(degrees: int) -> float:
    return float(special.stdtrit(degrees, 0.5 + CONFIDENCE / 2))
