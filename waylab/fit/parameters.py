"""The parameters of every model, and the result of a fit. Units are at the end of the names."""

from dataclasses import dataclass, fields
from typing import Generic, TypeVar

from waylab.runfolder.prediction import Parameters


class NotApplicableError(ValueError):
    """The model cannot be applied to this configuration; the message names the assumption that fails."""


@dataclass(frozen=True)
class ModelParameters:
    """The parameters of a model."""

    def as_numbers(self) -> Parameters:
        """Return the parameters that are set, by name."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class BlackBoxParameters(ModelParameters):
    """M/M/1: arrival rate and service rate."""

    arrivals_per_s: float
    services_per_s: float


@dataclass(frozen=True)
class SlotParameters(ModelParameters):
    """M/M/m: arrival rate, service rate of a slot, number of slots, and the time that a request spends outside them."""

    arrivals_per_s: float
    services_per_s: float
    servers: int
    outside_ns: float


@dataclass(frozen=True)
class RepairmanParameters(ModelParameters):
    """Closed M/M/c//N: clients that think, servers, and a delay that takes no server's time."""

    clients: int
    servers: int
    service_s: float
    think_s: float
    delay_s: float | None = None


@dataclass(frozen=True)
class FittedStation:
    """A station of several servers."""

    service_s: float
    servers: int


@dataclass(frozen=True)
class StationParameters(ModelParameters):
    """A closed network of a delay and stations, with the arrivals that were measured for the open form."""

    clients: int
    think_s: float
    arrivals_per_s: float
    delay_s: float
    stations: dict[str, FittedStation]

    def as_numbers(self) -> Parameters:
        """Return the parameters by name, those of a station behind its name."""
        numbers: Parameters = {
            "clients": self.clients,
            "think_s": self.think_s,
            "arrivals_per_s": self.arrivals_per_s,
            "delay_s": self.delay_s,
        }
        for name, station in self.stations.items():
            numbers |= {f"{name}_s": station.service_s, f"{name}_servers": station.servers}
        return numbers


@dataclass(frozen=True)
class HoldingParameters(ModelParameters):
    """A closed chain: clients that think, a delay, and the holding time by the number of connections in use, from 1."""

    clients: int
    think_s: float
    delay_s: float
    slots: int
    holding_s: list[float]


P_co = TypeVar("P_co", bound=ModelParameters, covariant=True)


@dataclass(frozen=True)
class Fit(Generic[P_co]):
    """The parameters of a model, and where they come from."""

    parameters: P_co
    source: str
