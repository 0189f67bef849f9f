"""Logarithms of weights over all populations (n_1, ..., n_R) of several chains, and products of them.

A station of several chains weighs sum over n of c(n) (D_1 z_1 + ... + D_R z_R)^n: it is a polynomial and a geometric
series in one variable w, and multiplying by w is a step along every axis. Every term is positive.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from waylab.models.solvers.log_sums import log_sum

Array = NDArray[np.float64]
Whole = NDArray[np.int64]


class Lattice:
    """Populations from nothing up to `populations`; arrays have one axis for each chain."""

    def __init__(self, populations: tuple[int, ...]) -> None:
        self.populations = populations
        self.shape = tuple(population + 1 for population in populations)
        self._levels: dict[tuple[int, ...], list[tuple[Whole, list[tuple[int, Whole, Whole]]]]] = {}

    @cached_property
    def _long(self) -> int:
        return int(np.argmax(self.shape))

    def separate(self, series: list[Array]) -> Array:
        """Product of one series for each chain."""
        product = np.zeros(())
        for values in series:
            product = product[..., None] + values
        return product

    def times_work(self, values: Array, log_demands: Array) -> Array:
        """Multiply by w: one step along every axis that the station is visited from."""
        result: Array = np.full(self.shape, -np.inf)
        for axis in np.flatnonzero(np.isfinite(log_demands)):
            ahead, behind = self._slices(int(axis))
            result[ahead] = np.logaddexp(result[ahead], values[behind] + log_demands[axis])
        return result

    def times_polynomial(self, values: Array, log_factors: Array, log_demands: Array) -> Array:
        """Multiply by a polynomial in w, from its highest power down."""
        result: Array = values + log_factors[-1]
        for factor in log_factors[-2::-1]:
            result = np.logaddexp(values + factor, self.times_work(result, log_demands))
        return result

    def times_geometric(self, values: Array, log_demands: Array) -> Array:
        """Divide by 1 - w: G(n) += sum over r of D_r G(n - e_r) (Buzen, 1973; Reiser and Kobayashi, 1975).

        The longest axis is one cumulative sum; the others are done level by level of their sum.
        """
        size = self.shape[self._long]
        result = np.moveaxis(values, self._long, -1).reshape(-1, size).copy()
        along = log_demands[self._long]
        tilt = np.arange(size) * (along if np.isfinite(along) else 0.0)
        for rows, steps in self._steps(tuple(int(axis) for axis in np.flatnonzero(np.isfinite(log_demands)))):
            block = result[rows]
            for axis, inner, before in steps:
                block[inner] = np.logaddexp(block[inner], result[before] + log_demands[axis])
            if np.isfinite(along):
                block = np.logaddexp.accumulate(block - tilt, axis=1) + tilt
            result[rows] = block
        others = [length for axis, length in enumerate(self.shape) if axis != self._long]
        return np.asarray(np.moveaxis(result.reshape(*others, size), -1, self._long))

    def station_weights(self, log_capacity: Array, log_demands: Array) -> tuple[Array, Whole]:
        """Weights of (n_1, ..., n_R) at one station, c(|n|) |n|! times D_r^n_r / n_r! of each chain; and |n|.

        Chains that do not visit have an axis of length 1.
        """
        weights, total = np.zeros(()), np.zeros((), dtype=np.int64)
        for axis, length in enumerate(self.shape):
            count = np.arange(length if np.isfinite(log_demands[axis]) else 1)
            log_demand = log_demands[axis] if len(count) > 1 else 0.0
            weights = weights[..., None] + count * log_demand - gammaln(count + 1.0)
            total = total[..., None] + count
        return weights + (log_capacity + gammaln(np.arange(len(log_capacity)) + 1.0))[total], total

    def split(self, weights: Array, others: Array) -> Array:
        """Probability of (n_1, ..., n_R) at one station, when `others` weighs the rest of the network."""
        rest = others[
            tuple(slice(None, None, -1) if length > 1 else slice(-1, None) for length in weights.shape)
        ]
        joint = weights + rest
        return np.asarray(np.exp(joint - log_sum(joint)))

    def _slices(self, axis: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        ahead = [slice(None)] * len(self.shape)
        behind = [slice(None)] * len(self.shape)
        ahead[axis], behind[axis] = slice(1, None), slice(None, -1)
        return tuple(ahead), tuple(behind)

    def _steps(self, axes: tuple[int, ...]) -> list[tuple[Whole, list[tuple[int, Whole, Whole]]]]:
        """Rows (all but the longest axis) by level; for each, where an axis can step back, and to which row."""
        if axes not in self._levels:
            others = [axis for axis in range(len(self.shape)) if axis != self._long]
            lengths = [self.shape[axis] for axis in others]
            rows = np.arange(int(np.prod(lengths, dtype=np.int64)))
            places = dict(zip(others, np.unravel_index(rows, lengths) if others else (), strict=True))
            strides = (
                dict(zip(others, np.append(np.cumprod(lengths[:0:-1])[::-1], 1), strict=True))
                if others
                else {}
            )
            walked = [axis for axis in axes if axis != self._long]
            level = sum((places[axis] for axis in walked), start=np.zeros_like(rows))
            order = np.argsort(level, kind="stable")
            groups = np.split(order, np.flatnonzero(np.diff(level[order])) + 1)
            self._levels[axes] = [
                (
                    group,
                    [
                        (axis, inner, group[inner] - int(strides[axis]))
                        for axis in walked
                        if len(inner := np.flatnonzero(places[axis][group] > 0))
                    ],
                )
                for group in groups
            ]
        return self._levels[axes]
