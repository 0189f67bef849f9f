"""One configuration over its trials: means with t intervals, merged histograms, pooled stages."""

from collections.abc import Iterable, Mapping, Sequence

from hdrh.histogram import HdrHistogram
from msgspec import Struct

from waylab.analysis.across.axes import place
from waylab.analysis.across.intervals import geometric, interval, positive, share
from waylab.analysis.across.shapes import shape
from waylab.analysis.trial import histograms, stages
from waylab.analysis.trial.law_checks import worst_laws
from waylab.analysis.trial.numbers import TrialResult
from waylab.analysis.trial.within import effective_counts
from waylab.runfolder.analysis import Axes, Configuration, Operation
from waylab.runfolder.numbers import Interval
from waylab.runfolder.run import PlannedTrial
from waylab.runfolder.trial_numbers import (
    OperationStages,
    ProxyView,
    QueueLength,
    ServerView,
    StageTimes,
    TrialNumbers,
)

# Differences of two clocks' readings, which can be negative.
_SIGNED = ("difference_mean_ns", "before_mean_ns", "after_mean_ns", "late_mean_ns", "delay_mean_ns")


def configuration_results(
    plan: list[PlannedTrial], trials: list[TrialResult], chosen: Axes
) -> list[Configuration]:
    """Put together the trials of every configuration, in the order of the plan's levels."""
    by_name: dict[str, list[TrialResult]] = {}
    settings: dict[str, PlannedTrial] = {}
    for planned, trial in zip(plan, trials, strict=True):
        by_name.setdefault(planned.configuration, []).append(trial)
        settings[planned.configuration] = planned
    results = [_configuration(settings[name], members, chosen) for name, members in by_name.items()]
    rank = {value: index for index, value in enumerate(chosen.levels)}
    return sorted(results, key=lambda result: (result.series, rank.get(result.x, -1)))


def _configuration(planned: PlannedTrial, members: list[TrialResult], chosen: Axes) -> Configuration:
    used = [trial for trial in members if trial.used]
    many = [trial.numbers for trial in used]
    # Imported results may lack histograms. Then nothing is known of all requests of several trials together.
    merged = {
        name: histograms.merge([trial.histograms[name] for trial in used if name in trial.histograms])
        for name in dict.fromkeys(name for trial in used for name in trial.histograms)
        if all(name in trial.histograms for trial in used if name in trial.numbers.operations)
    }
    operations = dict.fromkeys(name for one in many for name in one.operations)
    here = place(planned.levels, chosen)
    hit_ratios = _known(one.hit_ratio for one in many)
    return Configuration(
        name=planned.configuration,
        levels=planned.levels,
        x=here.x,
        series=here.series,
        places={str(view.x): place(planned.levels, view) for view in chosen.views},
        system=planned.system,
        load=planned.load,
        server=many[0].server if many else None,
        trials=len(members),
        used=len(used),
        think_mean_s=many[0].think_mean_s if many else None,
        throughput_per_s=positive([one.throughput_per_s for one in many]),
        largest_second_per_s=max((one.largest_second_per_s or 0.0 for one in many), default=0.0) or None,
        interactive_law_error=interval(_known(one.interactive_law_error for one in many)),
        hit_ratio=interval(hit_ratios),
        miss_ratio=positive([1 - hits for hits in hit_ratios]),
        queue_length=_queue_length(many),
        generator_cpu_share=positive(_known(one.generator_cpu_share for one in many)),
        busy_share=share(_known(one.cpu.busy_share for one in many)),
        laws=worst_laws(many),
        operations={name: _operation(name, merged.get(name), many) for name in operations},
        distribution=histograms.curve(merged["all"]) if "all" in merged else [],
        shapes={name: shape(histogram, planned.configuration) for name, histogram in merged.items()},
        cpu_per_request_ns=_by_key([one.cpu.cpu_per_request_ns for one in many]),
        link_utilisation=_by_key([one.links.utilisation for one in many]),
        database=_by_key([one.database for one in many]),
        stages=_stages(used),
        proxy_view=_proxy_view(many),
        server_view=_server_view(many),
    )


def _operation(name: str, histogram: HdrHistogram | None, many: Sequence[TrialNumbers]) -> Operation:
    found = [one.operations[name] for one in many if name in one.operations]
    # How far a percentile differs from run to run, where every trial has it.
    shared = [
        percent
        for percent in found[0].percentiles_ns
        if all(one.percentiles_ns.get(percent) for one in found)
    ]
    if histogram is None:
        count, pooled_ns = sum(one.count for one in found), found[0].percentiles_ns if len(found) == 1 else {}
    else:
        count, unanswered = int(histogram.get_total_count()), sum(one.unanswered for one in found)
        pooled_ns = histograms.percentiles(histogram, _effective(name, many), unanswered)
    return Operation(
        count=count,
        response_mean_ns=positive([one.response_mean_ns for one in found]),
        percentiles_ns=pooled_ns,
        percentile_intervals_ns={
            percent: geometric([one.percentiles_ns[percent] for one in found]) for percent in shared
        },
    )


def _effective(name: str, many: Sequence[TrialNumbers]) -> dict[str, float]:
    """Effective sample sizes of all trials together, for the percentiles of which every trial knows its own."""
    known = [effective_counts(one.within) if name == "all" else {} for one in many]
    shared = set.intersection(*(set(one) for one in known)) if known else set()
    return {percent: sum(one[percent] for one in known) for percent in shared}


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _by_key(many: Sequence[Mapping[str, float]]) -> dict[str, Interval]:
    """Mean with interval of every number that any of the trials has."""
    keys = list(dict.fromkeys(key for one in many for key in one))
    return {key: positive([one[key] for one in many if key in one]) for key in keys}


def _by_field(many: Sequence[Struct], kind: type[Struct]) -> dict[str, Interval]:
    """Mean with interval of every field."""
    return {
        name: (interval if name in _SIGNED else positive)([getattr(one, name) for one in many])
        for name in kind.__struct_fields__
    }


def _queue_length(many: Sequence[TrialNumbers]) -> QueueLength[Interval] | None:
    found = [one.queue_length for one in many if one.queue_length is not None]
    return QueueLength(**_by_field(found, QueueLength)) if found else None


def _proxy_view(many: Sequence[TrialNumbers]) -> ProxyView[Interval] | None:
    found = [one.proxy_view for one in many if one.proxy_view is not None]
    return ProxyView(**_by_field(found, ProxyView)) if found else None


def _server_view(many: Sequence[TrialNumbers]) -> ServerView[Interval] | None:
    found = [one.server_view for one in many if one.server_view is not None]
    return ServerView(**_by_field(found, ServerView)) if found else None


def _stages(used: list[TrialResult]) -> dict[str, OperationStages[Interval]]:
    """Means over trials with intervals; percentiles of all requests together."""
    pooled = stages.stage_summary(stages.pool([trial.stages for trial in used]))
    found = {}
    for operation, summary in pooled.items():
        apart = [t.numbers.stages[operation].stages for t in used if operation in t.numbers.stages]
        found[operation] = OperationStages(
            count=summary.count,
            stages={
                name: _with_interval(times, positive([one[name].mean_ns for one in apart]))
                for name, times in summary.stages.items()
            },
        )
    return found


def _with_interval(times: StageTimes[float], mean_ns: Interval) -> StageTimes[Interval]:
    return StageTimes(
        mean_ns=mean_ns,
        p5_ns=times.p5_ns,
        p25_ns=times.p25_ns,
        p50_ns=times.p50_ns,
        p75_ns=times.p75_ns,
        p95_ns=times.p95_ns,
        p99_ns=times.p99_ns,
    )
