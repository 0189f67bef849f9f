"""The figures of a report: from the JSON of a run folder to Altair charts."""

from waylab.report.figures import (
    by_factor,
    conditions,
    factorial,
    inside,
    load,
    results,
    shapes,
    stages,
    style,
    traces,
)
from waylab.report.figures.figure import Figure

# By the question of the page that they answer, in the order of the page.
DRAWERS = {
    "speed": (
        results.throughput,
        results.response_mean,
        results.response_percentiles,
        load.response_against_throughput,
        load.throughput_per_client,
        results.distribution,
        shapes.histogram,
        shapes.histograms,
        by_factor.by_factor,
        conditions.relative,
        inside.comparisons,
    ),
    "time": (
        inside.stage_times,
        stages.stage_distribution,
        inside.both_views,
        conditions.queue_length,
    ),
    "limits": (
        inside.cpu_time,
        factorial.effects,
        conditions.miss_ratio,
    ),
    "models": (inside.models,),
    "trust": (
        traces.traces,
        factorial.residuals,
    ),
}

__all__ = ["DRAWERS", "Figure", "style"]
