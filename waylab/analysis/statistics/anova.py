"""General factorial designs: analysis of variance and effects of every level, for factors with any number of levels.

The table is statsmodels'; this file makes its formula and reads its answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from waylab.analysis.statistics.blocks import fit_blocks
from waylab.analysis.statistics.repetitions import CONFIDENCE
from waylab.errors import LabError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class VarianceSource:
    """One line of the table: a factor, an interaction, the blocks or the error, with its share of the variation."""

    name: str
    squares: float
    degrees: int
    share: float
    f: float | None
    p: float | None


@dataclass(frozen=True)
class LevelEffect:
    """What one level of a factor adds to the mean of all, with its t interval; of log10 when multiplicative."""

    factor: str
    level: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Anova:
    """The analysis; residuals and fitted values of shape (responses,) are on the scale of the model."""

    scale: str
    mean: float
    sources: tuple[VarianceSource, ...]
    effects: tuple[LevelEffect, ...]
    error_deviation: float
    residuals: Array
    fitted: Array


def anova(
    factors: Mapping[str, Sequence[object]],
    responses: Sequence[float],
    blocks: Sequence[object] | None = None,
    interactions: int = 2,
    scale: str = "additive",
    confidence: float = CONFIDENCE,
) -> Anova:
    """Analysis of variance, type II (Jain, chapters 20 to 23; statsmodels `anova_lm`).

    `factors` has for each factor the level of every response; interactions up to that many factors are in the model,
    fewer if there are too few responses for all. Effects of levels are deviations from the mean of all, with sums
    of zero; their intervals are t s_e sqrt((a - 1) / n) for a levels in n responses (Jain 20.6, balanced designs).

    Raises:
        LabError: for responses that are not finite (or not above zero when multiplicative), levels that do not match
            them, a factor with a single level, or too few responses to leave an error.
    """
    values = np.asarray(responses, dtype=float)
    _check(factors, values, blocks, scale)
    logged = np.log10(values) if scale == "multiplicative" else values
    short = {name: f"f{number}" for number, name in enumerate(factors)}
    columns: dict[str, object] = {"y": logged}
    columns |= {short[name]: [str(level) for level in levels] for name, levels in factors.items()}
    if blocks is not None:
        columns["blocks"] = [str(block) for block in blocks]
    words = _words(factors, values.size, blocks, interactions)
    names = {":".join(f"C({short[name]}, Sum)" for name in word): " x ".join(word) for word in words}
    names |= {"C(blocks, Sum)": "blocks", "Residual": "error"}
    formula = "y ~ " + " + ".join(
        name for name in names if name != "Residual" and (blocks is not None or name != "C(blocks, Sum)")
    )
    # It takes a second to load, and most of the lab does without.
    from pandas import DataFrame  # noqa: PLC0415
    from statsmodels.formula.api import ols  # noqa: PLC0415
    from statsmodels.stats.anova import anova_lm  # noqa: PLC0415

    fit = ols(formula, data=DataFrame(columns)).fit()
    degrees = int(fit.df_resid)
    total = float(((logged - logged.mean()) ** 2).sum())
    table = _squares(fit, anova_lm)
    sources = [
        VarianceSource(names[row], squares, freedom, squares / total if total else 0.0, f, p)
        for row, squares, freedom, f, p in sorted(table, key=lambda row: list(names).index(row[0]))
    ]
    deviation = float(np.sqrt(fit.ssr / degrees))
    effects = _level_effects(factors, logged, deviation, degrees, confidence)
    return Anova(
        scale,
        float(logged.mean()),
        tuple(sources),
        tuple(effects),
        deviation,
        np.asarray(fit.resid, dtype=float),
        np.asarray(fit.fittedvalues, dtype=float),
    )


def error_share(cells: Sequence[str], blocks: Sequence[object], responses: Sequence[float]) -> float:
    """Return the share of the variation of the logarithm that neither cells nor blocks explain."""
    logs = np.log(np.asarray(responses, dtype=float))
    total = float(((logs - logs.mean()) ** 2).sum())
    return float((fit_blocks(cells, blocks, responses).residuals ** 2).sum()) / total if total else 0.0


def _check(
    factors: Mapping[str, Sequence[object]], values: Array, blocks: Sequence[object] | None, scale: str
) -> None:
    if scale not in ("additive", "multiplicative"):
        raise LabError(f"anova: the scale is additive or multiplicative, not {scale!r}")
    if (
        values.ndim != 1
        or not np.isfinite(values).all()
        or (scale == "multiplicative" and not (values > 0).all())
    ):
        raise LabError("anova: responses must be finite, and above zero for a multiplicative model")
    if not factors:
        raise LabError("anova: there is no factor")
    named = dict(factors) if blocks is None else {**factors, "blocks": blocks}
    for name, levels in named.items():
        if len(levels) != values.size:
            raise LabError(f"anova: {name} has {len(levels)} levels given for {values.size} responses")
        if len({str(level) for level in levels}) < 2:
            raise LabError(f"anova: {name} has a single level, so it has no effect to find")


def _words(
    factors: Mapping[str, Sequence[object]],
    responses: int,
    blocks: Sequence[object] | None,
    interactions: int,
) -> list[tuple[str, ...]]:
    """Effects in the model: as many orders of interaction as are asked for and leave something for the error."""
    levels = {name: len({str(level) for level in given}) for name, given in factors.items()}
    taken = 1 + (len({str(block) for block in blocks}) - 1 if blocks is not None else 0)
    words: list[tuple[str, ...]] = []
    for order in range(1, min(interactions, len(factors)) + 1):
        more = list(combinations(factors, order))
        taken += sum(int(np.prod([levels[name] - 1 for name in word])) for word in more)
        if taken >= responses:
            if order > 1:
                break
            raise LabError(f"anova: {responses} responses leave nothing to estimate the error from")
        words += more
    return words


def _squares(fit: object, anova_lm: object) -> list[tuple[str, float, int, float | None, float | None]]:
    table = anova_lm(fit, typ=2)  # type: ignore[operator]
    rows = []
    for row in table.index:
        line = table.loc[row]
        error = row == "Residual"
        rows.append(
            (
                row,
                float(line["sum_sq"]),
                int(line["df"]),
                None if error else float(line["F"]),
                None if error else float(line["PR(>F)"]),
            )
        )
    return rows


def _level_effects(
    factors: Mapping[str, Sequence[object]],
    values: Array,
    deviation: float,
    degrees: int,
    confidence: float,
) -> list[LevelEffect]:
    effects = []
    student = float(special.stdtrit(degrees, 0.5 + confidence / 2))
    for name, given in factors.items():
        labels = np.array([str(level) for level in given])
        distinct = list(dict.fromkeys(labels.tolist()))
        for level in distinct:
            value = float(values[labels == level].mean() - values.mean())
            half = student * deviation * float(np.sqrt((len(distinct) - 1) / values.size))
            effects.append(LevelEffect(name, level, value, value - half, value + half))
    return effects
