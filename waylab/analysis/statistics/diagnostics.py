"""Do the residuals of a model look like independent noise of one spread? Tests, and the numbers that plots need."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from waylab.analysis.statistics.blocks import holm
from waylab.errors import LabError

Array = NDArray[np.float64]

LEVEL = 0.05
_RESIDUALS_MIN = 5
# Fewer in a cell say nothing about its spread.
_CELL_MIN = 3


@dataclass(frozen=True)
class DiagnosticCheck:
    """The check of one assumption. `p` is None if the test is not possible; `kept` is False if the check fails.

    `p` is adjusted for the number of checks that are judged together.
    """

    name: str
    statistic: float | None
    p: float | None
    kept: bool | None
    text: str
    against: str = ""


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """The checks, and for plots: residuals in the order of the runs, over fitted values, and over normal quantiles.

    `order`, `fitted` and `residuals` have the shape (residuals,) and belong together; so do `normal` and `sorted_`.
    """

    checks: tuple[DiagnosticCheck, ...]
    order: Array
    fitted: Array
    residuals: Array
    normal: Array
    sorted_: Array


def diagnose(
    residuals: ArrayLike,
    fitted: ArrayLike,
    order: ArrayLike,
    cells: Sequence[object] | None = None,
    covariance: ArrayLike | None = None,
) -> Diagnostics:
    """Check residuals, all of shape (residuals,): `order` is when each was measured, `cells` to which cell it belongs.

    - independence: no correlation between neighbours in time (von Neumann 1941, in the normal approximation), and no
      trend over it (Kendall's tau; Mann 1945). `covariance` is that of the residuals of the model for errors of
      variance 1: taking means of blocks out of errors makes neighbours differ more than independent values would;
    - normality: Shapiro and Wilk 1965;
    - spread: the same in every cell (Brown and Forsythe 1974), and no growth of the absolute residual with the fitted
      value (Spearman).
    The checks are not judged yet; `judged_together` does so for all checks of a report.
    A test that fails says that the model is wrong; one that does not, with few runs, says little.

    Raises:
        LabError: unless all have the same length, five at least, and are finite.
    """
    values, means, times = (np.asarray(given, dtype=float) for given in (residuals, fitted, order))
    if not (values.shape == means.shape == times.shape) or values.ndim != 1 or values.size < _RESIDUALS_MIN:
        raise LabError(
            f"diagnostics: need {_RESIDUALS_MIN} residuals at least, each with its fitted value and order"
        )
    if not all(np.isfinite(given).all() for given in (values, means, times)):
        raise LabError("diagnostics: residuals, fitted values and order must be finite")
    if cells is not None and len(cells) != values.size:
        raise LabError(f"diagnostics: {len(cells)} cells for {values.size} residuals")
    sequence = np.argsort(times, kind="stable")
    values, means, times = values[sequence], means[sequence], times[sequence]
    labels = None if cells is None else np.array([str(cell) for cell in cells])[sequence]
    if float(np.ptp(values)) <= 1e-12 * max(1.0, float(np.abs(means).max())):
        checks: tuple[DiagnosticCheck, ...] = (
            DiagnosticCheck(
                "residuals", None, None, None, "the model fits exactly, nothing is left to check"
            ),
        )
    else:
        checks = (
            _neighbours(values, _ordered(covariance, sequence)),
            _trend(values, times),
            _normality(values),
            _cells(values, labels),
            _growth(values, means),
        )
    ranks = (np.arange(1, values.size + 1) - 0.375) / (values.size + 0.25)
    return Diagnostics(checks, times, means, values, np.asarray(special.ndtri(ranks)), np.sort(values))


def judged_together(checks: Sequence[DiagnosticCheck]) -> list[DiagnosticCheck]:
    """Adjust the p-values of checks for their number (Holm), so that all together alarm falsely in at most 5 %."""
    adjusted = iter(holm([check.p for check in checks if check.p is not None]))
    found = []
    for check in checks:
        if check.p is None:
            found.append(check)
            continue
        p = next(adjusted)
        kept = bool(p >= LEVEL)
        text = f"{check.text if kept else check.against} (p = {p:.3g})"
        found.append(replace(check, p=p, kept=kept, text=text))
    return found


def _check(name: str, statistic: float, p: float, against: str, otherwise: str) -> DiagnosticCheck:
    return DiagnosticCheck(name, float(statistic), float(p), None, otherwise, against)


def _ordered(covariance: ArrayLike | None, sequence: NDArray[np.intp]) -> Array:
    """Return the covariance of the residuals in the order of time; of independent values with their mean taken out."""
    if covariance is None:
        return np.eye(sequence.size) - 1 / sequence.size
    return np.asarray(covariance, dtype=float)[np.ix_(sequence, sequence)]


def _neighbours(values: Array, covariance: Array) -> DiagnosticCheck:
    values = values - values.mean()
    ratio = float((np.diff(values) ** 2).sum() / (values**2).sum())
    # Mean and variance of the ratio for normal errors (Durbin and Watson 1950, equations 3.1 and 3.2).
    differences = np.diff(np.eye(values.size), axis=0)
    product = covariance @ (differences.T @ differences)
    degrees = float(np.trace(covariance))
    mean = float(np.trace(product)) / degrees
    spread = float((product * product.T).sum()) - mean * float(np.trace(product))
    score = (ratio - mean) / np.sqrt(2 * spread / (degrees * (degrees + 2)))
    p = 2 * float(special.ndtr(-abs(score)))
    against = f"neighbouring runs are correlated, von Neumann ratio {ratio:.2f} instead of {mean:.2f}"
    return _check(
        "independence",
        ratio,
        p,
        against,
        f"no correlation of neighbouring runs, von Neumann ratio {ratio:.2f}",
    )


def _trend(values: Array, times: Array) -> DiagnosticCheck:
    tau, p = stats.kendalltau(times, values)
    against = f"the residuals drift with the order of the runs, Kendall's tau {tau:+.2f}"
    return _check("order", tau, p, against, f"no drift with the order of the runs, Kendall's tau {tau:+.2f}")


def _normality(values: Array) -> DiagnosticCheck:
    found = stats.shapiro(values)
    against = f"the residuals are not normal, Shapiro-Wilk W {found.statistic:.3f}"
    return _check(
        "normality",
        found.statistic,
        found.pvalue,
        against,
        f"nothing against normality, W {found.statistic:.3f}",
    )


def _cells(values: Array, labels: NDArray[np.str_] | None) -> DiagnosticCheck:
    groups = [] if labels is None else [values[labels == label] for label in np.unique(labels)]
    groups = [group for group in groups if group.size >= _CELL_MIN and np.ptp(group) > 0]
    if len(groups) < 2:
        return DiagnosticCheck(
            "spread",
            None,
            None,
            None,
            f"too few repetitions to compare spreads: {_CELL_MIN} in a cell at least",
        )
    statistic, p = stats.levene(*groups, center="median")
    against = f"the spread differs between cells, Brown-Forsythe F {statistic:.2f}"
    return _check(
        "spread",
        float(statistic),
        float(p),
        against,
        f"nothing against one spread, Brown-Forsythe F {statistic:.2f}",
    )


def _growth(values: Array, means: Array) -> DiagnosticCheck:
    if np.ptp(means) <= 1e-12 * max(1.0, float(np.abs(means).max())):
        return DiagnosticCheck(
            "growth", None, None, None, "there is a single fitted value, so the spread cannot grow with it"
        )
    found = stats.spearmanr(means, np.abs(values))
    rho = f"Spearman's rho {found.statistic:+.2f}"
    verb = "grow" if found.statistic > 0 else "shrink"
    against = f"the residuals {verb} as the fitted value grows, {rho}"
    text = f"the spread of the residuals does not depend on the fitted value, {rho}"
    return _check("growth", float(found.statistic), float(found.pvalue), against, text)
