"""Charts of models: utilisation, sweeps with their bounds, distributions, the scalability law. Draws only."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import altair as alt

from waylab.models.summary.bounds import SweepBoundsRow
from waylab.models.summary.findings_rows import SweepRow
from waylab.models.summary.queue import QuantilePoint
from waylab.models.summary.result import ResultRow
from waylab.models.summary.usl import UslRow
from waylab.report.figures import style
from waylab.report.figures.figure import values
from waylab.report.models.figure import ModelFigure, Row
from waylab.report.page.numbers import time_text

_BAR_HEIGHT = 22
_PANEL_HEIGHT = 240
# Position of a label: below the throughput at a knee, and above the lower bounds.
_WORDS_DOWN = 0.55
_Quantity = Literal["throughput_per_s", "response_s"]
_ALL = "all classes"
_MARKS_MAX = 45
_CLASSES_MAX = 6
# The default format of an axis writes 1e+2 for 100.
_PLAIN = "format(datum.value, ',~r')"
_PERCENT = "format(100 * datum.value, '.0f') + ' %'"


class _Point(NamedTuple):
    """One mark in a panel: the swept value, the class, and the number."""

    x: float
    part: str
    y: float


def utilisation_bars(result: ResultRow) -> ModelFigure:
    """Draw the utilisation of each station by class, and the busy slots of each pool.

    Delay stations are left out, because no request waits there.
    """
    rows: list[Row] = []
    totals: list[tuple[str, float | None]] = []
    parts: list[str] = []
    for station in result["stations"]:
        if station["servers"] is None:
            continue
        for rank, part in enumerate(station["classes"]):
            row: Row = {"place": station["name"], "part": part["name"], "rank": rank}
            rows.append(row | {"busy": part["utilisation"]})
            parts.append(part["name"])
        totals.append((station["name"], station["utilisation"]))
    for pool in result["pools"]:
        if pool["busy_share"] is not None:
            name = f"slots of {pool['name']}"
            rows.append({"place": name, "part": "busy slots", "rank": 0, "busy": pool["busy_share"]})
            parts.append("busy slots")
            totals.append((name, pool["busy_share"]))
    order = [place for place, _ in sorted(totals, key=lambda total: -(total[1] or 0))]
    parts = list(dict.fromkeys(parts))
    title = "Utilisation of the stations"
    y = alt.Y("place:N", title=None, sort=order, axis=alt.Axis(labelLimit=240))
    x = alt.X(
        "busy:Q",
        title="share of the servers that is busy",
        scale=alt.Scale(domain=[0, 1.08], nice=False),
        axis=alt.Axis(labelExpr=_PERCENT, values=[0, 0.2, 0.4, 0.6, 0.8, 1.0]),
    )
    bars = (
        alt.Chart(values(rows))
        .mark_bar(cornerRadiusEnd=2, height=_BAR_HEIGHT - 7)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "part:N",
                title=None,
                sort=parts,
                scale=style.colour(parts),
                legend=alt.Legend(columns=style.columns(parts)) if len(parts) > 1 else None,
            ),
            order=alt.Order("rank:Q"),
            tooltip=["place:N", "part:N", alt.Tooltip("busy:Q", format=".2%")],
        )
    )
    words = [
        alt.Chart(values([{"place": place, "busy": busy} for place, busy in totals]))
        .transform_calculate(words="format(100 * datum.busy, '.1f') + ' %'")
        .mark_text(style=kind, align="left", dx=6, fontSize=11)
        .encode(x=x, y=y, text="words:N")
        for kind in ("halo", "words")
    ]
    full = (
        alt.Chart(values([{"busy": 1.0}]))
        .mark_rule(style="ink", strokeDash=[4, 4], strokeOpacity=0.6)
        .encode(x=x)
    )
    chart = alt.layer(full, bars, *words).properties(
        width=style.WIDTH - 120, height=max(2, len(totals)) * _BAR_HEIGHT, title=title
    )
    caption = "The busiest first. At 100 %, queues grow with every further request."
    return ModelFigure("utilisation", title, caption, chart)


def sweep_chart(
    parameter: str,
    rows: Sequence[SweepRow],
    bounds: Sequence[SweepBoundsRow],
    knee: float | None = None,
) -> ModelFigure:
    """Draw throughput and response time along a parameter, with bounds.

    `knee` is the number of clients where the asymptotes meet.
    """
    unit, size_s = _unit([row["response_s"] for row in rows])
    throughput = _panel(parameter, _points(rows, "throughput_per_s", 1.0), "throughput, requests/s")
    response = _panel(parameter, _points(rows, "response_s", size_s), f"mean response time, {unit}")
    last = max(row["value"] for row in rows)
    panels = []
    kinds: tuple[_Quantity, _Quantity] = ("throughput_per_s", "response_s")
    for (layers, highest), what, size in zip((throughput, response), kinds, (1.0, size_s), strict=True):
        lines = _bound_lines(parameter, bounds, what, size, highest)
        words: list[alt.Chart] = []
        if knee is not None and knee <= last:
            rule, words = _vertical(knee, f"knee {knee:.3g}", _x(parameter), _WORDS_DOWN * _PANEL_HEIGHT)
            lines.append(rule)
        panel = alt.layer(*lines, *layers, *(words if what == "throughput_per_s" else []))
        panels.append(panel.properties(width=style.WIDTH, height=_PANEL_HEIGHT))
    title = f"Along {parameter}"
    chart = alt.vconcat(*panels, title=title).resolve_scale(
        color="shared", strokeDash="shared", shape="shared"
    )
    caption = "Marks: the solved network."
    if bounds:
        caption += " Dashed: bounds from the demands alone; the exact values lie between the lower and the upper bound."
    if knee is not None:
        caption += f" The vertical line is the knee, {knee:.3g} clients, where the two asymptotes meet."
    return ModelFigure("sweep", title, caption, chart)


def distribution_chart(name: str, curves: Sequence[QuantilePoint]) -> ModelFigure:
    """Draw the distributions of response and waiting time."""
    parts = list(dict.fromkeys(row["part"] for row in curves))
    unit, size_s = _unit([row["time_s"] for row in curves])
    rows: list[Row] = [{**row, "time": row["time_s"] / size_s} for row in curves]
    base = alt.Chart(values(rows)).encode(
        x=alt.X("time:Q", title=f"time, {unit}", scale=alt.Scale(zero=True)),
        y=alt.Y(
            "share:Q",
            title="share of the requests that take at most this long",
            scale=alt.Scale(domain=[0, 1]),
            axis=alt.Axis(labelExpr=_PERCENT),
        ),
        tooltip=[
            "part:N",
            alt.Tooltip("share:Q", format=".1%"),
            alt.Tooltip("time:Q", format=".4~g", title=unit),
        ],
    )
    colour = alt.Color("part:N", title=None, sort=parts, scale=style.colour(parts))
    dashes = alt.StrokeDash("part:N", title=None, sort=parts, scale=style.dash(parts))
    lines = base.mark_line().encode(color=colour, strokeDash=dashes)
    marked: list[Row] = [
        {
            **row,
            "time": row["time_s"] / size_s,
            "words": f"{100 * row['share']:.3g} %: {_time(row['time_s'])}",
        }
        for row in curves
        if row["part"] == parts[0] and row["marked"]
    ]
    marks = alt.Chart(values(marked)).encode(x="time:Q", y="share:Q")
    points = marks.mark_point(color=style.COLOURS[0], size=60, filled=True, opacity=1)
    words = marks.mark_text(style="words", align="left", baseline="top", dx=7, dy=3, fontSize=11).encode(
        text="words:N"
    )
    chart = alt.layer(lines, points, words).properties(width=style.WIDTH, height=style.HEIGHT, title=name)
    caption = "Cumulative distribution; the marks are quantiles of the " + parts[0] + " time."
    return ModelFigure("distribution", f"{name}: distribution", caption, chart)


def usl_chart(content: UslRow, runs: Sequence[Mapping[str, float]]) -> ModelFigure:
    """Draw a fitted law with its band, and the measured runs by `clients` and `throughput_per_s`."""
    title = "Universal Scalability Law"
    x = alt.X(
        "clients:Q",
        title="clients",
        scale=alt.Scale(zero=True, nice=False),
        axis=alt.Axis(labelExpr=_PLAIN, grid=False, labelOverlap="greedy"),
    )
    highest = max(point["throughput_per_s"] for point in content["curve"])
    top = 1.15 * max(highest, *(run["throughput_per_s"] for run in runs))
    y = alt.Y(
        "throughput_per_s:Q", title="throughput, requests/s", scale=alt.Scale(domain=[0, top], nice=False)
    )
    curve = alt.Chart(values([{**point} for point in content["curve"]])).encode(x=x)
    known: list[Row] = [{**point} for point in content["curve"] if point["low_per_s"] is not None]
    band = (
        alt.Chart(values(known))
        .mark_area(color=style.COLOURS[0], opacity=0.22, clip=True)
        .encode(x=x, y=alt.Y("low_per_s:Q", title="throughput, requests/s"), y2="high_per_s:Q")
    )
    line = curve.mark_line(color=style.COLOURS[0]).encode(y=y)
    points = (
        alt.Chart(values([{**run} for run in runs]))
        .mark_point(color=style.COLOURS[1], shape="square", filled=False, opacity=1, size=40)
        .encode(x=x, y=y, tooltip=["clients:Q", alt.Tooltip("throughput_per_s:Q", format=",.1f")])
    )
    layers = [band, line, points]
    peak = content["peak_clients"]
    if peak is not None and peak <= content["curve"][-1]["clients"]:
        rule, words = _vertical(peak, f"peak {peak:.3g}", x, _WORDS_DOWN * style.HEIGHT)
        layers = [rule, *layers, *words]
    chart = alt.layer(*layers).properties(width=style.WIDTH, height=style.HEIGHT, title=title)
    caption = "Squares: measured. Line: fitted, with a 95 % band for the mean (bootstrap over runs)."
    return ModelFigure("usl", title, caption, chart)


def _points(rows: Sequence[SweepRow], name: _Quantity, size: float) -> list[_Point]:
    """Numbers of all classes together, and of each class if there are several."""
    names = [part["name"] for part in rows[0]["classes"]]
    several = 1 < len(names) <= _CLASSES_MAX
    points = []
    for row in rows:
        total = row[name]
        if total is not None:
            points.append(_Point(row["value"], _ALL if several else names[0], total / size))
        for part in row["classes"] if several else ():
            own = part[name]
            if own is not None:
                points.append(_Point(row["value"], part["name"], own / size))
    return points


def _panel(parameter: str, points: Sequence[_Point], title: str) -> tuple[list[alt.Chart], float]:
    """Return lines and marks, and the highest number among them."""
    parts = list(dict.fromkeys(point.part for point in points))
    legend = alt.Legend(columns=style.columns(parts)) if len(parts) > 1 else None
    colour = alt.Color("part:N", title=None, sort=parts, scale=style.colour(parts), legend=legend)
    highest = max((point.y for point in points), default=1.0)
    base = alt.Chart(values([point._asdict() for point in points])).encode(
        x=_x(parameter),
        y=alt.Y("y:Q", title=title, scale=alt.Scale(zero=True, domainMin=0)),
        color=colour,
        tooltip=[
            "part:N",
            alt.Tooltip("x:Q", title=parameter),
            alt.Tooltip("y:Q", format=".5~g", title=title),
        ],
    )
    layers = [base.mark_line()]
    if len(points) <= _MARKS_MAX * len(parts):
        shapes = alt.Shape("part:N", title=None, sort=parts, scale=style.shape(parts), legend=legend)
        layers.append(base.mark_point(opacity=1, size=36).encode(shape=shapes))
    return layers, highest


def _x(parameter: str) -> alt.X:
    axis = alt.Axis(labelExpr=_PLAIN, grid=False, labelOverlap="greedy")
    return alt.X("x:Q", title=parameter, scale=alt.Scale(zero=False, nice=False, padding=14), axis=axis)


def _bound_lines(
    parameter: str, bounds: Sequence[SweepBoundsRow], what: _Quantity, size: float, highest: float
) -> list[alt.Chart]:
    """Dashed lines, one for each bound, clipped at the edge of the chart."""
    kinds = list(dict.fromkeys(row["name"] for row in bounds))
    rows: list[Row] = [
        {"x": row["value"], "bound": row["name"], "line": f"{row['name']} {end}", "y": number / size}
        for row in bounds
        for end, number in _ends(row, what)
        if number is not None and number / size <= 1.35 * highest
    ]
    if not rows:
        return []
    dashes = alt.StrokeDash(
        "bound:N",
        title=None,
        sort=kinds,
        scale=alt.Scale(domain=kinds, range=style.DASHES[1 : 1 + len(kinds)]),
        legend=alt.Legend(columns=3, symbolStrokeColor="#808080", symbolSize=300),
    )
    chart = alt.Chart(values(rows)).mark_line(style="ink", strokeWidth=1.4, strokeOpacity=0.7, clip=True)
    return [
        chart.encode(
            x=_x(parameter),
            y="y:Q",
            detail="line:N",
            strokeDash=dashes,
            tooltip=["bound:N", alt.Tooltip("y:Q", format=".5~g")],
        )
    ]


def _ends(row: SweepBoundsRow, what: _Quantity) -> list[tuple[str, float | None]]:
    """Lower and upper end of a bound; a kind of bounds may lack one."""
    if what == "throughput_per_s":
        return [("low", row.get("throughput_low_per_s")), ("high", row.get("throughput_high_per_s"))]
    return [("low", row.get("response_low_s")), ("high", row.get("response_high_s"))]


def _vertical(place: float, text: str, x: alt.X, height: float) -> tuple[alt.Chart, list[alt.Chart]]:
    """Return a vertical line at a number of clients, and its label, to be drawn on top."""
    name = str(x.shorthand).partition(":")[0]
    base = alt.Chart(values([{name: place, "words": text}])).encode(x=x)
    rule = base.mark_rule(style="ink", strokeDash=[2, 3], strokeWidth=1, strokeOpacity=0.7)
    words = [
        base.mark_text(style=kind, align="left", dx=6, fontSize=11).encode(
            y=alt.value(height), text="words:N"
        )
        for kind in ("halo", "words")
    ]
    return rule, words


def _time(time_s: float) -> str:
    return time_text(1e9 * time_s)


def _unit(times_s: Sequence[float | None]) -> tuple[str, float]:
    """Return the unit that fits the largest time, and its size in seconds."""
    largest = max((time_s for time_s in times_s if time_s is not None), default=1.0)
    return next(
        ((unit, size) for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)) if largest >= size),
        ("ns", 1e-9),
    )
