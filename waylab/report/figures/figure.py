"""One figure: its name, its words and its chart, and what all charts have in common."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import altair as alt

from waylab.report.figures import style
from waylab.report.figures.rows import Row
from waylab.report.page.content import Content
from waylab.runfolder.analysis import Configuration, View

# `alt.layer` gives a facet chart when one of its parts is one.
AnyChart = alt.Chart | alt.LayerChart | alt.FacetChart


@dataclass(frozen=True)
class Figure:
    """A chart with the words around it."""

    name: str
    title: str
    caption: str
    chart: AnyChart
    height: int = style.HEIGHT
    # The question of the page that it answers, set by the list of drawers.
    group: str = ""
    # Further drawings for files, which have no list to choose from: suffix of the name, and what is chosen.
    further: dict[str, str] = field(default_factory=dict)

    @property
    def titled(self) -> AnyChart:
        """The chart with its title and size."""
        return self.chart.properties(width=style.WIDTH, height=self.height, title=self.title)

    def __post_init__(self) -> None:
        """Make the name safe for files, elements and expressions, because names of factors are part of it."""
        object.__setattr__(self, "name", re.sub(r"[^A-Za-z0-9.-]+", "-", self.name))


OPERATION = "operation"
"""Column, and list to choose from, of figures that can show one operation at a time."""


def operations_apart(content: Content) -> list[str]:
    """Return GET and SET if there are both, or else all operations together."""
    both = all(
        any(name in c.operations and c.operations[name].count for c in content.configurations)
        for name in ("get", "set")
    )
    return ["get", "set"] if both else ["all"]


def pick_operation(
    chart: alt.Chart, names: list[str]
) -> tuple[alt.Chart, list[alt.Parameter], dict[str, str]]:
    """Let the reader choose an operation: the filtered chart, its list, and the drawings of the others for files."""
    if len(names) < 2:
        return chart, [], {}
    labels = [name.upper() for name in names]
    parameter, condition = pick(OPERATION, OPERATION, labels, labels[0])
    return chart.transform_filter(condition), [parameter], dict(zip(names[1:], labels[1:], strict=True))


LOG = "log scale"
"""Part of the title of every logarithmic axis."""
# If the ratio of the largest to the smallest value is above this, small values cannot be read on a linear axis.
_DECADE = 10.0
# Height of a line of labels between bars and axis.
_BENEATH_PIXELS = 16
INTERVALS = "Thin lines through the marks: 95 % confidence intervals of the means across blocks."
"""The sentence about intervals in captions."""


def log_axis() -> alt.Axis:
    """Return a logarithmic axis with few grid lines."""
    return alt.Axis(format="~g", tickCount=5, labelOverlap="greedy")


def quantity_axis(field: str, name: str, unit: str, rows: Sequence[Row], column: str) -> alt.Y:
    """Return a vertical axis from zero, or a logarithmic one if the column differs by more than a decade."""
    known = [float(value) for row in rows if isinstance(value := row[column], int | float)]
    if not known or min(known) <= 0 or max(known) <= _DECADE * min(known):
        return alt.Y(field, title=f"{name} ({unit})", scale=alt.Scale(zero=True, domainMin=0))
    scale = alt.Scale(type="log", nice=False, padding=12)
    return alt.Y(field, title=f"{name} ({unit}, {LOG})", scale=scale, axis=log_axis())


def x_axis(content: Content) -> alt.X:
    """Return the factor along the figure."""
    return x_along(content.axes)


def x_along(axes: View) -> alt.X:
    """Return the factor of one view; what is no quantity stands side by side in the order of its levels."""
    title = (axes.x or "configuration") + (f" ({LOG})" if axes.logarithmic else "")
    if not axes.numeric:
        return alt.X(
            "x:N", title=title, sort=_levels(axes) or None, axis=alt.Axis(labelAngle=0, labelOverlap=True)
        )
    axis = alt.Axis(values=_levels(axes), format=",.6~g", grid=False, labelOverlap="greedy")
    scale = (
        alt.Scale(type="log", base=2, nice=False, padding=16)
        if axes.logarithmic
        else alt.Scale(zero=False, nice=False, padding=16)
    )
    return alt.X("x:Q", title=title, scale=scale, axis=axis)


def _levels(axes: View) -> list[float] | list[str]:
    """Return the levels in order, all as numbers or all as text."""
    if axes.numeric:
        return [float(level) for level in axes.levels]
    return [str(level) for level in axes.levels]


def x_category(content: Content, beneath: str = "") -> alt.X:
    """Return the factor along the figure as categories: the levels are equally spaced.

    `beneath` names the values between the bars and the labels of the axis; the labels then leave room for them.
    """
    axes = content.axes
    return alt.X(
        "x:O",
        title=(axes.x or "configuration") + (f"; beneath each bar: {beneath}" if beneath else ""),
        sort=_levels(axes) or None,
        axis=alt.Axis(
            labelAngle=0,
            format=",.6~g" if axes.numeric else "",
            labelPadding=_BENEATH_PIXELS if beneath else alt.Undefined,
            ticks=not beneath,
        ),
    )


def values(rows: Sequence[Row]) -> alt.Data:
    """Put rows into a chart."""
    return alt.Data(values=rows)  # type: ignore[no-untyped-call]


def milliseconds(chart: alt.Chart, *names: str) -> alt.Chart:
    """Let the chart itself turn nanoseconds into milliseconds, so that its data are those of the JSON."""
    for name in names:
        chart = chart.transform_calculate(
            **{name.replace("_ns", "_ms"): f"datum.{name} === null ? null : datum.{name} / 1e6"}
        )
    return chart


def legend(content: Content) -> alt.Legend | None:
    """Return the legend of the lines; a single line needs none."""
    return alt.Legend(columns=style.columns(content.series)) if len(content.series) > 1 else None


def slug(name: str) -> str:
    """Turn the name of a factor into a part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def pick(name: str, label: str, options: list[str], chosen: str) -> tuple[alt.Parameter, str]:
    """Return a list to choose from, and the condition on a column `name` that follows it."""
    bound = alt.binding_select(options=options, name=f"{label} ")
    return alt.param(name=f"picked_{name}", value=chosen, bind=bound), f"datum.{name} === picked_{name}"


def busiest(content: Content) -> Configuration:
    """Return the configuration with the highest throughput: the one that is shown first."""
    return max(content.configurations, key=lambda c: c.throughput_per_s.mean or 0.0)


def dashed_lines(chart: alt.Chart, field: str, names: list[str]) -> list[alt.Chart]:
    """Return one layer of lines for each name, so that the dashes need no legend beside colours and marks."""
    return [
        chart.transform_filter(alt.FieldEqualPredicate(equal=name, field=field)).mark_line(
            strokeDash=style.DASHES[index % len(style.DASHES)]
        )
        for index, name in enumerate(names)
    ]
