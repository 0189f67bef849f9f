"""Do the errors of a configuration last from block to block? Then intervals over blocks are too narrow."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from waylab.errors import LabError

Array = NDArray[np.float64]

# Four blocks have twelve orders, counting an order and its reverse once, so that p is never below 5 %.
BLOCKS_MIN = 5
CONFIGURATIONS_MIN = 2
# All orders of up to seven blocks are tried, and so many orders of more blocks.
_ALL_ORDERS_MAX = 7
_ORDERS = 5000
_CORRELATIONS = np.linspace(0.0, 0.98, 99)


@dataclass(frozen=True)
class LastingErrors:
    """The correlation of a configuration's errors in neighbouring blocks, not below 0, and the p-value of its test."""

    correlation: float
    p: float


def lasting_errors(logarithms: ArrayLike) -> LastingErrors | None:
    """Test the errors of complete blocks, of shape (blocks, configurations), in the order of time.

    The errors are what remains without the means of blocks and configurations, in units of each configuration's own
    spread. Their products in neighbouring blocks are summed over all configurations. If errors do not last, every
    order of the blocks is equally likely; p is the share of the orders with a sum as large (a permutation test). So
    it holds for any distribution, and if some configurations vary more than others. None if too few blocks or
    configurations are given, or if there are no errors.

    Raises:
        LabError: unless the values are finite and have two dimensions.
    """
    values = np.asarray(logarithms, dtype=float)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise LabError(
            f"lasting errors: need finite values of shape (blocks, configurations), not {values.shape}"
        )
    blocks, configurations = values.shape
    if blocks < BLOCKS_MIN or configurations < CONFIGURATIONS_MIN:
        return None
    errors = values - values.mean(axis=0)
    errors -= errors.mean(axis=1, keepdims=True)
    spreads = np.sqrt((errors**2).mean(axis=0))
    if not (spreads > 1e-9).all():
        return None
    share = float((errors[1:] * errors[:-1]).sum() / (errors**2).sum())
    products = (errors / spreads) @ (errors / spreads).T
    orders = _orders(blocks)
    sums = products[orders[:, :-1], orders[:, 1:]].sum(axis=1)
    p = float((sums >= sums[0] * (1 - 1e-9) - 1e-9).mean())
    return LastingErrors(_correlation(share, blocks), p)


def _correlation(share: float, blocks: int) -> float:
    """Return the correlation of AR(1) errors that gives this share, by the method of moments.

    The share is the sum of neighbours' products over that of squares. Taking the mean out of the errors of a
    configuration lowers both.
    """
    places = np.arange(blocks)
    centring = np.eye(blocks) - 1 / blocks
    shares = []
    for correlation in _CORRELATIONS:
        covariance = centring @ correlation ** np.abs(places[:, None] - places) @ centring
        shares.append(np.trace(covariance, offset=1) / np.trace(covariance))
    return float(np.interp(share, shares, _CORRELATIONS))


def _orders(blocks: int) -> NDArray[np.int64]:
    """Orders of the blocks, the measured one first."""
    if blocks <= _ALL_ORDERS_MAX:
        return np.array(list(itertools.permutations(range(blocks))))
    generator = np.random.default_rng(1)
    drawn = [generator.permutation(blocks) for _ in range(_ORDERS)]
    return np.array([np.arange(blocks), *drawn])


def complete_blocks(values: dict[tuple[int, str], float]) -> Array:
    """Return the logarithms of values by block and configuration, of shape (blocks, configurations).

    Without the blocks that lack a configuration, or without the configurations that some block lacks: the larger
    of the two tables.
    """
    blocks, names = sorted({block for block, _ in values}), sorted({name for _, name in values})
    whole = [block for block in blocks if all((block, name) in values for name in names)]
    everywhere = [name for name in names if all((block, name) in values for block in blocks)]
    tables = [(whole, names), (blocks, everywhere)]
    rows, columns = max(tables, key=lambda table: _size(*table))
    return np.array([[math.log(values[row, column]) for column in columns] for row in rows]).reshape(
        len(rows), len(columns)
    )


def _size(rows: list[int], columns: list[str]) -> int:
    return len(rows) * len(columns) if len(rows) >= BLOCKS_MIN and len(columns) >= CONFIGURATIONS_MIN else 0
