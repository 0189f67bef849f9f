"""Long-run probabilities of a finite Markov chain in continuous time. Knows no queues."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array, csr_array, diags_array, tril, triu
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, SuperLU, gmres, splu

from waylab.models.errors import ModelError

Array = NDArray[np.float64]
# Up to the first number of states, the equations are solved directly; up to the second, if iteration fails.
_DIRECT_FIRST = 3_000
_DIRECT_MAX = 20_000
_RESIDUAL_MAX = 1e-9
# Iteration stops at this residual, relative to the right-hand side.
_STOP = 1e-13
# Steps of the power method that find a frequent reference state.
_WARM_UP = 200


def stationary(origins: NDArray[np.int64], targets: NDArray[np.int64], rates: Array, count: int) -> Array:
    """Solve pi Q = 0 with the sum of pi equal to 1, for transitions `rates` from `origins` to `targets`.

    Transient states get 0. One frequent state gets weight 1 and the others follow from it, so that no equation is
    replaced by the sum: all other entries have the signs of an M-matrix, and nothing cancels
    (Stewart, Introduction to the Numerical Solution of Markov Chains, 1994, 2.3).

    Raises:
        ModelError: when the chain has an absorbing state or several recurrent classes.
    """
    matrix = coo_array((rates, (origins, targets)), shape=(count, count)).tocsr()
    matrix.setdiag(0)
    matrix.eliminate_zeros()
    out_of_each: Array = np.asarray(matrix.sum(axis=1)).ravel()
    if count > 1 and not out_of_each.all():
        raise ModelError("when_full", "the network deadlocks: every request is blocked")
    lasting = _lasting(matrix)
    probabilities = np.zeros(count)
    if len(lasting) == 1:
        probabilities[lasting[0]] = 1.0
        return probabilities
    inner = csc_array(matrix[lasting][:, lasting])
    out: Array = np.asarray(inner.sum(axis=1)).ravel()
    guess = _power(inner, out)
    reference = int(np.argmax(guess))
    others = np.flatnonzero(np.arange(len(lasting)) != reference)
    # Balance of each other state: outflow equals inflow.
    balance: csc_array = csc_array(diags_array(out) - inner.T)
    system = csc_array(balance[others][:, others])
    inflow = np.asarray(-balance[others][:, [reference]].todense()).ravel()
    weights = np.ones(len(lasting))
    solved = None
    if len(others) > _DIRECT_FIRST:
        solved = _iterate(system, inflow, guess[others] / guess[reference])
    if solved is None and len(others) <= _DIRECT_MAX:
        solved = _factorised(system, "MMD_AT_PLUS_A").solve(inflow)
    if solved is None:
        raise ModelError("markov", f"the equations of {count} states were not solved by iteration")
    weights[others] = np.maximum(solved, 0.0)
    weights /= weights.sum()
    wrong = np.abs(balance @ weights).sum() / (out @ weights)
    if not wrong < _RESIDUAL_MAX:
        raise ModelError("markov", f"the equations of {count} states were not solved: residual {wrong:.1e}")
    probabilities[lasting] = weights
    return probabilities


def _lasting(matrix: csr_array) -> NDArray[np.int64]:
    """The recurrent states."""
    parts, part_of = connected_components(matrix, directed=True, connection="strong")
    flows = matrix.tocoo()
    between_parts = part_of[flows.coords[0]] != part_of[flows.coords[1]]
    closed = np.setdiff1d(np.arange(parts), part_of[flows.coords[0][between_parts]])
    if len(closed) > 1:
        raise ModelError(
            "network", "its long-run state depends on chance: there are states that never communicate"
        )
    return np.flatnonzero(part_of == closed[0])


def _power(inner: csc_array, out: Array) -> Array:
    fastest = 1.05 * out.max()
    weights = np.full(len(out), 1 / len(out))
    for _ in range(_WARM_UP):
        weights = weights + (inner.T @ weights - out * weights) / fastest
    return np.asarray(weights / weights.sum())


def _factorised(system: Any, order: Literal["MMD_AT_PLUS_A", "NATURAL"]) -> SuperLU:
    options = {"SymmetricMode": True}
    factors: SuperLU = splu(csc_array(system), permc_spec=order, diag_pivot_thresh=0.0, options=options)
    return factors


def _iterate(system: csc_array, inflow: Array, guess: Array) -> Array | None:
    """GMRES with a symmetric Gauss-Seidel step before each product (Stewart, 1994, 4.4); None when it stalls."""
    lower = _factorised(tril(system), "NATURAL")
    upper = _factorised(triu(system), "NATURAL")
    diagonal = system.diagonal()
    helper = LinearOperator(system.shape, lambda vector: upper.solve(diagonal * lower.solve(vector)))
    weights, failed = gmres(system, inflow, x0=guess, rtol=_STOP, M=helper, restart=60, maxiter=40)
    return None if failed else np.asarray(weights)
