"""The figures of a report: from the JSON of a run folder to Altair charts."""

from waylab.report.figures import (
    by_factor,
    conditions,
    factorial,
    inside,
    results,
    shapes,
    stages,
    style,
    traces,
)
from waylab.report.figures.figure import Figure

# In the order of the page.
DRAWERS = (
    results.throughput,
    results.response_mean,
    results.response_percentiles,
    results.distribution,
    shapes.histogram,
    by_factor.by_factor,
    conditions.relative,
    factorial.factorial,
    inside.stage_times,
    stages.stage_distribution,
    conditions.queue_length,
    conditions.miss_ratio,
    inside.both_views,
    inside.cpu_time,
    traces.traces,
    inside.models,
    inside.comparisons,
)

__all__ = ["DRAWERS", "Figure", "style"]
