"""The rules of a description. Each failure names the field, as in the file, and the rule."""

import math
from numbers import Integral, Real

from waylab.models.description import CLIENT, DISCIPLINES, JOINS, WHEN_FULL, Description, JobClass, Station
from waylab.models.errors import ModelError

_SUM_TOLERANCE = 1e-9


def check_network(network: Description) -> None:
    """Check every rule that needs no solver.

    Raises:
        ModelError: naming the field and the rule.
    """
    _names("classes", network.class_names)
    _names("stations, forks and pools", network.node_names + tuple(pool.name for pool in network.pools))
    for index, job_class in enumerate(network.classes):
        _class(f"classes[{index}] {job_class.name!r}", job_class)
    for index, station in enumerate(network.stations):
        _station(f"stations[{index}] {station.name!r}", station, network.class_names)
    _forks(network)
    _pools(network)
    if bool(network.visits) == bool(network.routes):
        raise ModelError("visits", "give either visits or routes, one of the two")
    _visits(network)
    _routes(network)
    _switching(network)
    _used(network)


def _names(where: str, names: tuple[str, ...]) -> None:
    if not names:
        raise ModelError(where, "needs at least one entry")
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name or name == CLIENT:
            raise ModelError(where, f"{name!r} is not a valid name; {CLIENT!r} is reserved")
        if name in seen:
            raise ModelError(where, f"the name {name!r} is used twice")
        seen.add(name)


def _class(where: str, job_class: JobClass) -> None:
    if not _whole(job_class.population, 0):
        raise ModelError(f"{where}.population", f"must be a whole number >= 0, not {job_class.population}")
    _at_least_zero(f"{where}.arrivals_per_s", job_class.arrivals_per_s)
    _at_least_zero(f"{where}.arrival_squared_variation", job_class.arrival_squared_variation)
    if job_class.population and job_class.arrivals_per_s:
        raise ModelError(where, "has a population and arrivals; it is either closed or open")


def _station(where: str, station: Station, classes: tuple[str, ...]) -> None:
    for name in station.service:
        if name not in classes:
            raise ModelError(f"{where}.service", f"there is no class {name!r}")
    if station.servers is not None and not _whole(station.servers, 1):
        raise ModelError(
            f"{where}.servers", f"must be a whole number >= 1 or infinite, not {station.servers}"
        )
    if station.discipline not in DISCIPLINES:
        raise ModelError(f"{where}.discipline", f"{station.discipline!r} is none of {', '.join(DISCIPLINES)}")
    for index, rate in enumerate(station.rates):
        if not (math.isfinite(rate) and rate > 0):
            raise ModelError(f"{where}.rates[{index}]", f"must be a finite number > 0, not {rate}")
    if station.rates and station.servers != 1:
        raise ModelError(f"{where}.rates", "replaces servers; leave servers at 1")
    if station.capacity is not None and not _whole(station.capacity, 1):
        raise ModelError(f"{where}.capacity", f"must be a whole number >= 1, not {station.capacity}")
    if station.capacity is not None and station.servers is not None and station.capacity < station.servers:
        raise ModelError(f"{where}.capacity", f"includes requests in service: at least {station.servers}")
    if station.when_full not in WHEN_FULL:
        raise ModelError(f"{where}.when_full", f"{station.when_full!r} is none of {', '.join(WHEN_FULL)}")
    if not _whole(station.batch, 1):
        raise ModelError(f"{where}.batch", f"must be a whole number >= 1, not {station.batch}")
    if station.batch > 1 and (station.discipline != "fcfs" or station.rates or station.servers is None):
        raise ModelError(f"{where}.batch", "needs discipline fcfs, a number of servers and no rates")


def _forks(network: Description) -> None:
    for index, fork in enumerate(network.forks):
        where = f"forks[{index}] {fork.name!r}"
        if fork.join not in JOINS:
            raise ModelError(f"{where}.join", f"{fork.join!r} is none of {', '.join(JOINS)}")
        if not fork.branches or len(set(fork.branches)) != len(fork.branches):
            raise ModelError(f"{where}.branches", "must name at least one station, each once")
        for branch in fork.branches:
            if branch not in network.station_names:
                raise ModelError(f"{where}.branches", f"there is no station {branch!r}")
        _at_least_zero(f"{where}.send_s", fork.send_s)


def _pools(network: Description) -> None:
    taken: set[str] = set()
    for index, pool in enumerate(network.pools):
        where = f"pools[{index}] {pool.name!r}"
        if not _whole(pool.slots, 1):
            raise ModelError(f"{where}.slots", f"must be a whole number >= 1, not {pool.slots}")
        if not pool.inside:
            raise ModelError(f"{where}.inside", "must name at least one station or fork")
        for name in pool.inside:
            if name not in network.node_names:
                raise ModelError(f"{where}.inside", f"there is no station or fork {name!r}")
            if name in taken:
                raise ModelError(f"{where}.inside", f"{name!r} is already inside a pool")
            taken.add(name)


def _visits(network: Description) -> None:
    for name, visits in network.visits.items():
        if name not in network.class_names:
            raise ModelError(f"visits.{name}", "there is no such class")
        if not any(count for count in visits.values()):
            raise ModelError(f"visits.{name}", "has no visits")
        for node, count in visits.items():
            if node not in network.node_names:
                raise ModelError(f"visits.{name}.{node}", "there is no such station or fork")
            _at_least_zero(f"visits.{name}.{node}", count)
            if count:
                _served(network, f"visits.{name}.{node}", name, node)


