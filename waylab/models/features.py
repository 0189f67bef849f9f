"""The assumptions that a description breaks; every solver checks them first."""

from collections.abc import Callable, Iterable

from waylab.models.description import Station
from waylab.models.errors import AssumptionError
from waylab.models.network import Network
from waylab.models.traffic import traffic

# Feature: the assumption that it breaks. A solver names the features that it can handle.
ASSUMPTIONS = {
    "closed": "that all requests arrive from outside",
    "open": "a fixed population of customers",
    "several chains": "one chain of classes",
    "several classes": "one class",
    "class switching": "that customers keep their class",
    "delay": "that every station is a queue",
    "several servers": "one server at each station",
    "rates": "that a station's speed does not depend on the number present",
    "priorities": "that no class has priority over another",
    "finite capacity": "room for every request",
    "bulk service": "that a server serves one request at a time",
    "general service": "exponential service at first-come-first-served stations",
    "class-dependent service": "the same service time for all classes at a first-come-first-served station",
    "general arrivals": "Poisson arrivals",
    "forks": "that a request is in one place at a time",
    "pools": "that a request occupies no slot while it is elsewhere",
}


def features(network: Network) -> dict[str, str]:
    """List the features that a network has, each with the fact that shows it."""
    found: dict[str, str] = {}

    def note(feature: str, fact: str) -> None:
        found.setdefault(feature, fact)

    for job_class in network.classes:
        if job_class.population:
            note("closed", f"class {job_class.name!r} has a population of {job_class.population}")
        if job_class.arrivals_per_s:
            note("open", f"class {job_class.name!r} arrives from outside")
            if job_class.arrival_squared_variation != 1:
                note(
                    "general arrivals",
                    f"class {job_class.name!r} has arrivals of squared variation "
                    f"{job_class.arrival_squared_variation:g}",
                )
    if len(network.classes) > 1:
        note("several classes", f"there are {len(network.classes)}")
    chains = traffic(network).chains
    if len(chains) > 1:
        note("several chains", f"there are {len(chains)}")
    if any(len(chain.classes) > 1 for chain in chains):
        note("class switching", "customers switch between classes")
    for station in network.stations:
        _station(station, note)
    for fork in network.forks:
        note("forks", f"{fork.name!r} forks")
    for pool in network.pools:
        note("pools", f"requests occupy slots of {pool.name!r}")
    return found


def _station(station: Station, note: Callable[[str, str], None]) -> None:
    name = f"station {station.name!r}"
    if station.is_delay:
        note("delay", f"{name} is a delay")
    elif station.rates:
        note("rates", f"{name} has rates")
    elif station.servers is not None and station.servers > 1:
        note("several servers", f"{name} has {station.servers}")
    if station.discipline in ("priority", "preemptive"):
        note("priorities", f"{name} is served by priority")
    if station.capacity is not None:
        note("finite capacity", f"{name} has room for {station.capacity}")
    if station.batch > 1:
        note("bulk service", f"a server of {name} serves {station.batch} at once")
    if station.is_delay or station.discipline == "ps":
        # Insensitive: only the means matter (Baskett, Chandy, Muntz and Palacios, 1975).
        return
    for class_name, time in station.service.items():
        if not time.is_exponential:
            note("general service", f"{name} has {time.distribution} service of {class_name!r}")
    if len({time.mean_s for time in station.service.values()}) > 1:
        note("class-dependent service", f"{name} is first come first served with different service times")


def require(network: Network, solver: str, allowed: Iterable[str]) -> None:
    """Check that a solver can handle every feature.

    Raises:
        AssumptionError: naming the assumption that fails and the fact that breaks it.
    """
    allowed = set(allowed)
    for feature, fact in features(network).items():
        if feature not in allowed:
            raise AssumptionError(solver, ASSUMPTIONS[feature], fact)
