"""The figures of a report: from the JSON of a run folder to Altair charts."""

from waylab.report.figures import inside, results, style
from waylab.report.figures.figure import Figure

# In the order of the page.
DRAWERS = (
    results.throughput,
    results.response_mean,
    results.response_percentiles,
    results.distribution,
    inside.stage_times,
    inside.both_views,
    inside.processor,
    inside.models,
    inside.comparisons,
)

__all__ = ["DRAWERS", "Figure", "style"]