def _routes(network: Description) -> None:
    sums: dict[tuple[str, str], float] = {}
    for index, route in enumerate(network.routes):
        where = f"routes[{index}]"
        for name in (route.job_class, route.class_after):
            if name not in network.class_names:
                raise ModelError(f"{where}.class", f"there is no class {name!r}")
        for name in (route.origin, route.target):
            if name not in network.node_names and name != CLIENT:
                raise ModelError(where, f"there is no station or fork {name!r}")
        if not (math.isfinite(route.probability) and 0 < route.probability <= 1):
            raise ModelError(
                f"{where}.probability", f"must be above 0 and at most 1, not {route.probability}"
            )
        if route.target != CLIENT:
            _served(network, where, route.class_after, route.target)
        elif route.origin == CLIENT:
            raise ModelError(where, "leads from the client to the client")
        key = (route.job_class, route.origin)
        sums[key] = sums.get(key, 0.0) + route.probability
    for (name, origin), total in sums.items():
        if abs(total - 1) > _SUM_TOLERANCE:
            raise ModelError(f"routes of {name!r} from {origin!r}", f"must sum to 1, not {total:.12g}")
    for index, route in enumerate(network.routes):
        if route.target != CLIENT and (route.class_after, route.target) not in sums:
            raise ModelError(
                f"routes[{index}]",
                f"leads {route.class_after!r} to {route.target!r}, which no route leaves",
            )


def _served(network: Description, where: str, class_name: str, node: str) -> None:
    """Every class that visits a station, directly or as a leg, needs a service time there."""
    fork = network.fork(node)
    for name in fork.branches if fork else (node,):
        if class_name not in network.station(name).service:
            raise ModelError(where, f"station {name!r} has no service time for class {class_name!r}")


def _switching(network: Description) -> None:
    for name, row in network.switching.items():
        if name not in network.class_names:
            raise ModelError(f"switching.{name}", "there is no such class")
        for other, probability in row.items():
            if other not in network.class_names:
                raise ModelError(f"switching.{name}.{other}", "there is no such class")
            _at_least_zero(f"switching.{name}.{other}", probability)
        if abs(math.fsum(row.values()) - 1) > _SUM_TOLERANCE:
            raise ModelError(f"switching.{name}", f"must sum to 1, not {math.fsum(row.values()):.12g}")
        if network.job_class(name).arrivals_per_s:
            raise ModelError(f"switching.{name}", "is an open class; its requests do not return")


def _used(network: Description) -> None:
    """A class in which no request ever is, or a station that no request visits, is a mistake."""
    starts = _starting_classes(network)
    if not starts:
        raise ModelError("classes", "no class has customers: give a population or arrivals_per_s")
    begins = set(network.visits) | {route.job_class for route in network.routes if route.origin == CLIENT}
    for name in sorted(starts):
        if name not in begins:
            raise ModelError(
                f"class {name!r}", "makes requests, but has no visits and no route from the client"
            )
    reached, places = _reachable(network, starts)
    for name in network.class_names:
        if name not in reached:
            job_class = network.job_class(name)
            what = "population" if not job_class.arrivals_per_s else "arrivals_per_s"
            raise ModelError(f"class {name!r}.{what}", "is zero, and no customer ever switches to this class")
    for node in network.node_names:
        if node not in places:
            raise ModelError(f"station or fork {node!r}", "no request visits it")


def _starting_classes(network: Description) -> set[str]:
    """Classes in which requests begin: by arrival, by population, or as the next request of a closed customer."""
    opened = {job_class.name for job_class in network.classes if job_class.arrivals_per_s > 0}
    closed = {job_class.name for job_class in network.classes if job_class.population}
    while True:
        more = set()
        for name in _ends(network, closed):
            row = network.switching.get(name, {name: 1.0})
            more |= {other for other, probability in row.items() if probability > 0}
        if more <= closed:
            return opened | closed
        closed |= more


def _ends(network: Description, starts: set[str]) -> set[str]:
    """Classes in which requests that begin in `starts` end."""
    if network.visits:
        return starts
    passed = _passed(network, starts)
    return {
        route.class_after
        for route in network.routes
        if route.target == CLIENT and (route.job_class, route.origin) in passed
    }


def _reachable(network: Description, starts: set[str]) -> tuple[set[str], set[str]]:
    """Classes and nodes that requests beginning in `starts` reach, including legs of forks."""
    if network.visits:
        classes = set(starts)
        visited = [network.visits.get(name, {}).items() for name in starts]
        places = {node for counts in visited for node, count in counts if count > 0}
    else:
        passed = _passed(network, starts)
        classes = {name for name, _ in passed}
        places = {node for _, node in passed} - {CLIENT}
    for fork in network.forks:
        if fork.name in places:
            places |= set(fork.branches)
    return classes, places


def _passed(network: Description, starts: set[str]) -> set[tuple[str, str]]:
    """Pairs of class and place that requests beginning in `starts` leave from."""
    waiting = [(name, CLIENT) for name in starts]
    seen = set(waiting)
    while waiting:
        here = waiting.pop()
        for route in network.routes:
            there = (route.class_after, route.target)
            if (route.job_class, route.origin) == here and route.target != CLIENT and there not in seen:
                seen.add(there)
                waiting.append(there)
    return seen


def _at_least_zero(where: str, number: float) -> None:
    if isinstance(number, bool) or not isinstance(number, Real) or not math.isfinite(number) or number < 0:
        raise ModelError(where, f"must be a finite number >= 0, not {number}")


def _whole(number: object, least: int) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool) and int(number) >= least
