"""Operational analysis of a run: for each configuration the part that is used most, and its bounds (Jain 1991, ch. 33).

All rates and times are those of the described hosts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from waylab.analysis import read_analysis
from waylab.errors import LabError
from waylab.fit.observations import TrialObservation, observe, pooled, usable
from waylab.runfolder.analysis import Analysis, Configuration
from waylab.runfolder.files import read_run

WORKERS = "workers"
# Utilisations that differ by less count as equal.
_NEAR = 0.03


@dataclass(frozen=True)
class Bound:
    """The part of a system that a configuration uses most, and the bounds that follow from it."""

    part: str
    utilisation: float
    # Upper bound of the throughput, and lower bound of the mean response time of a closed loop.
    throughput_per_s: float
    response_s: float | None


@dataclass(frozen=True)
class ResponseLaw:
    """The response time N / X − Z by the interactive response time law, relative to the measured one minus 1."""

    trials: int
    mean: float
    largest: float


def bounds(directory: Path) -> dict[str, Bound]:
    """Return the bound of each configuration of a run in which the use of a part is known."""
    analysis, run = read_analysis(directory), read_run(directory)
    scale = run.plan[0].time_scale if run.plan else 1.0
    try:
        observed = {one.configuration: one for one in pooled(usable(observe([directory])))}
    except LabError:
        return {}
    found = {}
    for one in analysis.configurations:
        if one.used and one.name in observed:
            bound = _bound(one, observed[one.name], scale)
            if bound:
                found[one.name] = bound
    return found


def _bound(one: Configuration, observed: TrialObservation, scale: float) -> Bound | None:
    uses = _uses(one, observed)
    if not uses:
        return None
    part = bottleneck(uses)
    most = one.throughput_per_s.known_mean() * scale / uses[part]
    least = None
    if not one.load.rate:
        think_s = (one.think_mean_s or 0.0) / scale
        least = max(0.0, one.load.clients * one.load.pipeline / most - think_s)
    return Bound(part, uses[part], most, least)


def bottleneck(uses: dict[str, float]) -> str:
    """Return the part that is used most; of parts that are used about equally, a link or a CPU before the workers.

    A worker is busy while its request waits for a link or a CPU, so all workers are busy if one of those is the limit.
    """
    return max(uses, key=lambda name: uses[name] - (_NEAR if name == WORKERS else 0.0))


def _uses(one: Configuration, observed: TrialObservation) -> dict[str, float]:
    """Return the utilisation of each link, of the CPUs of each group of hosts and of the slots."""
    uses = {f"link {name}": found.mean for name, found in one.link_utilisation.items() if found.mean}
    settings = observed.settings
    hosts, cores = dict(settings.hosts), dict(settings.cores)
    used_s: dict[str, float] = {}
    for role, cpu_s in observed.cpu_s.items():
        if hosts.get(role) in cores:
            used_s[hosts[role]] = used_s.get(hosts[role], 0.0) + cpu_s
    for group, cpu_s in used_s.items():
        uses[f"CPU time of {group}"] = (
            observed.throughput_per_s * cpu_s / (cores[group] * settings.host_count(group))
        )
    if settings.slots and observed.in_service:
        uses[WORKERS] = observed.in_service / settings.slots
    # Estimates from sampled records and from counters of a second can exceed 1 slightly.
    return {name: min(1.0, float(use)) for name, use in uses.items() if use > 0}


def response_law(analyses: Sequence[Analysis]) -> ResponseLaw | None:
    """Return how far the law is from the used trials of these runs; None without a closed loop."""
    errors = []
    for analysis in analyses:
        think_s = {one.name: one.think_mean_s or 0.0 for one in analysis.configurations}
        for trial in analysis.trials:
            numbers = trial.numbers
            if not trial.used or numbers is None or numbers.interactive_law_error is None:
                continue
            everything = numbers.operations.get("all")
            response_s = everything.response_mean_ns * 1e-9 if everything else 0.0
            cycle_s = response_s + think_s.get(trial.configuration, 0.0)
            if response_s:
                # X (R + Z) / N is 1 + error.
                by_law_s = cycle_s / (1 + numbers.interactive_law_error) - (cycle_s - response_s)
                errors.append(by_law_s / response_s - 1)
    return ResponseLaw(len(errors), fmean(errors), max(errors, key=abs)) if errors else None
