"""Effects of factors with two levels: 2^k r designs by the sign table, additive or multiplicative.

Source of method and notation: Jain, The Art of Computer Systems Performance Analysis, 1991, chapters 17 and 18.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from waylab.analysis.statistics.repetitions import CONFIDENCE
from waylab.errors import LabError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FactorialEffect:
    """One effect q: half of what the response changes between the levels, with its interval and share of variation.

    In a multiplicative design it is of log10 of the response: 10^q is the factor. Without repetitions there is no
    interval. `significant` is whether the interval excludes 0.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    share: float
    significant: bool | None


@dataclass(frozen=True, eq=False)
class TwoLevelDesign:
    """The model of a 2^k r design; `effects` begin with the mean, named `mean`, whose share is 0.

    Shares are of the total variation around the mean, and with `share_blocks` and `share_error` add up to 1.
    `residuals` and `fitted`, of shape (responses,), are in the order of the responses and on the scale of the model.
    """

    scale: str
    effects: tuple[FactorialEffect, ...]
    share_error: float
    share_blocks: float
    error_deviation: float | None
    degrees: int
    residuals: Array
    fitted: Array

    def effect(self, name: str) -> FactorialEffect:
        """Return one effect by its name, say `servers x clients`.

        Raises:
            LabError: for a name that is none of them.
        """
        for effect in self.effects:
            if effect.name == name:
                return effect
        raise LabError(f"effect {name!r}: is none of {', '.join(effect.name for effect in self.effects)}")


def two_level_effects(
    signs: ArrayLike,
    responses: ArrayLike,
    factors: Sequence[str],
    blocks: Sequence[object] | None = None,
    scale: str = "additive",
    words: Sequence[Sequence[str]] | None = None,
    confidence: float = CONFIDENCE,
) -> TwoLevelDesign:
    """Effects of a 2^k r design, or of a fraction of one; signs of shape (responses, factors), each -1 or +1.

    With r repetitions: q = X^T y / (2^k r), s_e^2 = SSE / (2^k (r - 1)), s_q = s_e / sqrt(2^k r), intervals by t with
    2^k (r - 1) degrees of freedom (Jain 18.2 to 18.4). `blocks` names the block of every response; complete blocks
    take their variation, and one degree less than there are blocks, out of the error. `words` are the effects to
    estimate, each the factors it is made of; all of them unless given, which a fraction does not allow.

    Raises:
        LabError: unless signs are +-1, every sign column and word is balanced and orthogonal to the others, blocks
            are complete, and responses are finite (and above zero for a multiplicative model).
    """
    table, values = np.asarray(signs, dtype=float), np.asarray(responses, dtype=float)
    wanted = [tuple(word) for word in words] if words is not None else _all_words(factors)
    _check(table, values, factors, scale)
    columns = np.stack(
        [
            np.ones(values.size),
            *(table[:, [list(factors).index(name) for name in word]].prod(axis=1) for word in wanted),
        ],
        axis=1,
    )
    gram = columns.T @ columns
    if np.abs(gram - np.diag(np.diag(gram))).max() > 0.5:
        raise LabError(
            "effects: these cannot be separated, because the design is not balanced or confounds them"
        )
    logged = np.log10(values) if scale == "multiplicative" else values
    count = values.size
    effects = columns.T @ logged / count
    fitted = columns @ effects
    block_variation, block_degrees = _blocks(columns, logged, blocks, fitted)
    residuals = logged - fitted
    total = float(((logged - effects[0]) ** 2).sum())
    error = max(0.0, float((residuals**2).sum()) - (0.0 if blocks is None else block_variation))
    if blocks is not None:
        residuals = residuals - _block_means(residuals, blocks)
        fitted = logged - residuals
    degrees = count - columns.shape[1] - block_degrees
    deviation = math.sqrt(error / degrees) if degrees > 0 else None
    half = None
    if deviation is not None:
        half = float(special.stdtrit(degrees, 0.5 + confidence / 2)) * deviation / math.sqrt(count)
    found = []
    for name, value in zip(["mean", *(" x ".join(word) for word in wanted)], effects.tolist(), strict=True):
        share = 0.0 if name == "mean" or total == 0 else count * value**2 / total
        low, high = (None, None) if half is None else (value - half, value + half)
        found.append(
            FactorialEffect(name, value, low, high, share, None if half is None else abs(value) > half)
        )
    return TwoLevelDesign(
        scale,
        tuple(found),
        error / total if total else 0.0,
        block_variation / total if total else 0.0,
        deviation,
        degrees,
        residuals,
        fitted,
    )


def _all_words(factors: Sequence[str]) -> list[tuple[str, ...]]:
    return [word for size in range(1, len(factors) + 1) for word in combinations(factors, size)]


def _check(table: Array, values: Array, factors: Sequence[str], scale: str) -> None:
    if scale not in ("additive", "multiplicative"):
        raise LabError(f"effects: the scale is additive or multiplicative, not {scale!r}")
    if table.shape != (values.size, len(factors)) or values.ndim != 1 or not len(factors):
        raise LabError(f"effects: need a sign for each of {len(factors)} factors and {values.size} responses")
    if not (np.abs(table) == 1).all():
        raise LabError("effects: every sign must be -1 or +1")
    if not np.isfinite(values).all() or (scale == "multiplicative" and not (values > 0).all()):
        raise LabError("effects: responses must be finite, and above zero for a multiplicative model")


def _blocks(
    columns: Array, values: Array, blocks: Sequence[object] | None, fitted: Array
) -> tuple[float, int]:
    """Variation between blocks and its degrees of freedom."""
    if blocks is None:
        return 0.0, 0
    if len(blocks) != values.size:
        raise LabError(f"effects: {len(blocks)} blocks for {values.size} responses")
    names = np.array([str(block) for block in blocks])
    for name in np.unique(names):
        if np.abs(columns[names == name, 1:].sum(axis=0)).max() > 0.5:
            raise LabError(f"effects: block {name} does not have every level equally often")
    return float((_block_means(values - fitted, blocks) ** 2).sum()), int(np.unique(names).size) - 1


def _block_means(values: Array, blocks: Sequence[object]) -> Array:
    names, places = np.unique([str(block) for block in blocks], return_inverse=True)
    sums = np.bincount(places, weights=values, minlength=names.size)
    return np.asarray((sums / np.bincount(places))[places])
