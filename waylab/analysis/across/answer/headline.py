"""The answer: how throughput and response time change along the figures, and what limits them.

All sentences use means over trials. A change whose interval contains 1 is called undecided; the rules decide claims.
"""

from collections.abc import Sequence

from waylab.analysis.across.answer.imported import imported_results
from waylab.analysis.across.answer.lasting import narrow_intervals
from waylab.analysis.across.answer.machine_load import FOREIGN_MIN, busy_machine, foreign_share
from waylab.analysis.across.contrasts.model import MetricModel, metric_model
from waylab.analysis.trial.numbers import TrialResult
from waylab.runfolder.analysis import Axes, Configuration
from waylab.runfolder.headline import Headline, ResourceUse
from waylab.runfolder.words import (
    labels_text,
    levels_text,
    number_text,
    rate_text,
    several_levels,
    share_text,
    time_text,
)

# The smallest utilisation of a resource that is called the limit. Queues in front of it are then several requests long.
LIMIT_MIN = 0.85
# A curve that still rises by more than this over its last step has not reached a limit.
RISES_MIN = 0.1
# Smaller changes along a figure are reported as no change.
_SAME = 0.05
_MACHINE = "CPU of the machine"
# What a request does in each stage.
_STAGES = {
    "parse": "being parsed",
    "route": "until its servers are chosen",
    "admit": "being admitted",
    "queue": "waiting for a slot or a connection",
    "send": "until it is sent on",
    "backend": "waiting for a backend",
    "reply": "until its reply is written",
}


def headline(axes: Axes, configurations: Sequence[Configuration], trials: Sequence[TrialResult]) -> Headline:
    """Return both sentences, and the utilisation of every resource in every configuration."""
    used = [one for one in configurations if one.used]
    if not used:
        return Headline(warnings=[*imported_results(trials), *busy_machine(trials)])
    best = max(used, key=lambda one: one.throughput_per_s.known_mean())
    utilisation = {one.name: _utilisation(one) for one in used}
    limit = _limit(utilisation[best.name])
    stage = _longest_stage(best)
    return Headline(
        sentences=[
            _course(axes, used, trials),
            _where(
                best, _label(best, used), stage, limit, utilisation[best.name], trials, _rises(axes, used)
            ),
        ],
        busiest=best.name,
        limit=limit.name if limit else None,
        longest_stage=stage[0] if stage else None,
        utilisation=utilisation,
        warnings=[*imported_results(trials), *busy_machine(trials), *narrow_intervals(trials)],
    )


def _course(axes: Axes, used: Sequence[Configuration], trials: Sequence[TrialResult]) -> str:
    """Say how throughput and mean response time change from the first to the last level of the factor along x."""
    lines = _lines(axes, used)
    if not axes.numeric or all(len(line) < 2 for line in lines.values()):
        return _extremes(used)
    lines = {series: line for series, line in lines.items() if len(line) > 1}
    first, last = (
        min(float(line[0].x) for line in lines.values()),
        max(float(line[-1].x) for line in lines.values()),
    )
    ranged = labels_text(str(axes.x), [f"{first:g}", f"{last:g}"], "to")
    metrics = ("throughput_per_s", "response_mean_ns")
    throughput, response = (metric_model([one.content for one in trials], metric) for metric in metrics)
    said = [
        f"{f'with {series}, ' if len(lines) > 1 else ''}throughput {_change(line, throughput, response)}"
        for series, line in _few(lines).items()
    ]
    return f"From {ranged}{' ' if len(lines) > 1 else ', '}{_sentences(said)}"


def _sentences(parts: Sequence[str]) -> str:
    """Join clauses to sentences; the first one continues the preceding text."""
    first, *rest = parts
    return " ".join([f"{first}.", *(f"{part[0].upper()}{part[1:]}." for part in rest)])


