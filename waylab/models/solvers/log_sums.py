"""Sums of products kept as logarithms, along the last axis of arrays of any shape. Every term is positive.

Populations of thousands make the factors of a product form far larger and smaller than a float can be.
Knows no stations: only series, geometric tails and polynomials.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Array = NDArray[np.float64]
# Numbers in a block of windows: small enough for the CPU cache.
_BLOCK = 1 << 19


def log_of(values: Array) -> Array:
    """Natural logarithm, with minus infinity for zero and without a warning."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def log_sum(values: Array, axis: int | None = None) -> Array:
    """Logarithm of the sum of the numbers whose logarithms are given; minus infinity stands for zero."""
    largest = np.max(values, axis=axis, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    summed = log_of(np.sum(np.exp(values - largest), axis=axis))
    return np.asarray(summed + (largest.reshape(()) if axis is None else np.squeeze(largest, axis)))


def delay_weights(delay_s: Array | float, customers: int) -> Array:
    """Weights of n = 0..customers in a delay: log of Z^n / n!, shape (..., customers + 1)."""
    count = np.arange(customers + 1.0)
    log_delay = log_of(np.asarray(delay_s, dtype=float))[..., None]
    # In zero seconds no customer is present: weight 1 for n = 0, and 0 for the others.
    powers = np.where(
        count > 0, np.multiply(log_delay, count, where=count > 0, out=_zeros(log_delay, count)), 0
    )
    return np.asarray(powers - gammaln(count + 1.0))


def accumulate(values: Array, log_ratio: Array | float) -> Array:
    """Multiply a series by a geometric one: y(n) = x(n) + ratio y(n-1), all as logarithms."""
    tilt = np.arange(values.shape[-1]) * np.asarray(log_ratio, dtype=float)[..., None]
    return np.asarray(np.logaddexp.accumulate(values - tilt, axis=-1) + tilt)


def convolve(values: Array, factors: Array) -> Array:
    """Multiply a series by a polynomial: y(n) = sum over j of factors(j) x(n - j), cut to the length of x.

    `factors` has the shape of `values` but for the last axis, or just that axis.
    """
    size = values.shape[-1]
    factors = factors[..., :size]
    degree = factors.shape[-1]
    if degree == 1:
        return np.asarray(values + factors)
    padding = np.full((*values.shape[:-1], degree - 1), -np.inf)
    padded = np.concatenate([padding, values], axis=-1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, degree, axis=-1)
    backwards = factors[..., None, ::-1]
    step = max(1, _BLOCK // (degree * max(1, values[..., 0].size)))
    result = np.empty_like(values)
    for start in range(0, size, step):
        result[..., start : start + step] = log_sum(
            windows[..., start : start + step, :] + backwards, axis=-1
        )
    return result


def leave_one_out(base: Array, counts: Sequence[int], apply: Callable[[Array, int], Array]) -> list[Array]:
    """For each kind of factor, the product of `base` and all factors but one of that kind.

    `apply(product, kind)` multiplies by one factor; there are `counts[kind]` of each. Halves the kinds
    recursively, so that it never divides. It takes of the order of kinds times log(kinds) multiplications.
    """
    found: list[Array] = [base] * len(counts)

    def visit(product: Array, kinds: range) -> None:
        if len(kinds) == 1:
            for _ in range(counts[kinds[0]] - 1):
                product = apply(product, kinds[0])
            found[kinds[0]] = product
            return
        middle = len(kinds) // 2
        for inside, outside in ((kinds[:middle], kinds[middle:]), (kinds[middle:], kinds[:middle])):
            part = product
            for kind in outside:
                for _ in range(counts[kind]):
                    part = apply(part, kind)
            visit(part, inside)

    if counts:
        visit(base, range(len(counts)))
    return found


def _zeros(log_delay: Array, count: Array) -> Array:
    return np.zeros(np.broadcast_shapes(log_delay.shape, count.shape))
