"""Figures of throughput, response time and its distribution."""

import altair as alt

from waylab.report.figures import style
from waylab.report.figures.figure import (
    INTERVALS,
    LOG,
    AnyChart,
    Figure,
    dashed_lines,
    legend,
    log_axis,
    milliseconds,
    quantity_axis,
    values,
    x_axis,
)
from waylab.report.figures.rows import Row, distinct, interval_columns
from waylab.report.page.content import Content
from waylab.runfolder.analysis import Configuration
from waylab.runfolder.numbers import Interval

_PERCENTS = ("1", "5", "50", "95", "99")
# With more lines than this the lower percentiles would only be in the way.
_SERIES_FEW = 3
# Distance of the marks of two lines at the same place.
_DODGE_PIXELS = 5


def throughput(content: Content) -> Figure | None:
    """Throughput along x, one line for each combination of the other factors."""
    rows = [_point(c, c.throughput_per_s) for c in content.configurations]
    if not rows:
        return None
    y = alt.Y("mean:Q", title="throughput (requests/s)", scale=alt.Scale(zero=True, domainMin=0))
    chart: AnyChart = _lines(content, alt.Chart(values(rows)), y, ("mean", "low", "high"), ",.0f")
    caption = f"Mean over trials. {INTERVALS} Click the legend to single out a line."
    marks = _bends(content)
    if marks:
        chart = alt.layer(*marks, chart)
        caption += (
            " Vertical lines, in the colour of their series: dashed at the knee (smallest load with 90 % of "
            "the best throughput), dotted at the first load whose 95th "
            "percentile exceeds twice that of the smallest load."
        )
    return Figure("throughput", "Throughput", caption, chart)


def _bends(content: Content) -> list[alt.Chart]:
    """Vertical lines at the knee and at the first slow load of every line."""
    rows: list[Row] = [
        {"series": curve.series, "kind": kind, "x": bend.load, "text": bend.text}
        for curve in content.analysis.curves
        for kind, bend in (("knee", curve.knee), ("first_slow", curve.first_slow))
        if bend is not None and bend.load is not None
    ]
    scale = style.colour(content.series)
    return [
        alt.Chart(values([row for row in rows if row["kind"] == kind]))
        .mark_rule(strokeDash=dashes, strokeWidth=1.5, opacity=0.8)
        .encode(
            x=x_axis(content),
            color=alt.Color("series:N", title=None, scale=scale, legend=legend(content)),
            tooltip=["series:N", "text:N"],
        )
        for kind, dashes in (("knee", [7, 4]), ("first_slow", [1, 4]))
        if any(row["kind"] == kind for row in rows)
    ]


def response_mean(content: Content) -> Figure | None:
    """Mean response time along x."""
    rows: list[Row] = [
        _point(c, c.operations["all"].response_mean_ns, "_ns")
        for c in content.configurations
        if "all" in c.operations
    ]
    if not rows:
        return None
    chart = milliseconds(alt.Chart(values(rows)), "mean_ns", "low_ns", "high_ns")
    y = quantity_axis("mean_ms:Q", "mean response time", "ms", rows, "mean_ns")
    lines = _lines(content, chart, y, ("mean_ms", "low_ms", "high_ms"), ".3f")
    caption = (
        "As the clients see it: from the moment a request is intended to its complete reply. "
        f"Mean over trials. {INTERVALS}"
    )
    return Figure("response-mean", "Mean response time", caption, lines)


def response_percentiles(content: Content) -> Figure | None:
    """Percentiles of the response time, from merged histograms."""
    rows: list[Row] = [
        {
            "x": c.x,
            "series": c.series,
            "percentile": f"p{percent}",
            "value_ns": c.operations["all"].percentiles_ns[percent],
        }
        for c in content.configurations
        for percent in (_PERCENTS if len(content.series) <= _SERIES_FEW else _PERCENTS[2:])
        if "all" in c.operations and percent in c.operations["all"].percentiles_ns
    ]
    if not rows:
        return None
    chart = milliseconds(alt.Chart(values(rows)), "value_ns")
    names = [
        f"p{percent}" for percent in _PERCENTS if any(row["percentile"] == f"p{percent}" for row in rows)
    ]
    chosen = alt.selection_point(fields=["series"], bind="legend")
    base = chart.encode(
        x=x_axis(content),
        y=alt.Y(
            "value_ms:Q",
            title=f"response time (ms, {LOG})",
            scale=alt.Scale(type="log", nice=False, padding=12),
            axis=log_axis(),
        ),
        color=alt.Color("series:N", title=None, scale=style.colour(content.series), legend=legend(content)),
        opacity=alt.condition(chosen, alt.value(1.0), alt.value(0.15)),
        tooltip=_tooltip(content, ("percentile:N", ""), ("value_ms:Q", ".3f")),
    )
    # The marks of the legend have no series and so no colour: grey can be seen on a light and on a dark page.
    grey = alt.Legend(symbolStrokeColor="#808080", symbolFillColor="#808080")
    shapes = alt.Shape("percentile:N", title=None, scale=style.shape(names), sort=names, legend=grey)
    lines = dashed_lines(base, "percentile", names) if content.axes.numeric else []
    layers = alt.layer(*lines, base.mark_point().encode(shape=shapes)).add_params(chosen)
    caption = "Percentiles of all requests of all trials together (merged histograms)."
    return Figure("response-percentiles", "Response time percentiles", caption, layers)


