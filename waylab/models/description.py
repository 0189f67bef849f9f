"""The parts of a network's description: stations, classes, routes, forks and pools. Checks nothing.

docs/model-format.md describes every field and its JSON form.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from waylab.models.errors import ModelError
from waylab.models.service import Service

# The place where every request begins and ends; no station may have this name.
CLIENT = "client"
DISCIPLINES = ("fcfs", "ps", "priority", "preemptive")
JOINS = ("all", "majority", "first")
WHEN_FULL = ("lose", "block")
NO_TIME = Service(0.0)


@dataclass(frozen=True)
class JobClass:
    """A class of requests: closed, with a population of customers who think between requests, or open, with arrivals.

    A class that customers reach only by switching has neither. Lower `priority` numbers are served first.
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
    `servers` is None for a delay station, where no request waits. `rates[n-1]` is the speed of the whole station with
    n present, in units of one server; the last is used for all larger n. Without rates the speed is min(n, servers).
    `capacity` limits the number present, in service or waiting. `batch` is the number that one server serves at once.
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
    """The probability that a request of `job_class` continues from `origin` to `target`, there as `to_class`."""

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
        """The class of the request on arrival."""
        return self.to_class or self.job_class


@dataclass(frozen=True)
class Fork:
    """One leg to each of `branches` (stations); the request continues when `join` of them are done.

    The legs are sent one after the other, `send_s` apart. Legs beyond those needed are still served.
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
    """Slots that requests occupy while they are inside.

    A request acquires a slot before it enters `inside` (stations and forks) and releases it when it leaves for a place
    outside. Requests wait for a slot first come first served.
    """

    name: str
    slots: int
    inside: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "inside", tuple(self.inside))


@dataclass(frozen=True)
class Description:
    """All parts of a network, not checked; `Network` is the checked one.

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
        """Whether any class has a population."""
        return self.population > 0

    @property
    def has_open(self) -> bool:
        """Whether any class arrives from outside."""
        return any(job_class.arrivals_per_s > 0 for job_class in self.classes)

    def station(self, name: str) -> Station:
        """Find a station."""
        for station in self.stations:
            if station.name == name:
                return station
        raise ModelError("stations", f"there is none with the name {name!r}")

    def job_class(self, name: str) -> JobClass:
        """Find a class."""
        for job_class in self.classes:
            if job_class.name == name:
                return job_class
        raise ModelError("classes", f"there is none with the name {name!r}")

    def fork(self, name: str) -> Fork | None:
        """Find a fork, if there is one of that name."""
        return next((fork for fork in self.forks if fork.name == name), None)
