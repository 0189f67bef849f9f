"""Stacked bars: parts that add up to a total, side by side for the lines of the other figures.

The total is written above each bar. With few bars, the level of the other factors is written beneath it. With many
bars, the name of the line is written above it, vertically.
"""

from dataclasses import dataclass

import altair as alt

from waylab.report.figures import style
from waylab.report.figures.figure import AnyChart, values, x_category
from waylab.report.figures.rows import Row
from waylab.report.page.content import Content

# Room above the highest bar for vertical text: the width of a letter, and the largest share of the figure.
_LETTER_PIXELS = 5.8
_NAME_SHARE_MAX = 0.6
_TOTAL_LETTERS = 6
# With more bars or longer labels than this, neighbouring labels would overlap.
_BARS_MAX, _LABEL_MAX = 12, 5
# The share of the figure that the highest bar can have with a horizontal number above it.
_LEVEL_ROOM = 0.9


@dataclass(frozen=True)
class Unit:
    """The unit of a stack: title of the axis, name, nanoseconds in one unit, and whether the axis shows shares."""

    title: str
    name: str
    size_ns: float
    shares: bool = False


def stacked(content: Content, rows: list[Row], totals: list[Row], parts: list[str], unit: Unit) -> AnyChart:
    """Return bars of `mean_ns` by `part`; `totals` has the height of each bar, for the number above it."""
    several = len(content.series) > 1
    labels = _labels(content) if several and len(totals) <= _BARS_MAX else {}
    upright = several and not labels
    highest = max((_number(row["mean_ns"]) for row in totals), default=0.0) / unit.size_ns
    room = (
        1 - min(_NAME_SHARE_MAX, _LETTER_PIXELS * _longest(content) / style.HEIGHT)
        if upright
        else _LEVEL_ROOM
    )
    top = 1.0 if unit.shares else highest
    scale = alt.Scale(domainMax=top / room, nice=False) if highest else alt.Scale()
    x = x_category(content, ", ".join(content.axes.series) if labels else "")
    offset = (
        alt.XOffset("series:N", sort=content.series, scale=alt.Scale(paddingInner=0.08))
        if several
        else alt.Undefined
    )
    axis = alt.Axis(format=".0%", values=[0, 0.25, 0.5, 0.75, 1]) if unit.shares else alt.Axis()
    bars: alt.Chart = (
        alt.Chart(values(rows))
        .transform_calculate(mean=f"datum.mean_ns / {unit.size_ns:g}")
        .mark_bar()
        .encode(
            x=x,
            xOffset=offset,
            y=alt.Y(
                "mean:Q",
                title=f"{unit.title}; above the bar: total ({unit.name})"
                if unit.shares
                else f"{unit.title} ({unit.name})",
                stack="normalize" if unit.shares else True,
                scale=scale,
                axis=axis,
            ),
            color=alt.Color(
                "part:N", title=None, scale=style.colour(parts), sort=parts, legend=alt.Legend(columns=4)
            ),
            order=alt.Order("rank:Q"),
            tooltip=[
                "series:N",
                "x:N",
                "part:N",
                alt.Tooltip("mean:Q", format=".4~g", title=f"mean ({unit.name})"),
            ],
        )
    )
    number = "(datum.mean >= 99.5 ? format(datum.mean, ',.0f') : format(datum.mean, '.2r'))"
    text = f"datum.series + ': ' + {number}" if upright else number
    above = (
        alt.Chart(values(totals))
        .transform_calculate(mean=f"datum.mean_ns / {unit.size_ns:g}")
        .transform_calculate(above=text)
        .encode(x=x, xOffset=offset, y=alt.datum(1) if unit.shares else "mean:Q", text="above:N")
    )
    above = (
        above.mark_text(angle=270, align="left", baseline="middle", dx=4, fontSize=10)
        if upright
        else above.mark_text(baseline="bottom", dy=-2, fontSize=10)
    )
    if not labels:
        return alt.layer(bars, above)
    # The levels are written between the bars and the labels of the axis.
    beneath = [
        {"x": row["x"], "series": row["series"], "label": labels[str(row["series"])]} for row in totals
    ]
    levels = alt.Chart(values(beneath)).mark_text(baseline="top", dy=5, fontSize=10, opacity=0.8)
    return alt.layer(bars, above, levels.encode(x=x, xOffset=offset, y=alt.value("height"), text="label:N"))


def _labels(content: Content) -> dict[str, str]:
    """Return the levels that distinguish the lines, by line; empty if they are too long to fit beneath a bar."""
    found = {
        c.series: ", ".join(c.levels[name] for name in content.axes.series) for c in content.configurations
    }
    return found if all(len(label) <= _LABEL_MAX for label in found.values()) else {}


def _longest(content: Content) -> int:
    return max(len(name) for name in content.series) + 2 + _TOTAL_LETTERS


def _number(value: object) -> float:
    """Return a value of a row as a number; 0 for null."""
    return float(value) if isinstance(value, int | float) else 0.0
