"""Solves one network for several values of one parameter. Knows no particular solver."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Real

from waylab.models.errors import ModelError, UnstableError
from waylab.models.network import Network
from waylab.models.result import Result
from waylab.models.service import Service
from waylab.models.solve import solve

PARAMETERS = (
    "clients",
    "CLASS.population",
    "CLASS.arrivals_per_s",
    "CLASS.think_s",
    "STATION.servers",
    "STATION.service",
    "POOL.slots",
)
_OF_CLASS = ("population", "arrivals_per_s", "think_s")
_OF_STATION = ("servers", "service")


def sweep(
    network: Network,
    parameter: str,
    values: Sequence[float],
    method: str = "auto",
    report: Callable[[int], None] | None = None,
) -> list[Result]:
    """Solve a network for each value of one parameter, with everything else as it is.

    `parameter` is one of PARAMETERS, with the name of a class, station or pool; see `changed`. `report` is called with
    the number of values that are done.

    Raises:
        ModelError: for an unknown parameter, an invalid value, or an error of `solve`; the message begins with the
            parameter and its value.
    """
    if not len(values):
        raise ModelError(parameter, "needs at least one value")
    results = []
    for done, value in enumerate(values, 1):
        try:
            results.append(solve(changed(network, parameter, value), method))
        except UnstableError as error:
            raise UnstableError(f"{parameter} = {value:g}: {error.where}", error.utilisation) from None
        if report:
            report(done)
    return results


def changed(network: Network, parameter: str, value: float) -> Network:
    """Return a network with one parameter changed.

    `clients`: the total population, divided among the classes in their present proportions (whole numbers, at least
    one for each class that has a population). `CLASS.population`, `CLASS.arrivals_per_s` and `CLASS.think_s` replace
    that field of a class. `STATION.servers` and `POOL.slots` replace their number. `STATION.service` is a factor on
    the service times of all classes at a station.

    Raises:
        ModelError: for an unknown name, or a value that breaks a rule of the description.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ModelError(parameter, f"must be a number, not {value!r}")
    if parameter == "clients":
        return _with_clients(network, _whole(parameter, value))
    name, _, what = parameter.rpartition(".")
    if name in network.class_names and what in _OF_CLASS:
        return _with_class(network, name, what, value)
    if name in network.station_names and what in _OF_STATION:
        if what == "servers":
            return _with_servers(network, name, _whole(parameter, value))
        return with_service_factor(network, name, float(value))
    if what == "slots" and any(pool.name == name for pool in network.pools):
        return with_slots(network, name, _whole(parameter, value))
    raise ModelError("parameter", f"{parameter!r} is none of {', '.join(PARAMETERS)} of this network")


def with_slots(network: Network, name: str, slots: int) -> Network:
    """Return a network with another number of slots in a pool."""
    pools = tuple(replace(pool, slots=slots) if pool.name == name else pool for pool in network.pools)
    return replace(network, pools=pools)


def with_service_factor(network: Network, station: str, factor: float) -> Network:
    """Return a network with all service times of a station multiplied."""
    if not factor > 0:
        raise ModelError(f"{station}.service", f"is a factor above 0, not {factor:g}")
    times = {
        name: scaled_to(time, time.mean_s * factor) for name, time in network.station(station).service.items()
    }
    return network.with_station(station, service=times)


def scaled_to(time: Service, mean_s: float) -> Service:
    """Return a time with the same distribution and another mean; a time of zero becomes exponential."""
    if time.distribution == "empirical" and time.mean_s > 0:
        return Service.empirical(tuple(value * (mean_s / time.mean_s) for value in time.values_s))
    return replace(time, mean_s=mean_s) if time.distribution != "empirical" else Service(mean_s)


def _with_class(network: Network, name: str, what: str, value: float) -> Network:
    if what == "population":
        return network.with_class(name, population=_whole(f"{name}.population", value))
    if what == "arrivals_per_s":
        return network.with_class(name, arrivals_per_s=float(value))
    return network.with_class(name, think=scaled_to(network.job_class(name).think, float(value)))


def _with_servers(network: Network, name: str, servers: int) -> Network:
    station = network.station(name)
    if station.rates:
        raise ModelError(f"{name}.servers", "the station has rates, which replace servers")
    if station.servers is None:
        raise ModelError(f"{name}.servers", "the station is a delay, where no request waits")
    return network.with_station(name, servers=servers)


def _with_clients(network: Network, clients: int) -> Network:
    total = network.population
    if not total:
        raise ModelError("clients", "the network is open: no class has a population")
    populated = [index for index, part in enumerate(network.classes) if part.population]
    if clients < len(populated):
        raise ModelError(
            "clients", f"must be at least {len(populated)}, one for each class with a population"
        )
    shares = [part.population * clients // total for part in network.classes]
    for index in populated:
        shares[index] = max(1, shares[index])
    while sum(shares) != clients:
        # The class that is furthest from its proportion changes by one customer; every class keeps at least one.
        step = 1 if sum(shares) < clients else -1
        able = [index for index in populated if shares[index] + step >= 1]
        index = max(able, key=lambda i: step * (network.classes[i].population * clients - shares[i] * total))
        shares[index] += step
    classes = tuple(
        replace(part, population=share) for part, share in zip(network.classes, shares, strict=True)
    )
    return replace(network, classes=classes)


def _whole(parameter: str, value: float) -> int:
    if not float(value).is_integer():
        raise ModelError(parameter, f"must be a whole number, not {value:g}")
    return int(value)