def _change(line: Sequence[Configuration], throughput: MetricModel, response: MetricModel) -> str:
    """Write the change of one line, for example `rises from 5,400 to 50,200 requests/s and the response time ...`."""
    start, end = line[0], line[-1]
    top = max(line, key=lambda one: one.throughput_per_s.known_mean())
    before, after, best = (one.throughput_per_s.known_mean() for one in (start, end, top))
    from_text, to_text, top_text = rate_text(before), rate_text(after), rate_text(best)
    if best > (1 + _SAME) * max(before, after):
        words = (
            f"rises from {from_text} to {top_text} requests/s at {float(top.x):g} and then falls to {to_text}"
        )
    elif abs(after / before - 1) <= _SAME:
        words = f"stays near {from_text} requests/s"
    else:
        words = f"{'rises' if after > before else 'falls'} from {from_text} to {to_text} requests/s"
        words += _undecided(throughput, start, end)
    times = [time_ns for one in (start, end) if (time_ns := _response_ns(one))]
    if len(times) != 2:
        return words
    return f"{words}, and mean response time {_times(times[0], times[1], _undecided(response, start, end))}"


def _times(before_ns: float, after_ns: float, undecided: str) -> str:
    before, after = time_text(before_ns), time_text(after_ns)
    if abs(after_ns / before_ns - 1) <= _SAME:
        return f"stays near {before}"
    return f"{'rises' if after_ns > before_ns else 'falls'} from {before} to {after}{undecided}"


def _undecided(model: MetricModel, start: Configuration, end: Configuration) -> str:
    """Return the interval of a change in brackets if it contains 1: the means differ, but perhaps by chance."""
    ratio = model.ratio_of_weights({start.name: -1.0, end.name: 1.0})
    if ratio.low is None or ratio.high is None or not ratio.low < 1 < ratio.high:
        return ""
    low, high = number_text(ratio.low), number_text(ratio.high)
    return f" (undecided: the 95 % interval of the ratio is {low} to {high})"


def _few(lines: dict[str, list[Configuration]]) -> dict[str, list[Configuration]]:
    """Keep two lines: those with the highest and the lowest top."""
    if len(lines) <= 2:
        return lines
    ranked = sorted(lines, key=lambda name: max(one.throughput_per_s.known_mean() for one in lines[name]))
    return {name: lines[name] for name in (ranked[-1], ranked[0])}


def _extremes(used: Sequence[Configuration]) -> str:
    """Name the configurations with the highest and the lowest throughput."""
    ranked = sorted(used, key=lambda one: one.throughput_per_s.known_mean())
    high, low = ranked[-1], ranked[0]
    if len(ranked) == 1:
        return f"Throughput is {_both(high)}."
    most, least = (f"{_label(one, used)}: {_both(one)}" for one in (high, low))
    return f"Throughput is highest with {most}. It is lowest with {least}."


def _label(one: Configuration, used: Sequence[Configuration]) -> str:
    """Write the levels of a configuration, without the factors that do not vary."""
    varied = several_levels([other.levels for other in used])
    levels = {factor: label for factor, label in one.levels.items() if factor in varied}
    return levels_text(levels) or one.name


def _both(one: Configuration) -> str:
    interval = one.throughput_per_s
    bounds = f" [{rate_text(interval.low)}, {rate_text(interval.high)}]" if interval.low is not None else ""
    response_ns = _response_ns(one)
    response = f" with a mean response time of {time_text(response_ns)}" if response_ns else ""
    return f"{rate_text(interval.mean)}{bounds} requests/s{response}"


def _where(
    best: Configuration,
    label: str,
    stage: tuple[str, float] | None,
    limit: ResourceUse | None,
    utilisation: Sequence[ResourceUse],
    trials: Sequence[TrialResult],
    rises: float | None,
) -> str:
    """Say in which stage requests of the busiest configuration spend most time, and which resource limits it."""
    head = f"At the highest throughput ({label})"
    parts = []
    if stage:
        total_ns = best.stages["all"].stages["total"].mean_ns.mean
        # The backend of a message service is its database.
        of_messages = stage[0] == "backend" and best.description.protocol == "messages"
        words = "waiting for the database" if of_messages else _STAGES.get(stage[0], "")
        parts.append(
            f"a request spends {time_text(total_ns)} in the {best.description.middle}, "
            f"{share_text(stage[1])} of it {words} (stage {stage[0]})"
        )
    foreign = foreign_share(
        [trial for trial in trials if trial.used and trial.content.configuration == best.name]
    )
    if limit:
        other = f", {share_text(foreign)} of it by other programs" if foreign >= FOREIGN_MIN else ""
        other = other if limit.name == _MACHINE else ""
        parts.append(f"the limit is the {limit.name} ({share_text(limit.share)} busy{other})")
    elif utilisation:
        top = utilisation[0]
        parts.append(
            f"no measured resource is the limit: the busiest is the {top.name} with {share_text(top.share)}"
        )
    if rises and not limit:
        parts.append(f"the last step still adds {share_text(rises)} throughput")
    return f"{head}, {_joined(parts)}." if parts else f"{head} nothing else was measured."


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, and {parts[-1]}"


