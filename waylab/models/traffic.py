"""How often a request visits each place: visit ratios, chains of classes, and arrival rates.

Traffic equations as in Lavenberg and Reiser (1980) and Bolch et al., Queueing Networks and Markov Chains, 7.1 and 10.1.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waylab.models.description import CLIENT
from waylab.models.errors import ModelError
from waylab.models.network import Network

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Chain:
    """Classes between which customers switch. Closed when `population` is above 0, else open."""

    classes: tuple[int, ...]
    population: int
    shares: tuple[float, ...]
    """Share of the chain's requests that begin in each of its classes."""


@dataclass(frozen=True)
class Traffic:
    """Visits by the class in which a request began.

    `visits[c, k, d]`: mean number of visits to node k (stations, then forks) as class d of a request that began in
    class c, without legs.
    `leg_visits[c, k, d]`: visits of legs to station k. `chains` lists closed and open chains.
    """

    visits: Array
    leg_visits: Array
    chains: tuple[Chain, ...]

    @property
    def station_visits(self) -> Array:
        """Visits to stations, legs of forks included; shape (begin class, station, class there)."""
        stations = self.leg_visits.shape[1]
        return np.asarray(self.visits[:, :stations, :] + self.leg_visits)

    def chain_of(self, class_index: int) -> Chain:
        """The chain of a class."""
        return next(chain for chain in self.chains if class_index in chain.classes)


def traffic(network: Network) -> Traffic:
    """Solve the traffic equations.

    Raises:
        ModelError: when a request can never leave.
    """
    classes, nodes = len(network.classes), len(network.node_names)
    visits = np.zeros((classes, nodes, classes))
    ends = np.zeros((classes, classes))
    if network.visits:
        for name, counts in network.visits.items():
            begin = network.class_names.index(name)
            for node, count in counts.items():
                visits[begin, network.node_names.index(node), begin] = count
        ends = np.eye(classes)
    else:
        visits, ends = _from_routes(network)
    legs = np.zeros((classes, len(network.stations), classes))
    for index, fork in enumerate(network.forks):
        for branch in fork.branches:
            legs[:, network.station_names.index(branch), :] += visits[:, len(network.stations) + index, :]
    return Traffic(visits, legs, _chains(network, ends, visits))


def _from_routes(network: Network) -> tuple[Array, Array]:
    """Visits (begin class, node, class) and the class in which requests end (begin class, end class)."""
    classes, nodes = network.class_names, network.node_names
    states = {
        (name, node): number
        for number, (name, node) in enumerate((name, node) for node in nodes for name in classes)
    }
    inner = np.zeros((len(states), len(states)))
    first = np.zeros((len(classes), len(states)))
    last = np.zeros((len(states), len(classes)))
    for route in network.routes:
        after = classes.index(route.class_after)
        if route.origin == CLIENT:
            first[classes.index(route.job_class), states[route.class_after, route.target]] += (
                route.probability
            )
        elif route.target == CLIENT:
            last[states[route.job_class, route.origin], after] += route.probability
        else:
            inner[states[route.job_class, route.origin], states[route.class_after, route.target]] += (
                route.probability
            )
    # Only reachable states matter; the others may have no path to the client.
    reached = first.any(axis=0)
    while True:
        more = reached | (inner[reached].any(axis=0) if reached.any() else reached)
        if (more == reached).all():
            break
        reached = more
    system = np.eye(len(states)) - inner.T
    system[~reached] = 0.0
    system[~reached, ~reached] = 1.0
    try:
        counts = np.linalg.solve(system, first.T).T
    except np.linalg.LinAlgError:
        raise ModelError(
            "routes", "a request can circulate forever: no path leads back to the client"
        ) from None
    ends = counts @ last
    begins = first.sum(axis=1) > 0
    if (counts < -1e-9).any() or (abs(ends[begins].sum(axis=1) - 1) > 1e-6).any():
        raise ModelError("routes", "a request can circulate forever: no path leads back to the client")
    visits = np.maximum(counts, 0.0).reshape(len(classes), len(nodes), len(classes))
    return visits, ends


def _chains(network: Network, ends: Array, visits: Array) -> tuple[Chain, ...]:
    """Group classes that customers switch between, and the share of requests that begin in each."""
    count = len(network.classes)
    next_class = np.zeros((count, count))
    for index, job_class in enumerate(network.classes):
        if job_class.arrivals_per_s > 0:
            continue
        for end in np.flatnonzero(ends[index] > 0):
            row = network.switching.get(network.class_names[end])
            if row is None:
                next_class[index, end] += ends[index, end]
            else:
                for name, probability in row.items():
                    next_class[index, network.class_names.index(name)] += ends[index, end] * probability
    # Classes form one chain if customers can switch between them or pass through them.
    touch = (next_class > 0) | (visits.sum(axis=1) > 0) | np.eye(count, dtype=bool)
    touch = touch | touch.T
    groups: list[set[int]] = []
    left = set(range(count))
    while left:
        group = {left.pop()}
        while True:
            more = set(np.flatnonzero(touch[list(group)].any(axis=0)).tolist())
            if more <= group:
                break
            group |= more
        left -= group
        groups.append(group)
    chains = []
    for group in sorted(groups, key=min):
        members = tuple(int(index) for index in sorted(group))
        chains.append(_chain(network, members, next_class[np.ix_(members, members)]))
    return tuple(chains)


def _chain(network: Network, members: tuple[int, ...], next_class: Array) -> Chain:
    population = sum(network.classes[index].population for index in members)
    rates = np.array([network.classes[index].arrivals_per_s for index in members])
    names = ", ".join(network.classes[index].name for index in members)
    if population and rates.any():
        raise ModelError(f"classes {names}", "customers switch between closed and open classes")
    if not population:
        return Chain(members, 0, tuple(rates / rates.sum()))
    starts = np.array([float(network.classes[index].population) for index in members])
    shares = _stationary(next_class, starts / population)
    return Chain(members, population, tuple(float(share) for share in shares))


def _stationary(step: Array, start: Array) -> Array:
    """Long-run share of requests by class, for a customer that starts with the distribution `start`.

    Raises:
        ModelError: when customers end in classes that never communicate: one population cannot describe them.
    """
    reach = np.linalg.matrix_power(((step > 0) | np.eye(len(step), dtype=bool)).astype(float), len(step)) > 0
    recurrent = [
        index
        for index in range(len(step))
        if all(reach[other, index] for other in np.flatnonzero(reach[index]))
    ]
    recurrent = [index for index in recurrent if step[index].sum() > 0.5 and start @ reach[:, index] > 0]
    meet = reach & reach.T
    if any(not meet[recurrent[0], other] for other in recurrent[1:]):
        raise ModelError("switching", "customers end in classes between which they never switch again")
    inside = step[np.ix_(recurrent, recurrent)]
    system = np.vstack([inside.T - np.eye(len(recurrent)), np.ones(len(recurrent))])
    solution = np.linalg.lstsq(system, np.append(np.zeros(len(recurrent)), 1.0), rcond=None)[0]
    shares = np.zeros(len(step))
    shares[recurrent] = np.maximum(solution, 0.0)
    return np.asarray(shares / shares.sum())
