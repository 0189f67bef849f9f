"""Stacked bars: parts that add up to a total, side by side for the lines of the other figures."""

import altair as alt

from waylab.report.figures import style
from waylab.report.figures.figure import AnyChart, values, x_category
from waylab.report.figures.rows import Row
from waylab.report.page.content import Content

# Room above the highest bar for the name that stands on it: width of a letter, and never most of the figure.
_LETTER_PIXELS = 5.8
_NAME_SHARE_MAX = 0.6


def stacked(
    content: Content,
    rows: list[Row],
    totals: list[Row],
    parts: list[str],
    unit: tuple[str, float],
) -> AnyChart:
    """Return bars of `mean_ns` by `part`; `totals` says how high each bar is, for the name upon it.

    `unit` is the title of the axis and the nanoseconds in one of its units.
    """
    title, size_ns = unit
    several = len(content.series) > 1
    highest = max((_number(row["mean_ns"]) for row in totals), default=0.0)
    longest = max(len(name) for name in content.series)
    room = 1 - min(_NAME_SHARE_MAX, _LETTER_PIXELS * (longest + 2) / style.HEIGHT)
    scale = alt.Scale(domainMax=highest / room / size_ns, nice=False) if several and highest else alt.Scale()
    offset = (
        alt.XOffset("series:N", sort=content.series, scale=alt.Scale(paddingInner=0.08))
        if several
        else alt.Undefined
    )
    bars: alt.Chart = (
        alt.Chart(values(rows))
        .transform_calculate(mean=f"datum.mean_ns / {size_ns:g}")
        .mark_bar()
        .encode(
            x=x_category(content),
            xOffset=offset,
            y=alt.Y("mean:Q", title=title, stack=True, scale=scale),
            color=alt.Color(
                "part:N", title=None, scale=style.colour(parts), sort=parts, legend=alt.Legend(columns=4)
            ),
            order=alt.Order("rank:Q"),
            tooltip=["series:N", "x:N", "part:N", alt.Tooltip("mean:Q", format=".4~g", title=title)],
        )
    )
    if not several:
        return bars
    names = (
        alt.Chart(values(totals))
        .transform_calculate(mean=f"datum.mean_ns / {size_ns:g}")
        .mark_text(angle=270, align="left", baseline="middle", dx=4, fontSize=10)
        .encode(x=x_category(content), xOffset=offset, y="mean:Q", text="series:N")
    )
    return alt.layer(bars, names)


def _number(value: object) -> float:
    """Return a value of a row as a number; 0 for null."""
    return float(value) if isinstance(value, int | float) else 0.0
