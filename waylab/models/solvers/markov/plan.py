"""Tables of a network for `markov.moves`: the paths of requests and the places that they visit.

Refuses networks without a finite chain of states: times that are not memoryless, and unlimited numbers of requests.
"""

import math
from dataclasses import dataclass

from waylab.models.description import CLIENT, Station
from waylab.models.errors import AssumptionError
from waylab.models.features import ASSUMPTIONS, require
from waylab.models.network import Network
from waylab.models.traffic import traffic

SOLVER = "markov"
# The node of a request that is over, and the origin of a request that begins.
OUTSIDE = -1
_REFUSED = {"general service", "general arrivals"}
_MEMORYLESS = "exponential times everywhere"
_FINITE = "a limited number of requests"


@dataclass(frozen=True)
class PathStep:
    """The next step of a request: a node, a class, and how often it visits the node in a row."""

    probability: float
    node: int
    job_class: int
    again: int = 0


@dataclass(frozen=True)
class MarkovStation:
    """A station for `markov.moves`. `services_per_s` is infinite for a class that takes no time there."""

    servers: float
    order: str
    """`shared` (all in service), `fcfs`, `priority` or `preemptive`."""
    delay: bool
    rates: tuple[float, ...]
    capacity: float
    blocks: bool
    batch: int
    services_per_s: tuple[float, ...]
    priority: tuple[int, ...]

    def speed(self, present: int) -> float:
        """Speed of the whole station, in units of one server."""
        if self.rates:
            return self.rates[min(present, len(self.rates)) - 1]
        return min(float(present), self.servers)


@dataclass(frozen=True)
class MarkovPlan:
    """All tables of a network."""

    network: Network
    places: tuple[MarkovStation, ...]
    begins: tuple[tuple[PathStep, ...], ...]
    """By class: the first steps of its requests."""
    steps: dict[tuple[int, int], tuple[PathStep, ...]]
    """By class and node: the next steps of a request; OUTSIDE when it is over."""
    comes_back: tuple[tuple[PathStep, ...], ...]
    """By class in which a request ended: the classes of the customer's next request; empty for open requests."""
    branches: tuple[tuple[int, ...], ...]
    needed: tuple[int, ...]
    slots: tuple[int, ...]
    pool_of: tuple[int, ...]
    """By node; OUTSIDE for none."""

    @property
    def stations(self) -> int:
        """Nodes below this number are stations, the others forks."""
        return len(self.places)


def make_plan(network: Network) -> MarkovPlan:
    """Read a network.

    Raises:
        AssumptionError: for a network without a finite chain of states.
    """
    require(network, SOLVER, set(ASSUMPTIONS) - _REFUSED)
    _check_times(network)
    _check_finite(network)
    classes, nodes = network.class_names, network.node_names
    pool_of = [OUTSIDE] * len(nodes)
    for index, pool in enumerate(network.pools):
        for name in pool.inside:
            pool_of[nodes.index(name)] = index
    begins, steps = _by_visits(network) if network.visits else _by_routes(network)
    return MarkovPlan(
        network=network,
        places=tuple(_place(network, station) for station in network.stations),
        begins=tuple(begins),
        steps=steps,
        comes_back=tuple(_next_class(network, name) for name in classes),
        branches=tuple(tuple(nodes.index(name) for name in fork.branches) for fork in network.forks),
        needed=tuple(fork.needed for fork in network.forks),
        slots=tuple(pool.slots for pool in network.pools),
        pool_of=tuple(pool_of),
    )


def _check_times(network: Network) -> None:
    for station in network.stations:
        _check_service(station)
    for job_class in network.classes:
        if not job_class.think.is_exponential:
            fact = f"class {job_class.name!r} has {job_class.think.distribution} think times"
            raise AssumptionError(SOLVER, _MEMORYLESS, fact)
    for fork in network.forks:
        if fork.send_s > 0:
            fact = f"fork {fork.name!r} sends its legs {fork.send_s:g} s apart"
            raise AssumptionError(SOLVER, "legs that are sent at the same moment", fact)
        for name in fork.branches:
            if network.station(name).capacity is not None:
                fact = f"branch {name!r} of fork {fork.name!r} can be full"
                raise AssumptionError(SOLVER, "room for every leg", fact)
    batched = [station for station in network.stations if station.batch > 1]
    for station in network.stations:
        if batched and station.capacity is not None and station.when_full == "block":
            fact = f"station {station.name!r} blocks, and {batched[0].name!r} serves several at once"
            raise AssumptionError(SOLVER, "that no part of a batch is blocked", fact)


