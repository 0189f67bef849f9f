"""The closed network of study A16 with two classes, from the times that our own runs measured.

The network of the study: a delay for the network, M/M/1 for the balancer, for each server M/M/T for its T readers and
M/M/1 for its writer, with the mean times of the stages. GETs and SETs are two fixed populations there, so the share of
SETs that comes out is not the share that clients send. With class switching, every client draws its next operation
(Bolch et al., Queueing Networks and Markov Chains, 7.1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
    """One configuration, predicted by both networks with the times of a configuration."""

    learned_from: str
    predicted: str
    # As in the study: two fixed populations.
    fixed: TwoClassErrors
    # Every client draws its next operation.
    drawn: TwoClassErrors


def two_class_predictions(directories: Sequence[Path]) -> list[TwoClassPrediction]:
    """Predict each configuration of runs from its own times, and from those of the next configuration like it.

    Only configurations that the network describes: a queue pair for each server, one replica, GETs and SETs.
    """
    try:
        observations = [one for one in pooled(usable(observe(directories))) if _described(one)]
    except LabError:
        return []
    found = []
    for index, one in enumerate(observations):
        others = [*observations[index + 1 :], *observations[:index]]
        alike = [other for other in others if other.settings.others == one.settings.others]
        found += [_prediction(source, one) for source in (one, *alike[:1])]
    return found


def _prediction(source: TrialObservation, target: TrialObservation) -> TwoClassPrediction:
    fixed, drawn = (_errors(network, target) for network in networks(source, target))
    return TwoClassPrediction(source.configuration, target.configuration, fixed, drawn)


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


def networks(source: TrialObservation, target: TrialObservation) -> tuple[Network, Network]:
    """Return the networks with fixed populations and with drawn operations: times of `source`, sizes of `target`."""
    clients, share = target.settings.in_flight, target.settings.writes_share
    readers = int(dict(target.settings.others)["proxy.readers"])
    sets = min(max(round(clients * share), 1), clients - 1)
    servers = range(1, target.settings.servers + 1)
    stages = source.stages_s
    away = {name: Service(max(source.responses_s[name] - stages[name]["total"], 0.0)) for name in _OPERATIONS}
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
    next_one = {"get": 1 - share, "set": share}
    return (
        Network(
            (JobClass("get", clients - sets), JobClass("set", sets)), stations, visits, name="two populations"
        ),
        Network(
            (JobClass("get", clients), JobClass("set")),
            stations,
            visits,
            switching=dict.fromkeys(_OPERATIONS, next_one),
            name="one population",
        ),
    )


def _errors(network: Network, target: TrialObservation) -> TwoClassErrors:
    result = solve(network)
    times = (
        result.response_s[network.class_names.index(name)] / target.responses_s[name] - 1
        for name in _OPERATIONS
    )
    return TwoClassErrors(result.throughput_total_per_s / target.throughput_per_s - 1, *map(float, times))
