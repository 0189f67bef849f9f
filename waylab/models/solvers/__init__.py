"""Every solver by name. A solver turns a network into a result, or names the assumption that fails."""

from collections.abc import Callable

from waylab.models.network import Network
from waylab.models.result import Result
from waylab.models.solvers.approximate import solve_aql, solve_linearizer, solve_schweitzer
from waylab.models.solvers.convolution import solve_convolution
from waylab.models.solvers.fork.join import solve_fork_join
from waylab.models.solvers.layered import solve_layered
from waylab.models.solvers.markov.solver import solve_markov
from waylab.models.solvers.mixed import solve_mixed
from waylab.models.solvers.mva import solve_mva
from waylab.models.solvers.open import solve_open

SOLVERS: dict[str, Callable[[Network], Result]] = {
    "open": solve_open,
    "convolution": solve_convolution,
    "mva": solve_mva,
    "mixed": solve_mixed,
    "fork-join": solve_fork_join,
    "layered": solve_layered,
    "markov": solve_markov,
    "schweitzer": solve_schweitzer,
    "linearizer": solve_linearizer,
    "aql": solve_aql,
}