def _check_service(station: Station) -> None:
    for name, time in station.service.items():
        if not time.is_exponential:
            fact = f"station {station.name!r} has {time.distribution} service of {name!r}"
            raise AssumptionError(SOLVER, _MEMORYLESS, fact)
    means = {time.mean_s for time in station.service.values()}
    if station.batch > 1 and len(means) > 1:
        fact = f"station {station.name!r} serves different classes together, at different speeds"
        raise AssumptionError(SOLVER, "one service time for those served together", fact)
    if 0 in means and len(means) > 1 and not station.is_delay and station.discipline != "ps":
        fact = f"some classes take no time at station {station.name!r}, and others do"
        raise AssumptionError(SOLVER, "that no request queues for a service of zero time", fact)


def _check_finite(network: Network) -> None:
    """Open requests need a limited number of places at every node."""
    described = traffic(network)
    begins, _ = _by_visits(network) if network.visits else _by_routes(network)
    for chain in described.chains:
        for index in chain.classes if not chain.population else ():
            entries = {step.node for step in begins[index]}
            for node in described.visits[index].sum(axis=1).nonzero()[0]:
                fact = _unlimited(network, int(node), node in entries)
                if fact:
                    who = f"class {network.class_names[index]!r} comes from outside, and any number "
                    raise AssumptionError(SOLVER, _FINITE, who + fact)


def _unlimited(network: Network, node: int, entry: bool) -> str:
    """How open requests could accumulate without limit at a node; empty if they cannot."""
    name = network.node_names[node]
    if node >= len(network.stations) or network.stations[node].capacity is None:
        return f"has room at {name!r}"
    if any(name in pool.inside for pool in network.pools):
        return f"may wait for a slot before {name!r}"
    if entry and network.stations[node].when_full == "block":
        return f"may wait outside while {name!r} is full"
    return ""


def _place(network: Network, station: Station) -> MarkovStation:
    order = station.discipline
    if station.is_delay or order == "ps":
        order = "shared"
    rates = []
    for name in network.class_names:
        mean_s = station.service[name].mean_s if name in station.service else 0.0
        rates.append(1 / mean_s if mean_s > 0 else math.inf)
    return MarkovStation(
        servers=math.inf if station.servers is None else station.servers,
        order=order,
        delay=station.is_delay,
        rates=station.rates,
        capacity=math.inf if station.capacity is None else station.capacity,
        blocks=station.when_full == "block",
        batch=station.batch,
        services_per_s=tuple(rates),
        priority=tuple(job_class.priority for job_class in network.classes),
    )


def _next_class(network: Network, name: str) -> tuple[PathStep, ...]:
    index = network.class_names.index(name)
    if not traffic(network).chain_of(index).population:
        return ()
    row = network.switching.get(name, {name: 1.0})
    return tuple(
        PathStep(share, OUTSIDE, network.class_names.index(other))
        for other, share in row.items()
        if share > 0
    )


def _by_routes(
    network: Network,
) -> tuple[list[tuple[PathStep, ...]], dict[tuple[int, int], tuple[PathStep, ...]]]:
    classes, nodes = network.class_names, network.node_names
    begins: list[list[PathStep]] = [[] for _ in classes]
    steps: dict[tuple[int, int], list[PathStep]] = {}
    for route in network.routes:
        target = OUTSIDE if route.target == CLIENT else nodes.index(route.target)
        step = PathStep(route.probability, target, classes.index(route.class_after))
        origin = classes.index(route.job_class)
        if route.origin == CLIENT:
            begins[origin].append(step)
        else:
            steps.setdefault((origin, nodes.index(route.origin)), []).append(step)
    return [tuple(part) for part in begins], {key: tuple(part) for key, part in steps.items()}


def _by_visits(
    network: Network,
) -> tuple[list[tuple[PathStep, ...]], dict[tuple[int, int], tuple[PathStep, ...]]]:
    """Nodes in order; each floor(v) times, and once more with probability v - floor(v)."""
    begins: list[tuple[PathStep, ...]] = []
    steps: dict[tuple[int, int], tuple[PathStep, ...]] = {}
    for index, name in enumerate(network.class_names):
        counts = network.visits.get(name, {})
        visits = [counts.get(node, 0.0) for node in network.node_names]
        begins.append(_onward(visits, 0, index))
        for node in range(len(visits)):
            if visits[node] > 0:
                steps[index, node] = _onward(visits, node + 1, index)
    return begins, steps


def _onward(visits: list[float], start: int, job_class: int) -> tuple[PathStep, ...]:
    found = []
    left = 1.0
    for node in range(start, len(visits)):
        whole = math.floor(visits[node])
        extra = visits[node] - whole
        chances = ((1 - extra, whole), (extra, whole + 1))
        found += [
            PathStep(left * chance, node, job_class, times - 1)
            for chance, times in chances
            if times and chance > 0
        ]
        if whole:
            return tuple(found)
        left *= 1 - extra
    return (*found, PathStep(left, OUTSIDE, job_class))
