"""The one description of a model, `Network`: every solver takes it. Frozen, and checked when it is made.

Knows no solver. docs/model-format.md describes it and its JSON form.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from waylab.models.description import Description, JobClass, Station
from waylab.models.errors import ModelError
from waylab.models.network_checks import check_network
from waylab.models.service import Service


@dataclass(frozen=True)
class Network(Description):
    """A queueing network. Times in seconds, rates per second; the fields are those of `Description`.

    Raises:
        ModelError: naming the field and the rule that it breaks.
    """

    def __post_init__(self) -> None:
        for part in ("classes", "stations", "routes", "forks", "pools"):
            object.__setattr__(self, part, tuple(getattr(self, part)))
        check_network(self)

    def with_class(self, name: str, **changes: Any) -> "Network":
        """Return a network with another population, think time or arrival rate of one class."""
        self.job_class(name)
        classes = tuple(
            replace(job_class, **changes) if job_class.name == name else job_class
            for job_class in self.classes
        )
        return replace(self, classes=classes)

    def with_station(self, name: str, **changes: Any) -> "Network":
        """Return a network with one station changed."""
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


def _stations(demands_s: Mapping[str, float], servers: Mapping[str, int | None]) -> tuple[Station, ...]:
    unknown = sorted(set(servers) - set(demands_s))
    if unknown:
        raise ModelError("servers", f"{unknown[0]!r} has no demand")
    return tuple(
        Station(name, {"request": Service(demand_s)}, servers.get(name, 1))
        for name, demand_s in demands_s.items()
    )