def _rises(axes: Axes, used: Sequence[Configuration]) -> float | None:
    """Return by which share the line of the best configuration rises over its last step; None if it does not."""
    if not axes.numeric:
        return None
    lines = [line for line in _lines(axes, used).values() if len(line) > 1]
    if not lines:
        return None
    line = max(lines, key=lambda one: max(member.throughput_per_s.known_mean() for member in one))
    before, after = (one.throughput_per_s.known_mean() for one in line[-2:])
    return after / before - 1 if before and after / before - 1 > RISES_MIN else None


def _lines(axes: Axes, used: Sequence[Configuration]) -> dict[str, list[Configuration]]:
    rank = {level: place for place, level in enumerate(axes.levels)}
    lines: dict[str, list[Configuration]] = {}
    for one in sorted(used, key=lambda one: rank.get(one.x, 0)):
        lines.setdefault(one.series, []).append(one)
    return lines


def _limit(utilisation: Sequence[ResourceUse]) -> ResourceUse | None:
    """Return the busiest resource of at least `LIMIT_MIN`; the machine takes precedence over programs."""
    full = [one for one in utilisation if one.share >= LIMIT_MIN]
    return next((one for one in full if one.name == _MACHINE), full[0] if full else None)


def _utilisation(one: Configuration) -> list[ResourceUse]:
    """Return how busy machine, programs and links were, the busiest first."""
    shares = {}
    if one.busy_share.mean is not None:
        shares[_MACHINE] = one.busy_share.mean
    if one.generator_cpu_share.mean is not None:
        shares["CPU of the load generator's threads"] = one.generator_cpu_share.mean
    rate_per_s = one.throughput_per_s.known_mean()
    for role, threads, words in _threads(one):
        cost = one.cpu_per_request_ns.get(role)
        if cost is not None and cost.mean is not None and threads:
            shares[words] = cost.mean * rate_per_s * 1e-9 / threads
    for name, share in one.link_utilisation.items():
        if share.mean is not None:
            shares[f"link {name}"] = share.mean
    ranked = sorted(shares.items(), key=lambda pair: -pair[1])
    return [ResourceUse(name=name, share=share) for name, share in ranked]


def _threads(one: Configuration) -> list[tuple[str, int, str]]:
    """Return role, number of threads that do its work, and words; only roles whose number of threads is known."""
    programs, system = one.description.programs, one.system
    found = []
    for role, key, words in (
        ("proxy", "loops", "CPU of the proxies' event loops"),
        ("backends", "threads", "CPU of the backends' threads"),
    ):
        settings = system.get(role)
        each = settings.get(key, 1) if isinstance(settings, dict) else 1
        if programs.get(role) and isinstance(each, int):
            found.append((role, programs[role] * each, words))
    return found


def _longest_stage(one: Configuration) -> tuple[str, float] | None:
    """Return the stage in which requests spend most time, and its share of their time in proxy or service."""
    found = one.stages.get("all")
    total_ns = found.stages["total"].mean_ns.mean if found and "total" in found.stages else None
    if found is None or not total_ns:
        return None
    times = {name: times.mean_ns.mean or 0.0 for name, times in found.stages.items() if name != "total"}
    name = max(times, key=lambda stage: times[stage])
    return name, times[name] / total_ns


def _response_ns(one: Configuration) -> float | None:
    return one.operations["all"].response_mean_ns.mean if "all" in one.operations else None
