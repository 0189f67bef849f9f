"""Figures of a closed loop's load: throughput of one client, and response time against throughput."""

import altair as alt

from waylab.report.figures import style
from waylab.report.figures.figure import (
    INTERVALS,
    Figure,
    dashed_lines,
    legend,
    milliseconds,
    quantity_axis,
    values,
    x_axis,
)
from waylab.report.figures.rows import Row
from waylab.report.page.content import Content

# A curve of two points adds nothing to the two figures beside it.
_LEVELS_MIN = 3


def throughput_per_client(content: Content) -> Figure | None:
    """Throughput divided by clients: flat while clients do not delay each other."""
    clients = {c.load.clients for c in content.configurations}
    if len(clients) < 2 or content.open_loop or not content.axes.numeric:
        return None
    rows: list[Row] = [
        {
            "x": c.x,
            "series": c.series,
            "clients": c.load.clients,
            "mean_per_s": c.throughput_per_s.mean,
            "low_per_s": c.throughput_per_s.low,
            "high_per_s": c.throughput_per_s.high,
        }
        for c in content.configurations
    ]
    chart = alt.Chart(values(rows))
    for name in ("mean", "low", "high"):
        chart = chart.transform_calculate(
            **{name: f"datum.{name}_per_s === null ? null : datum.{name}_per_s / datum.clients"}
        )
    title = "throughput per client (requests/s)"
    base = _lines(content, chart).encode(x=x_axis(content))
    y = alt.Y("mean:Q", title=title, scale=alt.Scale(zero=True, domainMin=0))
    bars = base.transform_filter("isValid(datum.low)").mark_rule(clip=True)
    bars = bars.encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    caption = (
        "Throughput divided by the number of clients. "
        f"{INTERVALS} "
        "Flat: a further client adds as much as the first. Falling as 1/N: a further client adds nothing."
    )
    drawn = alt.layer(
        *dashed_lines(base.encode(y=y), "series", content.series), bars, _points(content, base, y)
    )
    return Figure("throughput-per-client", "Throughput per client", caption, drawn)


def response_against_throughput(content: Content) -> Figure | None:
    """Mean response time against throughput, a point for each load."""
    if not content.axes.numeric or len(content.axes.levels) < _LEVELS_MIN:
        return None
    rows: list[Row] = [
        {
            "x": c.x,
            "series": c.series,
            "throughput_per_s": c.throughput_per_s.mean,
            "mean_ns": c.operations["all"].response_mean_ns.mean,
        }
        for c in content.configurations
        if "all" in c.operations
    ]
    if not rows:
        return None
    chart = milliseconds(alt.Chart(values(rows)), "mean_ns")
    base = _lines(content, chart).encode(
        x=alt.X("throughput_per_s:Q", title="throughput (requests/s)", scale=alt.Scale(zero=True)),
        order="x:Q",
    )
    y = quantity_axis("mean_ms:Q", "mean response time", "ms", rows, "mean_ns")
    labels = base.mark_text(align="left", dx=7, dy=-7, fontSize=11).encode(
        y=y, text=alt.Text("x:Q", format=",.6~g")
    )
    caption = (
        f"Each point is a level of {content.axes.x}, which stands beside it. Further right is more work done, "
        "further up is a longer wait: where the line turns upwards, more load only adds waiting."
    )
    drawn = alt.layer(
        *dashed_lines(base.encode(y=y), "series", content.series), _points(content, base, y), labels
    )
    return Figure("response-throughput", "Response time against throughput", caption, drawn)


def _lines(content: Content, chart: alt.Chart) -> alt.Chart:
    """Return the colour of each line and the tooltip."""
    return chart.encode(
        color=alt.Color("series:N", title=None, scale=style.colour(content.series), legend=legend(content)),
        tooltip=["series:N", alt.Tooltip("x:N", title=content.axes.x or "configuration")],
    )


def _points(content: Content, base: alt.Chart, y: alt.Y) -> alt.Chart:
    shape = alt.Shape("series:N", title=None, scale=style.shape(content.series), legend=legend(content))
    drawn: alt.Chart = base.mark_point(opacity=1).encode(y=y, shape=shape)
    return drawn
