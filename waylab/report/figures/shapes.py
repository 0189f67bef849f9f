"""How response times are distributed: histogram with the fitted gamma density, one configuration at a time."""

import altair as alt

from waylab.report.figures import style
from waylab.report.figures.figure import Figure, busiest, pick, pick_operation, values
from waylab.report.figures.rows import Row, distinct
from waylab.report.page.content import Content


def histogram(content: Content) -> Figure | None:
    """Histogram and gamma density of the response time; with GET and SET, one of them at a time."""
    both = all(any(c.shapes.get(name) for c in content.configurations) for name in ("get", "set"))
    operations = ["get", "set"] if both else ["all"]
    found = [
        (content.label(c.name), operation, shape)
        for operation in operations
        for c in content.configurations
        if (shape := c.shapes.get(operation))
    ]
    if not found:
        return None
    rows: list[Row] = [
        {
            "name": name,
            "operation": operation.upper(),
            "from_ns": bar.from_ns,
            "to_ns": bar.to_ns,
            "density_per_ms": bar.density_per_ms,
            "gamma_per_ms": bar.gamma_per_ms,
        }
        for name, operation, shape in found
        for bar in shape.bars
    ]
    words: list[Row] = [
        {"name": name, "operation": operation.upper(), "text": shape.text} for name, operation, shape in found
    ]
    names, first = distinct(rows, "name"), content.label(busiest(content).name)
    parameter, condition = pick("name", "configuration", names, first if first in names else names[0])
    data, lists, further = pick_operation(alt.Chart(values(rows)), operations)
    base = data.transform_filter(condition).transform_calculate(
        from_ms="datum.from_ns / 1e6",
        to_ms="datum.to_ns / 1e6",
        middle_ms="(datum.from_ns + datum.to_ns) / 2e6",
    )
    x = alt.X(
        "from_ms:Q",
        title="response time (ms)",
        scale=alt.Scale(zero=False, nice=False),
        axis=alt.Axis(format=",.4~r"),
    )
    y = "density (1/ms)"
    bars = base.mark_bar(color=style.COLOURS[5], opacity=0.6, binSpacing=0).encode(
        x=x.bin("binned"),
        x2="to_ms:Q",
        y=alt.Y("density_per_ms:Q", title=y),
        tooltip=[
            alt.Tooltip(f"{name}:Q", format=".4~g")
            for name in ("from_ms", "to_ms", "density_per_ms", "gamma_per_ms")
        ],
    )
    line = (
        base.transform_filter("isValid(datum.gamma_per_ms)")
        .mark_line(color=style.COLOURS[1], interpolate="monotone")
        .encode(x=alt.X("middle_ms:Q", title="response time (ms)"), y=alt.Y("gamma_per_ms:Q", title=y))
    )
    text = (
        pick_operation(alt.Chart(values(words)), operations)[0]
        .transform_filter(condition)
        .transform_calculate(lines="split(datum.text, ', ')")
        .mark_text(align="right", baseline="bottom", fontSize=11, lineHeight=14, dy=-14)
        .encode(x=alt.value("width"), y=alt.value(-4), text="lines:N")
    )
    caption = (
        "Bars: all requests of all trials up to the 99th percentile. Line: the gamma distribution with the highest "
        "likelihood, over the same bars."
    )
    return Figure(
        "response-histogram",
        "Response time histogram with gamma fit",
        caption,
        alt.layer(bars, line, text).add_params(*lists, parameter),
        further=further,
    )


def histograms(content: Content) -> Figure | None:
    """Histograms of all lines in one chart, at a middle level of the factor along the figures."""
    levels = list(dict.fromkeys(c.x for c in content.configurations))
    if not levels or len(content.series) < 2:
        return None
    # The largest levels are often beyond saturation, and the smallest show no difference.
    level = levels[len(levels) // 2]
    found = [
        (c.series, shape)
        for c in content.configurations
        if c.x == level and (shape := c.shapes.get("all") or c.shapes.get("get"))
    ]
    if len(found) < 2:
        return None
    rows: list[Row] = [
        {
            "series": series,
            "from_ns": bar.from_ns,
            "to_ns": bar.to_ns,
            "density_per_ms": bar.density_per_ms,
        }
        for series, shape in found
        for bar in shape.bars
    ]
    x = alt.X("from_ms:Q", title="response time (ms)", scale=alt.Scale(zero=False))
    names = distinct(rows, "series")
    chart = (
        alt.Chart(values(rows))
        .transform_calculate(
            from_ms="datum.from_ns / 1e6",
            to_ms="datum.to_ns / 1e6",
            share="datum.density_per_ms * (datum.to_ns - datum.from_ns) / 1e6",
        )
        .mark_bar(opacity=0.5, binSpacing=0)
        .encode(
            x=x.bin("binned"),
            x2="to_ms:Q",
            y=alt.Y("share:Q", title="share of the requests", stack=None),
            color=alt.Color("series:N", title=None, scale=style.colour(names), sort=names),
            tooltip=[
                "series:N",
                *(alt.Tooltip(f"{name}:Q", format=".4~g") for name in ("from_ms", "share")),
            ],
        )
    )
    at = f"{content.axes.x} = {level:g}" if isinstance(level, float | int) else f"{content.axes.x} = {level}"
    caption = (
        "All requests of all trials up to the 99th percentile. Bars of one line are equally wide; "
        "wide ones contain more requests."
    )
    return Figure("response-histograms", f"Response time histograms, {at}", caption, alt.layer(chart))
