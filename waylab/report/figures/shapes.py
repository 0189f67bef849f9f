"""How response times are distributed: histogram with the fitted gamma density, one configuration at a time."""

import altair as alt

from waylab.report.figures import style
from waylab.report.figures.figure import Figure, busiest, pick, values
from waylab.report.figures.rows import Row
from waylab.report.page.content import Content


def histogram(content: Content) -> list[Figure]:
    """Histogram and gamma density of the response time; GET and SET apart where there are both."""
    several = all(any(c.shapes.get(name) for c in content.configurations) for name in ("get", "set"))
    found = (_histogram(content, name) for name in (("get", "set") if several else ("all",)))
    return [figure for figure in found if figure is not None]


def _histogram(content: Content, operation: str) -> Figure | None:
    found = {c.name: shape for c in content.configurations if (shape := c.shapes.get(operation))}
    if not found:
        return None
    rows: list[Row] = [
        {
            "name": name,
            "from_ns": bar.from_ns,
            "to_ns": bar.to_ns,
            "density_per_ms": bar.density_per_ms,
            "gamma_per_ms": bar.gamma_per_ms,
        }
        for name, shape in found.items()
        for bar in shape.bars
    ]
    words: list[Row] = [{"name": name, "text": shape.text} for name, shape in found.items()]
    names, first = list(found), busiest(content).name
    parameter, condition = pick("name", "configuration", names, first if first in found else names[0])
    base = (
        alt.Chart(values(rows))
        .transform_filter(condition)
        .transform_calculate(
            from_ms="datum.from_ns / 1e6",
            to_ms="datum.to_ns / 1e6",
            middle_ms="(datum.from_ns + datum.to_ns) / 2e6",
        )
    )
    x = alt.X(
        "from_ms:Q",
        title="response time, ms",
        scale=alt.Scale(zero=False, nice=False),
        axis=alt.Axis(format=",.4~r"),
    )
    y = "density, 1/ms"
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
        .encode(x=alt.X("middle_ms:Q", title="response time, ms"), y=alt.Y("gamma_per_ms:Q", title=y))
    )
    text = (
        alt.Chart(values(words))
        .transform_filter(condition)
        .transform_calculate(lines="split(datum.text, ', ')")
        .mark_text(align="right", baseline="bottom", fontSize=11, lineHeight=14, dy=-14)
        .encode(x=alt.value("width"), y=alt.value(-4), text="lines:N")
    )
    what = "" if operation == "all" else f" of {operation.upper()}"
    caption = (
        "Bars: all requests of all trials up to the 99th percentile. Line: the gamma distribution with the highest "
        "likelihood, over the same bars."
    )
    kind = "" if operation == "all" else f"-{operation}"
    title = f"Response time{what}, histogram and gamma fit"
    return Figure(
        f"response-histogram{kind}", title, caption, alt.layer(bars, line, text).add_params(parameter)
    )
