"""Predicts what happens over time under a load profile, from the model that was fitted to runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from waylab.errors import LabError
from waylab.fit.interface import RefusedFitError, unidentifiable
from waylab.fit.layered import FittedLayered
from waylab.fit.layered.network import CycleNetwork
from waylab.fit.observations import ModelSettings
from waylab.fit.observations.settings import time_of
from waylab.predict.profile.arrivals import Bursts, arrival_times
from waylab.predict.profile.phases import Phase
from waylab.predict.profile.simulation import Outage, Passages, Progressing, simulate_passages
from waylab.predict.runs.chosen import FittedChosen

Array = NDArray[np.float64]

_REQUESTS_MAX = 3_500_000
_WINDOWS = 60
# Requests of each phase in the simulation of the undisturbed system.
_USUAL = 150_000
# All is normal if the mean response time of a window exceeds the largest of an undisturbed one by less than this.
_NORMAL = 1.2
_STEADY = 0.98
_RATES = 60


@dataclass(frozen=True)
class ProfileWindow:
    """A part of the time: rates per second of requests that were due in it, and what became of them."""

    start_s: float
    end_s: float
    arrivals_per_s: float
    lost_per_s: float
    # Of the answered requests; `None` if there is none.
    response_s: float | None
    response_p95_s: float | None
    # Requests that were due and not answered, at the end of the window.
    present: float


@dataclass(frozen=True)
class Recovery:
    """The end of a disturbance, and when all was normal again; `None`: not before the end of the profile."""

    disturbance: str
    ended_s: float
    normal_s: float | None


@dataclass(frozen=True)
class ProfileResult:
    """Windows over the whole profile, and how long each return to normal took."""

    settings: ModelSettings
    windows: Sequence[ProfileWindow]
    requests: int
    lost: int
    # Largest sustainable rate of Poisson arrivals.
    capacity_per_s: float
    recoveries: Sequence[Recovery]
    extrapolates: tuple[str, ...] = ()


def predict_profile(
    fitted: FittedChosen,
    base: ModelSettings,
    phases: Sequence[Phase],
    bursts: Bursts | None = None,
    seed: int = 1,
    report: Progressing = lambda done, total: None,
) -> ProfileResult:
    """Simulate the fitted network under a profile, with Poisson arrivals or bursts.

    Raises:
        RefusedFitError: when the layered model could not be fitted, or knows nothing of the settings.
        LabError: for more requests than are simulated, an outage of servers that are not there, or overload throughout.
    """
    layered = fitted.layered
    if layered is None:
        raise RefusedFitError(fitted.fits.reasons.get("layered", "the layered model could not be fitted"))
    _check(phases, base)
    settings = replace(base, think_s=0.0, rate_per_s=max(one.rate_per_s for one in phases))
    reason = unidentifiable(fitted.domain, settings)
    if reason:
        raise RefusedFitError(reason)
    capacity = capacity_per_s(layered, settings)
    steady = [one.rate_per_s < _STEADY * capacity for one in phases]
    if not any(steady):
        raise LabError(
            f"--profile: the configuration can serve {capacity:,.0f} requests/s, fewer than arrive in every phase"
        )
    random = np.random.default_rng(seed)
    network = layered.network(settings)
    network = replace(network, slots=network.slots if network.slots < network.clients else 0)
    due = arrival_times(phases, random, bursts)
    timeout_s = _timeout_s(settings)
    outages = _outages(phases)
    found = simulate_passages(network, due, random, outages, timeout_s, report)
    edges = _edges(phases)
    windows = _windows(found, edges)
    usual = _usual(network, phases, steady, random, bursts, edges)
    return ProfileResult(
        settings,
        windows,
        int(due.size),
        int(found.lost.sum()),
        capacity,
        _recoveries(phases, steady, windows, usual),
        fitted.domain.beyond(replace(settings, rate_per_s=base.rate_per_s, think_s=base.think_s)),
    )


def capacity_per_s(layered: FittedLayered, settings: ModelSettings) -> float:
    """The largest sustainable rate of the fitted network."""
    rates = np.geomspace(1.0, 1e8, _RATES)
    for _ in range(3):
        found = layered.solve([replace(settings, rate_per_s=float(rate)) for rate in rates])
        last = int(np.flatnonzero(found.steady).max(initial=0))
        rates = np.linspace(rates[last], rates[min(last + 1, _RATES - 1)], _RATES)
    return float(rates[0])


def _check(phases: Sequence[Phase], base: ModelSettings) -> None:
    expected = sum(one.length_s * one.rate_per_s for one in phases)
    if expected > _REQUESTS_MAX:
        raise LabError(
            f"--profile: {expected:,.0f} requests are more than the {_REQUESTS_MAX:,} that are simulated; "
            "shorten the phases"
        )
    frozen = max(one.frozen for one in phases)
    if frozen > base.servers:
        raise LabError(
            f"--profile: an outage of {frozen} servers, but the configuration has {base.servers}; freeze fewer"
        )


def _timeout_s(settings: ModelSettings) -> float:
    text = dict(settings.others).get("proxy.backend_timeout", "")
    try:
        return time_of(text) if settings.proxies else math.inf
    except ValueError:
        return math.inf


def _outages(phases: Sequence[Phase]) -> list[Outage]:
    """Outages of the same servers in successive phases are one."""
    found: list[Outage] = []
    start = 0.0
    for one in phases:
        end = start + one.length_s
        if one.frozen and found and found[-1].end_s == start and found[-1].servers == one.frozen:
            found[-1] = replace(found[-1], end_s=end)
        elif one.frozen:
            found.append(Outage(start, end, one.frozen))
        start = end
    return found


def _edges(phases: Sequence[Phase]) -> Array:
    """Windows of about one length, none across a change of phase."""
    ends = np.cumsum([one.length_s for one in phases])
    length = float(ends[-1]) / _WINDOWS
    edges = [np.zeros(1)]
    start = 0.0
    for end in ends.tolist():
        count = max(1, round((end - start) / length))
        edges.append(np.linspace(start, end, count + 1)[1:])
        start = end
    return np.concatenate(edges)


def _windows(found: Passages, edges: Array) -> list[ProfileWindow]:
    places = np.searchsorted(found.due_s, edges)
    answered = np.searchsorted(np.sort(found.done_s), edges, side="right")
    response = found.done_s - found.due_s
    windows = []
    for place in range(len(edges) - 1):
        low, high = int(places[place]), int(places[place + 1])
        length = float(edges[place + 1] - edges[place])
        lost = found.lost[low:high]
        good = response[low:high][~lost]
        windows.append(
            ProfileWindow(
                float(edges[place]),
                float(edges[place + 1]),
                (high - low) / length,
                float(lost.sum()) / length,
                float(good.mean()) if good.size else None,
                float(np.quantile(good, 0.95)) if good.size else None,
                float(places[place + 1] - answered[place + 1]),
            )
        )
    return windows


def _usual(
    network: CycleNetwork,
    phases: Sequence[Phase],
    steady: Sequence[bool],
    random: np.random.Generator,
    bursts: Bursts | None,
    edges: Array,
) -> dict[float, float]:
    """The largest mean response time of a window without outages, by rate of arrivals."""
    length = float(np.diff(edges).min())
    found = {}
    for rate in {one.rate_per_s for one, good in zip(phases, steady, strict=True) if good}:
        whole = max(sum(one.length_s for one in phases if one.rate_per_s == rate), 20 * length)
        alone = Phase(min(whole, _USUAL / rate), rate)
        due = arrival_times([alone], random, bursts)
        if not due.size:
            continue
        passages = simulate_passages(network, due, random)
        parts = _windows(passages, np.arange(0.0, alone.length_s, length))
        # The system is empty at first.
        means = [one.response_s for one in parts[len(parts) // 10 :] if one.response_s is not None]
        found[rate] = max(means, default=float((passages.done_s - passages.due_s).mean()))
    return found


def _recoveries(
    phases: Sequence[Phase],
    steady: Sequence[bool],
    windows: Sequence[ProfileWindow],
    usual: dict[float, float],
) -> list[Recovery]:
    found = []
    ends = np.cumsum([one.length_s for one in phases]).tolist()
    disturbed = [bool(one.frozen) or not good for one, good in zip(phases, steady, strict=True)]
    for place, one in enumerate(phases):
        if not disturbed[place] or (place + 1 < len(phases) and disturbed[place + 1]):
            continue
        stop = next(
            (ends[later - 1] for later in range(place + 1, len(phases)) if disturbed[later]), ends[-1]
        )
        after = [part for part in windows if ends[place] <= part.start_s and part.end_s <= stop]
        unusual = [
            number
            for number, part in enumerate(after)
            if part.lost_per_s or (part.response_s or 0.0) > _NORMAL * _usual_at(part, phases, ends, usual)
        ]
        last = unusual[-1] + 1 if unusual else 0
        normal = after[last].start_s if last < len(after) else None
        found.append(Recovery("outage" if one.frozen else "overload", ends[place], normal))
    return found


def _usual_at(
    part: ProfileWindow, phases: Sequence[Phase], ends: Sequence[float], usual: dict[float, float]
) -> float:
    rate = phases[int(np.searchsorted(ends, (part.start_s + part.end_s) / 2))].rate_per_s
    return usual.get(rate, math.inf)
