"""Chooses the most exact solver that can handle a network, or reports why none can."""

from collections import Counter
from collections.abc import Callable

from waylab.models.errors import AssumptionError, ModelError
from waylab.models.network import Network
from waylab.models.result import Result
from waylab.models.solvers import SOLVERS
from waylab.models.solvers.markov.solver import solve_markov

# The order in which `auto` tries: exact ones first, then approximations.
_ORDER = ("open", "convolution", "mixed", "markov", "fork-join", "layered", "linearizer")
# A chain of more states takes seconds; `auto` then prefers an approximation.
_STATES_MAX = 5_000


def solve(network: Network, method: str = "auto") -> Result:
    """Solve a network for its steady state.

    Raises:
        AssumptionError: when the method (or, for `auto`, every method) lacks a feature; names the assumption.
        UnstableError: when arrivals exceed the service capacity.
        ModelError: for an unknown method.
    """
    if method != "auto":
        return _solver(method)(network)
    reasons: Counter[tuple[str, str]] = Counter()
    for name in _ORDER:
        try:
            if name == "markov":
                return solve_markov(network, _STATES_MAX)
            return _solver(name)(network)
        except AssumptionError as error:
            reasons[error.assumption, error.fact] += 1
    # The assumption that fails for most solvers describes what is special about the network.
    assumption, fact = reasons.most_common(1)[0][0]
    raise AssumptionError("every solver but simulation", assumption, fact)


def _solver(name: str) -> Callable[[Network], Result]:
    if name not in SOLVERS:
        raise ModelError("method", f"{name!r} is none of auto, {', '.join(SOLVERS)}")
    return SOLVERS[name]
