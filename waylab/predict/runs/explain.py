"""Where the time of a configuration goes, what saturates first, and what one more of each part would bring."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from waylab.fit.interface import Estimate, ModelPrediction, RefusedFitError
from waylab.fit.layered import FittedLayered
from waylab.fit.layered.network import ENDLESS
from waylab.fit.observations import ModelSettings, TrialObservation
from waylab.fit.observations.hosts import MACHINE, link_name
from waylab.predict.runs.chosen import FittedChosen

_DRAWS = 200
_KNEE = 0.9
_CLIENTS_MAX = 512
# A further one of each, by the name under which users set it.
_PARTS = {
    "load_threads": "load thread",
    "proxies": "proxy",
    "loops": "event loop",
    "slots": "worker",
    "readers": "reader for each server",
    "servers": "server",
    "services": "service",
}


@dataclass(frozen=True)
class TimePart:
    """Time of a request in one part, in seconds, and its share of the mean response time."""

    name: str
    time_s: float
    share: float


@dataclass(frozen=True)
class PartLimit:
    """The throughput that one part could serve at most if all others were endless."""

    name: str
    throughput_per_s: float


@dataclass(frozen=True)
class Gain:
    """Throughput and mean response time with one more of a part, as ratios to those without; 90 % intervals."""

    change: str
    throughput: Estimate
    response: Estimate


@dataclass(frozen=True)
class Explanation:
    """What the layered model says of a configuration."""

    prediction: ModelPrediction
    parts: Sequence[TimePart]
    limits: Sequence[PartLimit]
    # Smallest number of clients with 90 % of the largest throughput; None in an open loop, or if it lies too far.
    knee_clients: int | None
    gains: Sequence[Gain]
    # Mean stage times, where the configuration was measured with stamps.
    stages_s: dict[str, float]


def explain_run(fitted: FittedChosen, settings: ModelSettings) -> Explanation:
    """Explain one configuration by the layered model.

    Raises:
        RefusedFitError: when the layered model could not be fitted, or refuses the settings.
    """
    layered = fitted.layered
    if layered is None:
        raise RefusedFitError(fitted.fits.reasons.get("layered", "the layered model could not be fitted"))
    prediction = fitted.predict(settings)
    return Explanation(
        prediction,
        _parts(layered, settings, prediction.response_s.value),
        _limits(layered, settings),
        _knee(layered, settings),
        _gains(layered, settings),
        _stages(fitted.observations, settings),
    )


def _parts(layered: FittedLayered, settings: ModelSettings, mean_s: float) -> list[TimePart]:
    """Shares of the layered model, in times that add up to the predicted mean response time."""
    network = layered.network(settings)
    found = layered.solve([settings])
    rate, response_s = float(found.throughput_per_s[0]), float(found.response_s[0])
    waiting_s = float(found.waiting[0]) / rate
    times = {
        one.name: one.fan * float(found.present[0, place]) / rate - (1 - one.counted) * found.cpu_s[0, place]
        for place, one in enumerate(network.centres)
    }
    if waiting_s:
        times["waiting for a slot"] = waiting_s
    times["outside of all programs"] = max(0.0, response_s - sum(times.values()))
    total = sum(times.values())
    parts = [TimePart(name, mean_s * time_s / total, time_s / total) for name, time_s in times.items()]
    return sorted(parts, key=lambda one: -one.time_s)


def _limits(layered: FittedLayered, settings: ModelSettings) -> list[PartLimit]:
    network = layered.network(settings)
    # Work is as expensive as with this load: how much is done together depends on it.
    work_s = layered.solve([settings]).cpu_s[0].tolist()
    found = [
        PartLimit(one.name, one.queues / time_s)
        for one, time_s in zip(network.centres, work_s, strict=True)
        if time_s > 0 and one.queues < ENDLESS
    ]
    for host, _ in network.cores:
        total_s = sum(time_s for one, time_s in zip(network.centres, work_s, strict=True) if one.host == host)
        if total_s > 0:
            found.append(PartLimit(f"CPU of {host}", network.cores_of(host) / total_s))
    return sorted(found, key=lambda one: one.throughput_per_s)


def _knee(layered: FittedLayered, settings: ModelSettings) -> int | None:
    if settings.rate_per_s:
        return None
    counts = [1]
    while counts[-1] < _CLIENTS_MAX:
        counts.append(max(counts[-1] + 1, round(counts[-1] * 1.25)))
    rates = layered.solve([replace(settings, clients=count) for count in counts]).throughput_per_s
    enough = np.flatnonzero(rates >= _KNEE * rates.max())
    return (
        counts[int(enough[0])]
        if rates[-1] < 1.1 * rates[len(rates) // 2] or enough[0] < len(counts) - 3
        else None
    )


def _gains(layered: FittedLayered, settings: ModelSettings) -> list[Gain]:
    before = layered.draws(settings, _DRAWS)
    found = []
    for name, title in _PARTS.items():
        count = getattr(settings, name)
        if count:
            after = layered.draws(replace(settings, **{name: count + 1}), _DRAWS)
            if after.steady.all() and before.steady.all():
                found.append(
                    Gain(
                        f"one more {title} ({count + 1})",
                        _ratio(after.throughput_per_s / before.throughput_per_s),
                        _ratio(after.response_s / before.response_s),
                    )
                )
    for title, bigger in _bigger_hosts(settings):
        after = layered.draws(bigger, _DRAWS)
        rates, times = after.throughput_per_s / before.throughput_per_s, after.response_s / before.response_s
        found.append(Gain(title, _ratio(rates), _ratio(times)))
    key = (lambda one: one.response.value) if settings.rate_per_s else (lambda one: -one.throughput.value)
    return sorted(found, key=key)


def _bigger_hosts(settings: ModelSettings) -> list[tuple[str, ModelSettings]]:
    """Changes of the cores and links of one group of hosts each.

    An emulated host may have a share of a core, so that a whole one more would be another machine.
    """
    found = []
    used = {group for _, group in settings.hosts}
    for group, cores in settings.cores:
        if group in used:
            title, more = (
                ("one more core", cores + 1)
                if group == MACHINE
                else (f"twice the cores of {group}", 2 * cores)
            )
            machines = tuple((name, more if name == group else number) for name, number in settings.cores)
            found.append((title, replace(settings, cores=machines)))
    for faster in settings.links:
        links = tuple((*one[:2], 2 * one[2] if one == faster else one[2]) for one in settings.links)
        found.append((f"twice the rate of the {link_name(*faster[:2])}", replace(settings, links=links)))
    return found


def _ratio(values: np.ndarray) -> Estimate:
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
    return Estimate(float(middle), float(low), float(high))


def _stages(observations: Sequence[TrialObservation], settings: ModelSettings) -> dict[str, float]:
    for one in observations:
        if one.settings == settings:
            return dict(one.stages_s.get("all", {}))
    return {}
