"""Every factor once along the figure: response time with its quartiles, GET and SET apart, and throughput."""

import altair as alt

from waylab.report.figures import style
from waylab.report.figures.figure import (
    INTERVALS,
    AnyChart,
    Figure,
    milliseconds,
    operations_apart,
    pick_operation,
    quantity_axis,
    slug,
    values,
    x_along,
)
from waylab.report.figures.rows import Row, distinct, interval_columns
from waylab.report.page.content import Content
from waylab.runfolder.analysis import Configuration, View

# More lines than this cannot be distinguished.
_SERIES_MAX = 12
_FIELDS = ("mean_ns", "low_ns", "high_ns", "p25_ns", "p50_ns", "p75_ns")


def by_factor(content: Content) -> list[Figure]:
    """Response time and throughput along each factor, the other factors being the lines."""
    if not content.axes.x:
        return []
    operations = operations_apart(content)
    found = []
    for number, view in enumerate([content.axes, *content.axes.views]):
        # The figures before this one show throughput and mean of all requests along the first view already.
        figures = (
            [_response(content, view, operations, main=not number)] if number or len(operations) > 1 else []
        )
        figures += [_throughput(content, view)] if number else []
        found += [figure for figure in figures if figure is not None]
    return found


def _place(configuration: Configuration, view: View, main: bool) -> Row:
    found = configuration if main else configuration.places[str(view.x)]
    return {"x": found.x, "series": found.series}


def _response(content: Content, view: View, operations: list[str], main: bool) -> Figure | None:
    rows: list[Row] = []
    for operation in operations:
        for c in content.configurations:
            found = c.operations.get(operation)
            if found and found.count:
                quartiles = {
                    f"p{percent}_ns": found.percentiles_ns.get(percent) for percent in ("25", "50", "75")
                }
                place = _place(c, view, main)
                times = interval_columns(found.response_mean_ns, "_ns")
                rows.append({**place, "operation": operation.upper(), **times, **quartiles})
    names = distinct(rows, "series")
    if not rows or len(names) > _SERIES_MAX:
        return None
    data, lists, further = pick_operation(alt.Chart(values(rows)), operations)
    chart = milliseconds(data, *_FIELDS)
    drawn = _layers(chart, view, names, quantity_axis("mean_ms:Q", "response time", "ms", rows, "mean_ns"))
    caption = (
        f"Filled marks: means. {INTERVALS} Bands: from the lower to the upper quartile of all requests. Dashed "
        "lines or open marks in the bands: medians."
    )
    return Figure(
        f"response-by-{slug(str(view.x))}",
        f"Response time against {view.x}",
        caption,
        drawn.add_params(*lists),
        further=further,
    )


def _throughput(content: Content, view: View) -> Figure | None:
    rows = [
        {
            **_place(c, view, main=False),
            **interval_columns(c.throughput_per_s, "_ms"),
        }
        for c in content.configurations
    ]
    names = distinct(rows, "series")
    if len(names) > _SERIES_MAX:
        return None
    y = alt.Y("mean_ms:Q", title="throughput (requests/s)", scale=alt.Scale(zero=True))
    chart = _layers(alt.Chart(values(rows)), view, names, y, quartiles=False)
    caption = f"Mean over trials. {INTERVALS} Click the legend to single out a line."
    return Figure(f"throughput-by-{slug(str(view.x))}", f"Throughput against {view.x}", caption, chart)


def _layers(chart: alt.Chart, view: View, names: list[str], y: alt.Y, quartiles: bool = True) -> AnyChart:
    """Mean with interval, and the quartiles behind it; side by side where the factor is no quantity."""
    numeric, several = view.numeric, len(names) > 1
    chosen = alt.selection_point(fields=["series"], bind="legend")
    legend = alt.Legend(columns=style.columns(names), symbolOpacity=1) if several else None
    offset = alt.XOffset("series:N", sort=names) if several and not numeric else alt.Undefined
    fields = ["mean_ms", "low_ms", "high_ms"] + (["p25_ms", "p50_ms", "p75_ms"] if quartiles else [])
    base = chart.encode(
        x=x_along(view),
        xOffset=offset,
        color=alt.Color("series:N", title=None, scale=style.colour(names), legend=legend),
        tooltip=[
            "series:N",
            alt.Tooltip("x:N", title=view.x),
            *(alt.Tooltip(f"{name}:Q", title=name.replace("_ms", ""), format=",.4~g") for name in fields),
        ],
    )
    strong = base.encode(opacity=alt.condition(chosen, alt.value(1.0), alt.value(0.12)))
    weak = base.encode(opacity=alt.condition(chosen, alt.value(0.2), alt.value(0.03)))
    title = y["title"]
    layers: list[alt.Chart] = []
    if quartiles:
        band = weak.encode(y=alt.Y("p25_ms:Q", title=title), y2="p75_ms:Q")
        median = strong.encode(y=alt.Y("p50_ms:Q", title=title))
        layers.append(band.mark_area() if numeric else band.mark_bar(size=22 if not several else 14))
        layers.append(
            median.mark_line(strokeDash=[2, 3], strokeWidth=1.2)
            if numeric
            else median.mark_point(filled=False, size=50)
        )
    layers += [strong.encode(y=y).mark_line()] if numeric else []
    layers.append(
        strong.transform_filter("isValid(datum.low_ms)")
        .mark_rule(clip=True)
        .encode(y=alt.Y("low_ms:Q", title=title), y2="high_ms:Q")
    )
    shape = alt.Shape("series:N", title=None, scale=style.shape(names), legend=legend)
    layers.append(strong.encode(y=y, shape=shape).mark_point(filled=True))
    return alt.layer(*layers).add_params(chosen)
