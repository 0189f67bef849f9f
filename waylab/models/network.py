"""The one description of a model: stations, classes, routes, forks and pools. Every solver takes it.

Frozen and checked when it is made; knows no solver. docs/model-format.md describes it, and its JSON form.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from waylab.models.checks import check_network
from waylab.models.errors import ModelError
from waylab.models.service import Service

NO_TIME = Service(0.0)


@dataclass(frozen=True)
class JobClass:
    """A kind of request: closed with a population of customers who think between requests, or open with arrivals.

    A class that customers only reach by switching has neither. Lower `priority` numbers go first.
    """

    name: str
    population: int = 0
    think: Service = NO_TIME
    arrivals_per_s: float = 0.0
    arrival_squared_variation: float = 1.0
    priority: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.think, Service):
            object.__setattr__(self, "think", Service(float(self.think)))


@dataclass(frozen=True)
class Station:
    """Servers and their queue.

    `service` maps a class to its service time for one visit; a plain number is the mean of an exponential time.
    `servers` is None for a delay station, where nobody waits. `rates[n-1]` is the speed of the whole station with n
    present, in units of one server; the last holds for all larger n; without it the speed is min(n, servers).
    `capacity` limits who is present, in service or waiting; `batch` is how many one server serves at once.
    """

    name: str
    service: Mapping[str, Service]
    servers: int | None = 1
    discipline: str = "fcfs"
    rates: tuple[float, ...] = ()
    capacity: int | None = None
    when_full: str = "lose"
    batch: int = 1

    def __post_init__(self) -> None:
        times = {
            name: time if isinstance(time, Service) else Service(float(time))
            for name, time in self.service.items()
        }
        object.__setattr__(self, "service", times)
        object.__setattr__(self, "rates", tuple(float(rate) for rate in self.rates))

    @property
    def is_delay(self) -> bool:
        """Whether there are as many servers as requests."""
        return self.servers is None and not self.rates

    def rate(self, present: int) -> float:
        """Speed with `present` >= 1 requests, in units of one server."""
        if self.rates:
            return self.rates[min(present, len(self.rates)) - 1]
        return float(present if self.servers is None else min(present, self.servers))


@dataclass(frozen=True)
class Route:
    """With this probability a request of `job_class` goes on from `origin` to `target` (there as `to_class`)."""

    job_class: str
    origin: str
    target: str
    probability: float = 1.0
    to_class: str | None = None

    def __post_init__(self) -> None:
        if self.to_class is None:
            object.__setattr__(self, "to_class", self.job_class)

    @property
    def class_after(self) -> str:
        """The class with which it arrives."""
        return self.to_class or self.job_class


@dataclass(frozen=True)
class Fork:
    """One leg to each of `branches` (stations) at once; the request goes on when `join` of them are done.

    The legs are sent one after the other, `send_s` apart. Legs that are not waited for are still served.
    """

    name: str
    branches: tuple[str, ...]
    join: str = "all"
    send_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "branches", tuple(self.branches))

    @property
    def needed(self) -> int:
        """How many legs must be done."""
        return {"all": len(self.branches), "majority": len(self.branches) // 2 + 1, "first": 1}[self.join]


@dataclass(frozen=True)
class Pool:
    """Slots that are held.

    A request takes one before it enters `inside` (stations and forks) and keeps it until it leaves for a place
    outside. While none is free it waits, first come first served.
    """

    name: str
    slots: int
    inside: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "inside", tuple(self.inside))


@dataclass(frozen=True)
class Network:
    """A queueing network. Times in seconds, rates per second.

    Either `visits` (class to station or fork to mean visits per request) or `routes`. With visits alone a request
    takes the stations in their order. `switching[a][b]` is the probability that a customer whose request ended in
    class a makes the next one in class b; without it the class stays.
    """

    classes: tuple[JobClass, ...]
    stations: tuple[Station, ...]
    visits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    switching: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    forks: tuple[Fork, ...] = ()
    pools: tuple[Pool, ...] = ()
    name: str = "model"

    def __post_init__(self) -> None:
        for part in ("classes", "stations", "routes", "forks", "pools"):
            object.__setattr__(self, part, tuple(getattr(self, part)))
        check_network(self)

    @property
    def class_names(self) -> tuple[str, ...]:
        """In the order of every result's class axis."""
        return tuple(job_class.name for job_class in self.classes)

    @property
    def station_names(self) -> tuple[str, ...]:
        """In the order of every result's station axis."""
        return tuple(station.name for station in self.stations)

    @property
    def node_names(self) -> tuple[str, ...]:
        """Where a request can be: stations, then forks."""
        return self.station_names + tuple(fork.name for fork in self.forks)

    @property
    def population(self) -> int:
        """Customers of all closed classes."""
        return sum(job_class.population for job_class in self.classes)

    @property
    def has_closed(self) -> bool:
        """Whether any customer thinks and comes again."""
        return self.population > 0

    @property
    def has_open(self) -> bool:
        """Whether anything arrives from outside."""
        return any(job_class.arrivals_per_s > 0 for job_class in self.classes)

    def station(self, name: str) -> Station:
        """Find a station."""
        for station in self.stations:
            if station.name == name:
                return station
        raise ModelError("stations", f"there is none called {name!r}")

    def job_class(self, name: str) -> JobClass:
        """Find a class."""
        for job_class in self.classes:
            if job_class.name == name:
                return job_class
        raise ModelError("classes", f"there is none called {name!r}")

    def fork(self, name: str) -> Fork | None:
        """Find a fork, if there is one of that name."""
        return next((fork for fork in self.forks if fork.name == name), None)

    def with_class(self, name: str, **changes: Any) -> "Network":
        """Return a copy with another population, think time or arrival rate of one class."""
        self.job_class(name)
        classes = tuple(
            replace(job_class, **changes) if job_class.name == name else job_class
            for job_class in self.classes
        )
        return replace(self, classes=classes)

    def with_station(self, name: str, **changes: Any) -> "Network":
        """Return a copy with one station changed."""
        self.station(name)
        stations = tuple(
            replace(station, **changes) if station.name == name else station for station in self.stations
        )
        return replace(self, stations=stations)


def closed_network(
    demands_s: Mapping[str, float],
    population: int,
    think_s: float = 0.0,
    servers: Mapping[str, int | None] | None = None,
    name: str = "closed",
) -> Network:
    """Make a closed network of one class from demands (visits times service time) and numbers of servers."""
    servers = servers or {}
    return Network(
        classes=(JobClass("request", population, Service(think_s)),),
        stations=_stations(demands_s, servers),
        visits={"request": dict.fromkeys(demands_s, 1.0)},
        name=name,
    )


def open_network(
    demands_s: Mapping[str, float],
    arrivals_per_s: float,
    servers: Mapping[str, int | None] | None = None,
    name: str = "open",
) -> Network:
    """Make an open network of one class from demands and numbers of servers."""
    return Network(
        classes=(JobClass("request", arrivals_per_s=arrivals_per_s),),
        stations=_stations(demands_s, servers or {}),
        visits={"request": dict.fromkeys(demands_s, 1.0)},
        name=name,
    )


def _stations(demands_s: Mapping[str, float], servers: Mapping[str, int | None]) -> Iterable[Station]:
    unknown = sorted(set(servers) - set(demands_s))
    if unknown:
        raise ModelError("servers", f"{unknown[0]!r} has no demand")
    return tuple(
        Station(name, {"request": Service(demand_s)}, servers.get(name, 1))
        for name, demand_s in demands_s.items()
    )
