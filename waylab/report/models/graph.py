"""A network as a graph to be drawn: places, and arrows between them with labels. Knows no coordinates."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from waylab.models.description import CLIENT
from waylab.models.network import Network

# The end of requests; drawn apart from their start, so that arrows run from left to right.
# Names of additional places begin with a NUL, which no station's name does.
END = "\0end"
_WRITTEN_CLASSES = 3


@dataclass(frozen=True)
class Arrow:
    """An arrow between two places. `words` is its label, `details` the same in full."""

    origin: str
    target: str
    words: str = ""
    details: str = ""


@dataclass(frozen=True)
class Graph:
    """Places in the order of the description, arrows, and the names of the pools' members."""

    places: tuple[str, ...]
    arrows: tuple[Arrow, ...]
    joins: dict[str, str] = field(default_factory=dict)
    """Fork to the place where its legs join."""
    pools: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Pool to the places inside it, joins included."""


def graph_of(network: Network) -> Graph:
    """Make the graph of a network."""
    joins = {fork.name: f"\0join {fork.name}" for fork in network.forks}
    arrows = _from_routes(network, joins) if network.routes else _from_visits(network, joins)
    for fork in network.forks:
        for branch in fork.branches:
            arrows += [Arrow(fork.name, branch), Arrow(branch, joins[fork.name])]
    used = {arrow.origin for arrow in arrows} | {arrow.target for arrow in arrows}
    names = list(network.station_names)
    for fork in network.forks:
        names += [fork.name, joins[fork.name]]
    places = (CLIENT, *(name for name in names if name in used), END)
    return Graph(places, tuple(_without_repeats(arrows)), joins, _members(network, joins))


def _from_routes(network: Network, joins: dict[str, str]) -> list[Arrow]:
    ways: dict[tuple[str, str], list[tuple[str, str, float]]] = {}
    classes_from: dict[str, set[str]] = {}
    for route in network.routes:
        key = (joins.get(route.origin, route.origin), END if route.target == CLIENT else route.target)
        ways.setdefault(key, []).append((route.job_class, route.class_after, route.probability))
        classes_from.setdefault(key[0], set()).add(route.job_class)
    return [
        Arrow(origin, target, *_words(_by_class(taken), classes_from[origin], _percent))
        for (origin, target), taken in ways.items()
    ]


def _by_class(taken: Iterable[tuple[str, str, float]]) -> dict[str, float]:
    """Return probabilities by the label of a class, or of a change of class."""
    return {name if name == after else f"{name} → {after}": share for name, after, share in taken}


def _from_visits(network: Network, joins: dict[str, str]) -> list[Arrow]:
    """Every class visits its places in the order of the description."""
    order = _in_order(network)
    ways: dict[tuple[str, str], dict[str, float]] = {}
    for name, visits in network.visits.items():
        taken = [place for place in order if visits.get(place, 0) > 0]
        origins = [CLIENT, *(joins.get(place, place) for place in taken)]
        for origin, target in zip(origins, [*taken, END], strict=True):
            ways.setdefault((origin, target), {})[name] = visits.get(target, 1.0)
    classes_from: dict[str, set[str]] = {}
    for (origin, _), counts in ways.items():
        classes_from.setdefault(origin, set()).update(counts)
    return [
        Arrow(origin, target, *_words(counts, classes_from[origin], _times))
        for (origin, target), counts in ways.items()
    ]


def _in_order(network: Network) -> list[str]:
    """Stations in order, and each fork at the position of its first branch."""
    order = []
    branches = {branch: fork.name for fork in reversed(network.forks) for branch in fork.branches}
    for name in network.station_names:
        fork = branches.get(name)
        if fork and fork not in order:
            order.append(fork)
        order.append(name)
    return order


def _words(
    counts: dict[str, float], classes_from: set[str], write: Callable[[float], str]
) -> tuple[str, str]:
    """The label of an arrow: empty if all classes take it, and the names of classes if they separate."""
    details = ", ".join(f"{name} {write(count) or 'all'}" for name, count in counts.items())
    all_take_it = set(counts) == classes_from
    if all_take_it and len(set(counts.values())) == 1:
        return write(next(iter(counts.values()))), details
    if len(counts) > _WRITTEN_CLASSES:
        return f"{len(counts)} classes", details
    return ", ".join(f"{name} {write(count)}".strip() for name, count in counts.items()), details


def _percent(share: float) -> str:
    return "" if share == 1 else f"{100 * share:.3g} %"


def _times(count: float) -> str:
    return "" if count == 1 else f"{count:.3g}×"


def _without_repeats(arrows: list[Arrow]) -> list[Arrow]:
    """Keep the first of several arrows between two places."""
    found: dict[tuple[str, str], Arrow] = {}
    for arrow in arrows:
        found.setdefault((arrow.origin, arrow.target), arrow)
    return list(found.values())


def _members(network: Network, joins: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """Places inside each pool, including the branches and the join of a fork."""
    branches = {fork.name: fork.branches for fork in network.forks}
    pools = {}
    for pool in network.pools:
        inside: dict[str, None] = {}
        for name in pool.inside:
            inside[name] = None
            if name in joins:
                inside.update(dict.fromkeys((*branches[name], joins[name])))
        pools[pool.name] = tuple(inside)
    return pools
