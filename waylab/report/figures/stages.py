"""The distribution of the time in each stage of the proxy, one configuration at a time."""

import altair as alt

from waylab.report.figures import style
from waylab.report.figures.figure import LOG, Figure, busiest, pick, values
from waylab.report.figures.rows import Row, distinct
from waylab.report.page.content import Content
from waylab.runfolder.trial_numbers import STAGES, TOTAL

_STAGES = [*STAGES, TOTAL]
_KEYS = ("p5_ns", "p25_ns", "p50_ns", "p75_ns", "p95_ns")
# A logarithm has no place for zero: what is shorter stands here.
_SHORTEST_US = 0.01


def stage_distribution(content: Content) -> Figure | None:
    """Percentiles and mean of every stage; GET and SET apart."""
    rows: list[Row] = [
        {
            "name": content.label(c.name),
            "operation": operation.upper(),
            "stage": stage,
            "rank": _STAGES.index(stage),
        }
        | {key: getattr(times, key) for key in _KEYS}
        | {"mean_ns": times.mean_ns.mean}
        for c in content.configurations
        for operation in content.operations_with_stages
        if operation in c.stages
        for stage, times in c.stages[operation].stages.items()
    ]
    if not rows:
        return None
    names = distinct(rows, "name")
    operations = sorted(distinct(rows, "operation"))
    first = content.label(busiest(content).name)
    parameter, condition = pick("name", "configuration", names, first if first in names else names[0])
    data = alt.Chart(values(rows)).transform_filter(condition)
    for key in (*_KEYS, "mean_ns"):
        shown = f"max(datum.{key} / 1e3, {_SHORTEST_US})"
        data = data.transform_calculate(**{key.replace("_ns", "_us"): shown})
    title, several = f"time in the stage (µs, {LOG})", len(operations) > 1
    scale = alt.Scale(type="log", nice=False, padding=8)

    def along(key: str) -> alt.X:
        return alt.X(
            f"{key}_us:Q",
            title=title,
            scale=scale,
            axis=alt.Axis(format="~g", tickCount=6, labelOverlap="greedy"),
        )

    base = data.encode(
        y=alt.Y("stage:N", title=None, sort=_STAGES),
        yOffset=alt.YOffset("operation:N", sort=operations) if several else alt.Undefined,
        color=alt.Color(
            "operation:N",
            title=None,
            scale=style.colour(operations),
            legend=alt.Legend() if several else None,
        ),
        tooltip=[
            "stage:N",
            "operation:N",
            *(alt.Tooltip(f"{key[:-3]}_us:Q", format=",.3~g") for key in (*_KEYS, "mean_ns")),
        ],
    )
    whiskers = base.mark_rule().encode(x=along("p5"), x2="p95_us:Q")
    boxes = base.mark_bar(size=9, opacity=0.45).encode(x=along("p25"), x2="p75_us:Q")
    medians = base.mark_tick(thickness=2.5, size=13).encode(x=along("p50"))
    means = base.mark_point(filled=True, shape="diamond", size=45, opacity=1).encode(x=along("mean"))
    caption = (
        "Of all recorded requests: lines from the 5th to the 95th percentile, boxes from the lower to the upper "
        "quartile, a stroke at the median, a diamond at the mean. Shorter times than 10 ns are drawn at 10 ns."
    )
    chart = alt.layer(whiskers, boxes, medians, means).add_params(parameter)
    return Figure("stage-distribution", "Distribution of the time per stage", caption, chart)
