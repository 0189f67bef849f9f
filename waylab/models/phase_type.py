"""Phase-type times: the time until a Markov chain is absorbed. Sums, mixtures and order statistics are phase-type.

Knows no queue; all probabilities are sums of positive terms.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import expm
from scipy.sparse.csgraph import breadth_first_order
from scipy.sparse.linalg import splu

from waylab.models.errors import AssumptionError, ModelError
from waylab.models.service import Service
from waylab.models.uniformisation import check_share, poisson_window, quantile

Array = NDArray[np.float64]

PHASES_MAX = 50_000
"""More phases than this are refused, because simulation is faster."""
# Chains of at most this many phases are stepped with a dense matrix, which is faster than a sparse one.
_DENSE_MAX = 100
# Beyond this many steps, chains of at most this many phases take the dense matrix exponential instead. A quantile
# takes 14 ms for 2 phases and some 4 s for 200.
_STEPS_MAX, _EXPONENTIAL_MAX = 50_000, 500
# Larger chains are refused beyond this many steps.
_PATIENCE_STEPS = 200_000
_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class PhaseType:
    """Time until absorption of a chain that starts in phase i with probability `start[i]` (Neuts, 1981, chapter 2).

    `start` is the vector often called alpha, shape (n,); one minus its sum is the probability of a time of zero.
    `rates` is the sub-generator often called T, shape (n, n), dense or sparse: rates from phase to phase off the
    diagonal, and minus the rate of leaving a phase on it. Minus the sum of a row is its rate of absorption.

    Raises:
        ModelError: unless the shapes agree, the signs are right, and absorption can be reached from every phase.
    """

    start: Array
    rates: sparse.csr_array

    def __post_init__(self) -> None:
        start = np.array(self.start, dtype=float)
        rates = sparse.csr_array(self.rates).astype(float)
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "rates", rates)
        _check(start, rates)

    @staticmethod
    def exponential(mean_s: float) -> "PhaseType":
        """One phase."""
        return PhaseType.erlang(mean_s, 1)

    @staticmethod
    def erlang(mean_s: float, stages: int) -> "PhaseType":
        """Equal phases, one after the other."""
        _check_mean(mean_s)
        if stages < 1:
            raise ModelError("stages", f"must be at least 1, not {stages}")
        return _in_turn([stages / mean_s] * stages)

    @staticmethod
    def hyperexponential(weights: Sequence[float], means_s: Sequence[float]) -> "PhaseType":
        """A random one of several phases."""
        return PhaseType.mixture_of(weights, [PhaseType.exponential(mean_s) for mean_s in means_s])

    @staticmethod
    def of_service(service: Service) -> "PhaseType":
        """Take a service time that is made of phases.

        Raises:
            AssumptionError: for any other than exponential, Erlang and hyperexponential service.
        """
        _check_mean(service.mean_s)
        if service.distribution in ("exponential", "erlang"):
            return PhaseType.erlang(service.mean_s, service.stages)
        if service.distribution == "hyperexponential":
            return PhaseType.fitted(service.mean_s, service.squared_variation)
        raise AssumptionError("phase-type time", "a time made of phases", f"it is {service.distribution}")

    @staticmethod
    def fitted(mean_s: float, squared_variation: float) -> "PhaseType":
        """Match a mean and a squared coefficient of variation (Tijms, A First Course in Stochastic Models, B).

        Above 1 two phases of balanced means; below 1 a mixture of k - 1 and k Erlang phases of one rate, with 1/k the
        next value below: the smaller the variation the more phases.
        """
        _check_mean(mean_s)
        if not (squared_variation > 0 and math.isfinite(squared_variation)):
            raise ModelError("squared_variation", f"must be finite and above 0, not {squared_variation}")
        if squared_variation > 1:
            share = (1 + math.sqrt((squared_variation - 1) / (squared_variation + 1))) / 2
            return PhaseType.hyperexponential(
                (share, 1 - share), (mean_s / (2 * share), mean_s / (2 * (1 - share)))
            )
        stages = max(1, math.ceil(1 / squared_variation - _TOLERANCE))
        if stages > PHASES_MAX:
            raise ModelError("squared_variation", f"needs {stages} phases, more than {PHASES_MAX}")
        if stages == 1:
            return PhaseType.exponential(mean_s)
        root = math.sqrt(max(0.0, stages * (1 + squared_variation) - stages**2 * squared_variation))
        short = max(0.0, (stages * squared_variation - root) / (1 + squared_variation))
        whole = _in_turn([(stages - short) / mean_s] * stages)
        start = np.zeros(stages)
        start[0], start[1] = 1 - short, short
        return PhaseType(start, whole.rates)

    @staticmethod
    def sum_of(parts: Sequence["PhaseType"]) -> "PhaseType":
        """One after the other, independent (convolution)."""
        _check_parts(parts)
        return reduce(_then, parts)

    @staticmethod
    def mixture_of(weights: Sequence[float], parts: Sequence["PhaseType"]) -> "PhaseType":
        """One of them, with these probabilities; one minus their sum is the probability of a time of zero."""
        _check_parts(parts)
        if len(weights) != len(parts):
            raise ModelError("weights", f"must be one for each part, {len(parts)}, not {len(weights)}")
        start = np.concatenate([weight * part.start for weight, part in zip(weights, parts, strict=True)])
        return PhaseType(start, sparse.block_diag([part.rates for part in parts]))

    @staticmethod
    def maximum_of(parts: Sequence["PhaseType"]) -> "PhaseType":
        """The longest of several independent times."""
        return PhaseType.order_statistic_of(parts, len(parts))

    @staticmethod
    def order_statistic_of(parts: Sequence["PhaseType"], needed: int) -> "PhaseType":
        """Time until `needed` of several independent times are over: 1 gives the shortest, all of them the longest.

        The phases run in parallel (Kronecker sum), so their numbers multiply. Equal exponential times need only a
        count.

        Raises:
            ModelError: unless 1 <= needed <= number of times, or for too many phases.
        """
        _check_parts(parts)
        if not 1 <= needed <= len(parts):
            raise ModelError("needed", f"must lie between 1 and {len(parts)}, not {needed}")
        exits = {-part.rates[0, 0] if part.rates.shape == (1, 1) else math.nan for part in parts}
        if len(exits) == 1 and all(part.rates.shape == (1, 1) and part.start[0] == 1 for part in parts):
            rate = exits.pop()
            return _in_turn([(len(parts) - done) * rate for done in range(needed)])
        return _side_by_side(parts, needed)

    @property
    def phases(self) -> int:
        """Number of phases."""
        return int(self.start.size)

    def moment(self, order: int) -> float:
        """Mean of the time to this power, k! alpha (-T)^-k 1."""
        if order < 1:
            raise ModelError("order", f"must be at least 1, not {order}")
        factor = splu(sparse.csc_array(-self.rates))
        vector = np.ones(self.phases)
        for _ in range(order):
            vector = factor.solve(vector)
        return math.factorial(order) * float(self.start @ vector)

    @cached_property
    def mean_s(self) -> float:
        """Mean time."""
        return self.moment(1)

    @cached_property
    def variance_s2(self) -> float:
        """Variance of the time."""
        return max(0.0, self.moment(2) - self.mean_s**2)

    @property
    def std_s(self) -> float:
        """Standard deviation of the time."""
        return math.sqrt(self.variance_s2)

    @property
    def squared_variation(self) -> float:
        """Variance over the squared mean."""
        return self.variance_s2 / self.mean_s**2

    def survival(self, time_s: float) -> float:
        """Probability of a longer time: sum over k of Poisson(k; q t) times the probability of lasting k steps.

        Uniformisation (Jensen, 1953): steps at the rate q of the fastest phase. Their probabilities do not depend on
        the time and are cached. Stiff chains, which would need very many steps, take the matrix exponential exp(T t)
        instead.
        """
        if time_s <= 0:
            return float(self.start.sum()) if time_s == 0 else 1.0
        steps = self._fastest_per_s * time_s
        if steps > _STEPS_MAX and self.phases <= _EXPONENTIAL_MAX:
            over_time = np.asarray(expm(self.rates.toarray() * time_s), dtype=float)
            return min(1.0, max(0.0, float((self.start @ over_time).sum())))
        if steps > _PATIENCE_STEPS:
            raise ModelError(
                "rates", f"need {steps:.3g} steps: fast and slow phases are too far apart; simulate"
            )
        first, weights = poisson_window(steps)
        lasting = self._chain.lasting(first + weights.size)
        return min(1.0, float(weights @ lasting[first : first + weights.size]))

    def cdf(self, time_s: float) -> float:
        """Probability of at most this time."""
        return 1 - self.survival(time_s)

    def quantile(self, share: float) -> float:
        """Quantile of the time.

        Raises:
            ModelError: for a share outside of 0 to 1, or rates too far apart for many phases.
        """
        check_share(share)
        if self.start.sum() <= 1 - share:
            return 0.0
        return quantile(self.survival, share, self.mean_s)

    @property
    def _fastest_per_s(self) -> float:
        return float(-self.rates.diagonal().min())

    @cached_property
    def _chain(self) -> "_Steps":
        return _Steps(self.start, self.rates, self._fastest_per_s)


class _Steps:
    """Probabilities that the uniformised chain is not absorbed after k steps, computed on demand."""

    def __init__(self, start: Array, rates: sparse.csr_array, fastest_per_s: float) -> None:
        step = sparse.csr_array(rates.T / fastest_per_s + sparse.eye_array(start.size))
        dense = step.toarray() if start.size <= _DENSE_MAX else None
        self._step: Callable[[Array], Any] = step.dot if dense is None else dense.dot
        self._vector: Array = start
        self._lasting = [float(start.sum())]

    def lasting(self, size: int) -> Array:
        """Probabilities after 0 to at least size - 1 steps."""
        while len(self._lasting) < size:
            self._vector = self._step(self._vector)
            self._lasting.append(float(self._vector.sum()))
        return np.array(self._lasting)


def _check(start: Array, rates: sparse.csr_array) -> None:
    if start.size > PHASES_MAX:
        raise ModelError("phase-type time", f"has {start.size} phases, more than {PHASES_MAX}; simulate")
    if start.ndim != 1 or not start.size or rates.shape != (start.size, start.size):
        raise ModelError("rates", f"must be a square of the size of start, {start.shape}, not {rates.shape}")
    if not (np.isfinite(start).all() and np.isfinite(rates.data).all()):
        raise ModelError("phase-type time", "all numbers must be finite")
    if (start < 0).any() or start.sum() > 1 + _TOLERANCE:
        raise ModelError("start", f"must be probabilities with a sum of at most 1, not {start.sum():.6g}")
    diagonal = rates.diagonal()
    if (diagonal >= 0).any():
        raise ModelError("rates", "must be below 0 on the diagonal: every phase is left")
    if ((rates - sparse.diags_array(diagonal)).data < 0).any():
        raise ModelError("rates", "must be at least 0 off the diagonal")
    exits = -np.asarray(rates.sum(axis=1)).ravel()
    if (exits < _TOLERANCE * diagonal).any():
        raise ModelError("rates", "must have rows with a sum of at most 0")
    # Every phase must be reachable backwards from absorption.
    leaves = np.flatnonzero(exits > -_TOLERANCE * diagonal)
    absorbed = sparse.csr_array((np.ones(leaves.size), (np.zeros(leaves.size, int), leaves)), (1, start.size))
    backwards = _blocks([[None, absorbed], [sparse.csr_array((start.size, 1)), rates.T]])
    if breadth_first_order(backwards, 0, return_predecessors=False).size <= start.size:
        raise ModelError("rates", "must let every phase be absorbed in the end")


def _check_mean(mean_s: float) -> None:
    if not (mean_s > 0 and math.isfinite(mean_s)):
        raise ModelError("mean_s", f"must be a finite number > 0, not {mean_s}")


def _check_parts(parts: Sequence[PhaseType]) -> None:
    if not parts:
        raise ModelError("parts", "needs at least one entry")


def _in_turn(rates_per_s: Sequence[float]) -> PhaseType:
    """Exponential phases one after the other."""
    start = np.zeros(len(rates_per_s))
    start[0] = 1.0
    rates = np.asarray(rates_per_s, dtype=float)
    both = sparse.diags_array(-rates) + sparse.diags_array(
        rates[:-1], offsets=1, shape=(rates.size, rates.size)
    )
    return PhaseType(start, sparse.csr_array(both))


def _then(first: PhaseType, second: PhaseType) -> PhaseType:
    exits = np.maximum(0.0, -np.asarray(first.rates.sum(axis=1)))
    on = sparse.csr_array(exits.reshape(-1, 1)) @ sparse.csr_array(second.start.reshape(1, -1))
    rates = _blocks([[first.rates, on], [None, second.rates]])
    return PhaseType(np.concatenate((first.start, (1 - first.start.sum()) * second.start)), rates)


def _side_by_side(parts: Sequence[PhaseType], needed: int) -> PhaseType:
    """All parts in parallel, each with one more phase for done, until enough are done."""
    size = math.prod(part.phases + 1 for part in parts)
    if size > PHASES_MAX:
        raise ModelError("parts", f"have {size} phases side by side, more than {PHASES_MAX}; simulate")
    start, done = np.ones(1), np.zeros(1, dtype=int)
    rates = sparse.csr_array((1, 1))
    for part in parts:
        exits = np.maximum(0.0, -np.asarray(part.rates.sum(axis=1))).reshape(-1, 1)
        alone = _blocks([[part.rates, sparse.csr_array(exits)], [None, sparse.csr_array((1, 1))]])
        rates = sparse.kron(rates, sparse.identity(part.phases + 1)) + sparse.kron(
            sparse.identity(start.size), alone
        )
        start = np.kron(start, np.append(part.start, max(0.0, 1 - part.start.sum())))
        done = np.add.outer(done, np.append(np.zeros(part.phases, dtype=int), 1)).ravel()
    going = np.flatnonzero(done < needed)
    return PhaseType(start[going], sparse.csr_array(rates)[going][:, going])


def _blocks(blocks: Sequence[Sequence[Any]]) -> sparse.csr_array:
    return sparse.csr_array(sparse.block_array(blocks))
