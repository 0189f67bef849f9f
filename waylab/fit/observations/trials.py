"""One typed row for each trial of a run folder: settings, and what was measured."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from waylab.analysis import read_analysis
from waylab.errors import LabError
from waylab.fit.observations.hosts import link_name, placement_of
from waylab.fit.observations.settings import ModelSettings, settings_of
from waylab.runfolder.files import read_run
from waylab.runfolder.run import PlannedTrial, Run
from waylab.runfolder.trial_numbers import AnalysedTrial, TrialNumbers

# Two trials of one configuration in one run that differ by more than this factor contradict each other.
_CONTRADICTION = 3.0
_DROPS = "dropped_records"
_LAW_MAX = 0.1


@dataclass(frozen=True)
class TrialObservation:
    """What one trial measured: rates per second, times in seconds. Empty or `None`: not measured."""

    run: str
    trial: str
    configuration: str
    block: int
    role: str
    settings: ModelSettings
    throughput_per_s: float
    response_s: float
    # By operation, `all` first.
    responses_s: Mapping[str, float] = field(default_factory=dict)
    percentiles_s: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    # Mean of each stage, by operation.
    stages_s: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    # Requests that an arriving one finds ahead of it, and requests between dispatch and answer (Little's law).
    queue_length: float | None = None
    in_service: float | None = None
    # CPU seconds for each request, by role.
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    bytes_per_request: float | None = None
    link_utilisation: Mapping[str, float] = field(default_factory=dict)
    # Seconds that limited links need for each request, by name of the link.
    link_s: Mapping[str, float] = field(default_factory=dict)
    # Share of the machine's CPU time that other programs or the hypervisor took.
    foreign_share: float = 0.0
    # Length of the measured window, and of the time before it from the first request; 0: not known.
    measured_s: float = 0.0
    warm_up_s: float = 0.0
    trials: int = 1
    # Standard deviation of ln X between trials of the configuration.
    spread: float | None = None
    refused: str = ""


def observe(directories: Sequence[Path]) -> list[TrialObservation]:
    """Read the trials of run folders, one row for each; those that failed a gate carry the reason.

    Raises:
        LabError: for a folder that is no analysed run, or one that is given twice: its trials would count twice.
    """
    found: list[TrialObservation] = []
    seen: dict[tuple[object, ...], Path] = {}
    for directory in directories:
        run, analysis = read_run(directory), read_analysis(directory)
        planned = {one.id: one for one in run.plan}
        # A copy of a run folder has another path, but the same trials.
        trials = ((one.id, one.numbers.throughput_per_s if one.numbers else None) for one in analysis.trials)
        key = (run.created_utc, *trials)
        if key in seen:
            raise LabError(f"{directory}: is the same run as {seen[key]}; give it once")
        seen[key] = directory
        for trial in analysis.trials:
            if trial.numbers is not None:
                found.append(_observation(directory.name, run, planned[trial.id], trial, trial.numbers))
    return _without_contradictions(found)


def _observation(
    name: str, run: Run, planned: PlannedTrial, trial: AnalysedTrial, numbers: TrialNumbers
) -> TrialObservation:
    everything = numbers.operations.get("all")
    stages = {
        operation: {stage: times.mean_ns * 1e-9 for stage, times in one.stages.items()}
        for operation, one in numbers.stages.items()
    }
    holding_s = sum(stages.get("all", {}).get(stage, 0.0) for stage in ("send", "backend"))
    machine, cpu = numbers.cpu.machine, numbers.cpu.cpu_per_request_ns
    foreign = (numbers.cpu.foreign_share or 0.0) + (numbers.cpu.steal_share or 0.0)
    scale = planned.time_scale
    settings = _settings(run, planned, numbers)
    observation = TrialObservation(
        run=name,
        trial=trial.id,
        configuration=trial.configuration,
        block=trial.block,
        role=planned.role,
        settings=settings,
        throughput_per_s=numbers.throughput_per_s,
        response_s=everything.response_mean_ns * 1e-9 if everything else math.nan,
        responses_s={one: found.response_mean_ns * 1e-9 for one, found in numbers.operations.items()},
        percentiles_s={
            one: {share: value * 1e-9 for share, value in found.percentiles_ns.items() if value is not None}
            for one, found in numbers.operations.items()
        },
        stages_s=stages,
        queue_length=numbers.queue_length.mean if numbers.queue_length else None,
        in_service=numbers.throughput_per_s * holding_s if holding_s else None,
        cpu_s={
            role: value * 1e-9
            for role, value in cpu.items()
            if role in planned.description.programs or role == "load"
        },
        bytes_per_request=machine.network_sent_bytes / numbers.requests
        if machine and numbers.requests
        else None,
        link_utilisation=numbers.links.utilisation,
        link_s=_link_s(planned, settings, numbers),
        foreign_share=min(max(foreign, 0.0), 0.9) if scale == 1.0 else 0.0,
        measured_s=numbers.measured_s,
        warm_up_s=planned.load.warm_up_s,
    )
    return replace(observation, refused=_refusal(observation, trial))


def _settings(run: Run, planned: PlannedTrial, numbers: TrialNumbers) -> ModelSettings:
    machine = numbers.cpu.machine
    whole = round(machine.capacity_s / numbers.measured_s) if machine and numbers.measured_s else 0
    placement = placement_of(planned, run.spec.testbed.get("hosts") or {}, whole)
    generators = len(planned.assignment.get("load") or [])
    return settings_of(planned.system, planned.load, placement, generators)


def _link_s(planned: PlannedTrial, settings: ModelSettings, numbers: TrialNumbers) -> dict[str, float]:
    """Seconds that the limited links of each group of hosts need for one request, by group and direction."""
    found = {}
    for group, way, _ in settings.links:
        mine = [role for role, of in settings.hosts if of == group]
        uses = [
            numbers.links.utilisation.get(f"{host} {way}")
            for host in dict.fromkeys(name for role in mine for name in planned.assignment[role])
        ]
        busy = sum(use for use in uses if use is not None)
        if busy > 0 and numbers.throughput_per_s > 0:
            found[link_name(group, way)] = busy / numbers.throughput_per_s
    return found


def _refusal(one: TrialObservation, trial: AnalysedTrial) -> str:
    if not trial.used:
        drops = [gate.text for gate in trial.gates if gate.name == _DROPS and gate.passed is False]
        return "; ".join(drops or trial.reasons) or "a gate failed"
    if text := _lacks(one, trial):
        return text
    for gate in trial.gates:
        if gate.name == _DROPS and gate.value:
            return gate.text
    if not one.settings.rate_per_s:
        cycle = one.throughput_per_s * (one.response_s + one.settings.think_s) / one.settings.in_flight
        if abs(cycle - 1) > _LAW_MAX:
            return f"it breaks the interactive law: X (R + Z) is {cycle:.2f} times the requests in flight"
    return ""


def _lacks(one: TrialObservation, trial: AnalysedTrial) -> str:
    """Say what models need and a trial does not have."""
    source = trial.numbers.source if trial.numbers else None
    if source is not None and source.view != "client":
        return f"its times are those of the {source.view}, and models need those of the clients"
    if not one.throughput_per_s > 0 or not one.response_s > 0:
        return "nothing was answered"
    if not one.settings.clients and not one.settings.rate_per_s:
        return "its number of clients is unknown; import it again with --set clients=N"
    return ""


def _without_contradictions(found: list[TrialObservation]) -> list[TrialObservation]:
    groups: dict[ModelSettings, list[float]] = {}
    for one in found:
        if not one.refused:
            groups.setdefault(one.settings, []).append(one.throughput_per_s)
    checked = []
    for one in found:
        rates = groups.get(one.settings, [])
        text = one.refused
        if not text and max(rates) > _CONTRADICTION * min(rates):
            text = f"its trials contradict each other: throughputs from {min(rates):.6g} to {max(rates):.6g} per s"
        checked.append(replace(one, refused=text))
    return checked


def usable(observations: Sequence[TrialObservation]) -> list[TrialObservation]:
    """The rows that may be learned from or judged.

    Raises:
        LabError: when there is none; with the reasons.
    """
    found = [one for one in observations if not one.refused]
    if not found:
        reasons = sorted({one.refused for one in observations})
        raise LabError("no usable trial: " + ("; ".join(reasons[:3]) if reasons else "nothing was measured"))
    return found


def pooled(observations: Sequence[TrialObservation]) -> list[TrialObservation]:
    """One row for each configuration: the means of its trials, geometric for rates and times."""
    groups: dict[tuple[ModelSettings, str], list[TrialObservation]] = {}
    for one in observations:
        groups.setdefault((one.settings, one.role), []).append(one)
    return [_mean(group) for group in groups.values()]


def _mean(group: Sequence[TrialObservation]) -> TrialObservation:
    logs = [math.log(one.throughput_per_s) for one in group]
    centre = fmean(logs)
    spread = None
    if len(logs) > 1:
        spread = math.sqrt(sum((value - centre) ** 2 for value in logs) / (len(logs) - 1))
    first = group[0]
    return replace(
        first,
        throughput_per_s=math.exp(centre),
        response_s=_geometric([one.response_s for one in group]),
        responses_s=_by_name([one.responses_s for one in group]),
        percentiles_s={
            operation: _by_name(
                [one.percentiles_s[operation] for one in group if operation in one.percentiles_s]
            )
            for operation in first.percentiles_s
        },
        stages_s={
            operation: _arithmetic([one.stages_s[operation] for one in group if operation in one.stages_s])
            for operation in first.stages_s
        },
        queue_length=_known([one.queue_length for one in group]),
        in_service=_known([one.in_service for one in group]),
        cpu_s=_arithmetic([one.cpu_s for one in group]),
        link_s=_arithmetic([one.link_s for one in group]),
        bytes_per_request=_known([one.bytes_per_request for one in group]),
        foreign_share=fmean(one.foreign_share for one in group),
        trials=len(group),
        spread=spread,
    )


def _geometric(values: Sequence[float]) -> float:
    return math.exp(fmean(math.log(value) for value in values))


def _by_name(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {
        name: _geometric([part[name] for part in parts if part.get(name, 0) > 0])
        for name in names
        if any(part.get(name, 0) > 0 for part in parts)
    }


def _arithmetic(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: fmean(part[name] for part in parts if name in part) for name in names}


def _known(values: Sequence[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return fmean(found) if found else None


def base_settings(observations: Sequence[TrialObservation]) -> ModelSettings:
    """The settings that hold where a user sets nothing: of each factor the middle measured value."""
    known = sorted({one.settings for one in observations})
    middle = {
        name: sorted(getattr(one, name) for one in known)[(len(known) - 1) // 2]
        for name in known[0].as_dict()
    }
    nearest = min(known, key=lambda one: sum(getattr(one, name) != value for name, value in middle.items()))
    return nearest