def distribution(content: Content) -> Figure | None:
    """Cumulative distribution of the response time."""
    rows: list[Row] = [
        {
            "x": c.levels.get(content.axes.x or "", "base"),
            "series": c.series,
            "name": content.label(c.name),
            "share": point.share,
            "response_ns": point.response_ns,
        }
        for c in content.configurations
        for point in c.distribution
    ]
    if not rows:
        return None
    order = sorted(distinct(rows, "x"), key=lambda label: _rank(content, label))
    chosen = alt.selection_point(fields=["x"], bind="legend")
    ordered = content.axes.numeric and len(order) > 4
    scheme = alt.Scale(domain=order, scheme="viridis") if ordered else style.colour(order)
    chart = (
        milliseconds(alt.Chart(values(rows)), "response_ns")
        .mark_line()
        .encode(
            x=alt.X(
                "response_ms:Q",
                title=f"response time (ms, {LOG})",
                scale=alt.Scale(type="log", nice=False),
                axis=log_axis(),
            ),
            y=alt.Y("share:Q", title="share of requests answered within", axis=alt.Axis(format=".0%")),
            color=alt.Color("x:N", title=content.axes.x or "configuration", scale=scheme, sort=order),
            detail="name:N",
            opacity=alt.condition(chosen, alt.value(1.0), alt.value(0.1)),
            order="share:Q",
            tooltip=[
                "name:N",
                alt.Tooltip("share:Q", format=".2%"),
                alt.Tooltip("response_ms:Q", format=".3f"),
            ],
        )
    )
    if len(content.series) > 1:
        chart = chart.encode(
            strokeDash=alt.StrokeDash(
                "series:N", title=None, scale=style.dash(content.series), legend=legend(content)
            )
        )
    caption = (
        "Cumulative distribution over all requests, as far as ten requests lie above. "
        "Click the legend to single out a level."
    )
    return Figure(
        "response-distribution", "Response time distribution (cumulative)", caption, chart.add_params(chosen)
    )


def _rank(content: Content, label: str) -> float:
    levels = [str(f"{level:g}") if isinstance(level, float) else str(level) for level in content.axes.levels]
    return levels.index(label) if label in levels else len(levels)


def _point(configuration: Configuration, interval: Interval, unit: str = "") -> Row:
    return {
        "x": configuration.x,
        "series": configuration.series,
        **interval_columns(interval, unit),
    }


def _tooltip(content: Content, *fields: tuple[str, str]) -> list[alt.Tooltip]:
    tips = [alt.Tooltip("series:N"), alt.Tooltip("x:N", title=content.axes.x or "configuration")]
    return tips + [alt.Tooltip(name, format=form) if form else alt.Tooltip(name) for name, form in fields]


def _lines(
    content: Content,
    chart: alt.Chart,
    y: alt.Y,
    fields: tuple[str, str, str],
    form: str,
) -> AnyChart:
    """Lines with marks and intervals; only marks and intervals if x is not a quantity."""
    title, (_, low, high) = y["title"], fields
    chosen = alt.selection_point(fields=["series"], bind="legend")
    names = content.series
    base = chart.encode(
        x=x_axis(content),
        color=alt.Color("series:N", title=None, scale=style.colour(names), legend=legend(content)),
        opacity=alt.condition(chosen, alt.value(1.0), alt.value(0.15)),
        tooltip=_tooltip(content, *((f"{name}:Q", form) for name in fields)),
    )
    shape = alt.Shape("series:N", title=None, scale=style.shape(names), legend=legend(content))
    layers = []
    for index, name in enumerate(names):
        # Side by side, because the marks and intervals of several lines would otherwise overlap.
        one = base.transform_filter(alt.FieldEqualPredicate(equal=name, field="series")).encode(
            xOffset=alt.value(_DODGE_PIXELS * (index - (len(names) - 1) / 2))
        )
        if content.axes.numeric:
            dashes = style.DASHES[index % len(style.DASHES)]
            layers.append(one.mark_line(strokeDash=dashes).encode(y=y))
        bars = one.transform_filter(f"isValid(datum.{low})").mark_rule(clip=True)
        layers.append(bars.encode(y=alt.Y(f"{low}:Q", title=title), y2=f"{high}:Q"))
        layers.append(one.mark_point(opacity=1).encode(y=y, shape=shape))
    return alt.layer(*layers).add_params(chosen)
