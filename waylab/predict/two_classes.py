"""The closed network of study A16 with two classes, from the times that our own runs measured.

The network of the study: a delay for the network, M/M/1 for the balancer, for each server M/M/T for its T readers and
M/M/1 for its writer, with the mean times of the stages. GETs and SETs are two fixed populations there, so the share of
SETs that comes out is not the share that clients send. With class switching, every client draws its next operation
(Bolch et al., Queueing Networks and Markov Chains, 7.1). The writer of this proxy sends the next SET before it has the
reply to the last one, so that a SET waits for no other: its station is then a delay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from waylab.errors import LabError
from waylab.fit.observations import TrialObservation, observe, pooled, usable
from waylab.models import JobClass, Network, Service, Station, solve

_OPERATIONS = ("get", "set")
_BALANCER = ("parse", "route", "admit")
_HOLDING = ("send", "backend")


@dataclass(frozen=True)
class TwoClassErrors:
    """Relative differences of a prediction from the measurement: predicted / measured - 1."""

    throughput: float
    get_response: float
    set_response: float


@dataclass(frozen=True)
class TwoClassPrediction:
    """One configuration, predicted by each network, by its name, with the times of a configuration."""

    learned_from: str
    predicted: str
    errors: Mapping[str, TwoClassErrors]

    @property
    def description(self) -> bool:
        """Whether the configuration was described with its own times."""
        return self.learned_from == self.predicted


@dataclass(frozen=True)
class TwoClassMedians:
    """The medians of the absolute differences of one network, over configurations that it had not seen."""

    network: str
    configurations: int
    throughput: float
    get_response: float
    set_response: float


def two_class_medians(directories: Sequence[Path]) -> list[TwoClassMedians]:
    """Return how far each network is from the configurations of runs, predicted with the times of others."""
    unseen = [one for one in two_class_predictions(directories) if not one.description]
    return [
        TwoClassMedians(
            network,
            len(unseen),
            *(
                median(abs(getattr(one.errors[network], name)) for one in unseen)
                for name in ("throughput", "get_response", "set_response")
            ),
        )
        for network in (unseen[0].errors if unseen else ())
    ]


def two_class_predictions(directories: Sequence[Path]) -> list[TwoClassPrediction]:
    """Predict each configuration of runs from its own times, and from those of every configuration like it.

    Only configurations that the network describes: a queue pair for each server, one replica, GETs and SETs.
    """
    try:
        observations = [one for one in pooled(usable(observe(directories))) if _described(one)]
    except LabError:
        return []
    return [
        _prediction(source, one)
        for one in observations
        for source in observations
        if source.settings.others == one.settings.others
    ]


def _prediction(source: TrialObservation, target: TrialObservation) -> TwoClassPrediction:
    errors = {network.name: _errors(network, target) for network in networks(source, target)}
    return TwoClassPrediction(source.configuration, target.configuration, errors)


def _described(one: TrialObservation) -> bool:
    others, settings = dict(one.settings.others), one.settings
    return (
        others.get("proxy.dispatch") == "per-backend"
        and settings.replicas == 1
        and settings.proxies == 1
        and settings.rate_per_s == 0
        and 0 < settings.writes_share < 1
        and all(name in one.stages_s and name in one.responses_s for name in _OPERATIONS)
    )


def networks(source: TrialObservation, target: TrialObservation) -> tuple[Network, Network, Network]:
    """Return the networks by what is corrected, the study's first: times of `source`, sizes of `target`."""
    clients, share = target.settings.in_flight, target.settings.writes_share
    readers = target.settings.readers
    sets = min(max(round(clients * share), 1), clients - 1)
    servers = range(1, target.settings.servers + 1)
    stages = source.stages_s
    # The time of the reply in the proxy is no station of the network, so it counts as time on the way.
    away = {
        name: Service(max(source.responses_s[name] - stages[name]["total"], 0.0) + stages[name]["reply"])
        for name in _OPERATIONS
    }
    balancer = Service(sum(stages["all"][stage] for stage in _BALANCER))
    reading, writing = (Service(sum(stages[name][stage] for stage in _HOLDING)) for name in _OPERATIONS)
    stations = (
        Station("network", away, None),
        Station("balancer", dict.fromkeys(_OPERATIONS, balancer)),
        *(Station(f"readers {server}", {"get": reading}, readers) for server in servers),
        *(Station(f"writer {server}", {"set": writing}) for server in servers),
    )
    visits = {
        operation: {"network": 1.0, "balancer": 1.0}
        | {f"{name} {server}": 1 / len(servers) for server in servers}
        for operation, name in zip(_OPERATIONS, ("readers", "writer"), strict=True)
    }
    drawn = Network(
        (JobClass("get", clients), JobClass("set")),
        stations,
        visits,
        switching={name: {"get": 1 - share, "set": share} for name in _OPERATIONS},
        name="one population",
    )
    pipelined = replace(
        drawn,
        stations=tuple(
            replace(station, servers=None) if "writer" in station.name else station for station in stations
        ),
        name="one population, SETs without a queue",
    )
    fixed = (JobClass("get", clients - sets), JobClass("set", sets))
    return replace(drawn, classes=fixed, switching={}, name="two populations"), drawn, pipelined


def _errors(network: Network, target: TrialObservation) -> TwoClassErrors:
    result = solve(network)
    times = (
        result.response_s[network.class_names.index(name)] / target.responses_s[name] - 1
        for name in _OPERATIONS
    )
    return TwoClassErrors(result.throughput_total_per_s / target.throughput_per_s - 1, *map(float, times))
