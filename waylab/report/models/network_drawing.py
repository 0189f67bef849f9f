"""A network as a drawing: queues and servers in boxes, arrows with probabilities, forks, and pools in frames."""

from dataclasses import dataclass
from functools import partial

import altair as alt

from waylab.models.description import CLIENT, Station
from waylab.models.network import Network
from waylab.models.summary.result import ResultRow
from waylab.report.figures.figure import values
from waylab.report.models.figure import BUSY, IDLE, ModelFigure, Row
from waylab.report.models.graph import END, graph_of
from waylab.report.models.layout import LETTER_PIXELS, Layout, layout_of
from waylab.report.models.symbols import sign_width, station_marks
from waylab.report.page.numbers import time_text

_LINE_HEIGHT = 15.0
_BOX_WIDTH_MIN = 104.0
_NAME_LENGTH_MAX = 24
_SWITCHED_WRITTEN = 3
_BAR_WIDTH = 6.0
_JOIN_HEIGHT = 46.0
_BOLD = 1.12
# An arrowhead with its tip where the line ends.
_HEAD = "M0,0L-1,-0.42L-1,0.42Z"


@dataclass(frozen=True)
class _Part:
    """A place with its lines of text; `station` for those with a queue."""

    lines: tuple[str, ...]
    station: Station | None = None
    busy: float | None = None


def network_drawing(network: Network, result: ResultRow | None = None) -> ModelFigure:
    """Draw a network, coloured by utilisation when there is a result."""
    graph = graph_of(network)
    parts = {name: _part(name, network, result) for name in graph.places}
    comes_again = network.has_closed
    layout = layout_of(graph, {name: _size(name, part) for name, part in parts.items()}, comes_again)
    words = [{"x": w.x, "y": w.y, "text": w.text, "details": w.details} for w in layout.words]
    layers = [
        _frames(layout),
        _lines(layout, [arrow.details for arrow in graph.arrows]),
        _heads(layout),
        _boxes(layout, parts),
        _bars(layout, parts),
        *station_marks(
            [(layout.boxes[name], part.station) for name, part in parts.items() if part.station],
            partial(_placed, layout),
        ),
        _texts(layout, _box_lines(layout, parts)),
        _texts(layout, [*words, *_frame_titles(layout, network, result)], halo=True),
    ]
    chart = alt.layer(*(layer for layer in layers if layer is not None)).properties(
        width=round(layout.width), height=round(layout.height), title=network.name
    )
    return ModelFigure("network", f"The model: {network.name}", _caption(layout, network, result), chart)


def _part(name: str, network: Network, result: ResultRow | None) -> _Part:
    if name == CLIENT:
        comes_again = network.has_closed
        return _Part(("clients" if comes_again else "arrivals", *_sources(network)))
    if name not in network.station_names:
        return _Part(())
    station = network.station(name)
    solved = next((part for part in result["stations"] if part["name"] == name), None) if result else None
    busy = solved["utilisation"] if solved and station.servers is not None else None
    lines = [_short(name), "", _service(station)]
    if busy is not None:
        lines.append(f"{100 * busy:.0f} % busy")
    elif solved:
        lines.append(f"{solved['queue_length']:.3g} present")
    return _Part(tuple(lines), station, busy)


def _sources(network: Network) -> list[str]:
    """The lines of the client: one for each class that begins there."""
    lines = []
    several = len(network.classes) > 1 and not network.switching
    for part in network.classes:
        name = f"{part.name}: " if several else ""
        if part.population:
            think_s = part.think.mean_s
            lines.append(f"{name}{part.population:,}" + (f", think {_time(think_s)}" if think_s else ""))
        elif part.arrivals_per_s:
            lines.append(f"{name}{part.arrivals_per_s:,.4g} /s")
    rows = list(network.switching.values())
    if rows:
        alike = all(row == rows[0] for row in rows) and len(rows[0]) <= _SWITCHED_WRITTEN
        drawn = ", ".join(f"{name} {100 * share:.3g} %" for name, share in rows[0].items())
        lines.append(f"next: {drawn}" if alike else "next: depends on the last class")
    return lines


def _service(station: Station) -> str:
    means = sorted({time.mean_s for time in station.service.values()})
    return _time(means[0]) if len(means) == 1 else f"{_time(means[0])} to {_time(means[-1])}"


def _time(time_s: float) -> str:
    return time_text(1e9 * time_s)


def _short(name: str) -> str:
    return name if len(name) <= _NAME_LENGTH_MAX else name[: _NAME_LENGTH_MAX - 1] + "…"


def _size(name: str, part: _Part) -> tuple[float, float]:
    if name == END:
        return 7.0, 7.0
    if not part.lines:
        return _BAR_WIDTH, _JOIN_HEIGHT
    sign = sign_width(part.station) if part.station else 0.0
    longest = max(len(line) * (_BOLD if index == 0 else 1.0) for index, line in enumerate(part.lines))
    width = max(_BOX_WIDTH_MIN * bool(part.station), 18 + LETTER_PIXELS * longest, 18 + sign)
    return width, 14 + _LINE_HEIGHT * len(part.lines)


def _placed(layout: Layout, chart: alt.Chart) -> alt.Chart:
    """Give a chart the drawing's axes: one unit is one pixel, y grows downwards."""
    across = alt.Scale(nice=False, zero=False, domain=[0, round(layout.width)])
    down = alt.Scale(nice=False, zero=False, domain=[round(layout.height), 0])
    return chart.encode(x=alt.X("x:Q", axis=None, scale=across), y=alt.Y("y:Q", axis=None, scale=down))


def _frames(layout: Layout) -> alt.Chart | None:
    if not layout.frames:
        return None
    rows = [
        {"x": f.left, "y": f.top, "right": f.right, "bottom": f.bottom, "pool": f.title}
        for f in layout.frames
    ]
    chart = alt.Chart(values(rows)).mark_rect(
        style="ink", fillOpacity=0, strokeDash=[6, 4], strokeWidth=1.3, cornerRadius=8, strokeOpacity=0.8
    )
    return _placed(layout, chart).encode(x2="right:Q", y2="bottom:Q", tooltip=["pool:N"])


def _frame_titles(layout: Layout, network: Network, result: ResultRow | None) -> list[Row]:
    slots = {pool.name: pool.slots for pool in network.pools}
    shares = {pool["name"]: pool["busy_share"] for pool in result["pools"]} if result else {}
    rows: list[Row] = []
    for frame in layout.frames:
        text = f"{_short(frame.title)}: {slots[frame.title]:,} slots"
        busy = shares.get(frame.title)
        if busy is not None:
            text += f", {100 * busy:.0f} % busy"
        rows.append({"x": frame.left + 2, "y": frame.top - 9, "text": text, "align": "left", "details": ""})
    return rows


def _lines(layout: Layout, details: list[str]) -> alt.Chart:
    rows = [
        {
            "x": x,
            "y": y,
            "line": number,
            "order": order,
            "details": "" if path.number is None else details[path.number],
        }
        for number, path in enumerate(layout.paths)
        for order, (x, y) in enumerate(path.points)
    ]
    chart = alt.Chart(values(rows)).mark_line(style="ink", strokeWidth=1.3, strokeOpacity=0.65)
    return _placed(layout, chart).encode(
        detail="line:N", order="order:Q", tooltip=alt.Tooltip("details:N", title=" ")
    )


def _heads(layout: Layout) -> alt.Chart:
    rows = []
    for path in layout.paths:
        x, y = path.points[-1]
        rows.append({"x": x, "y": y, "heading": path.heading_degrees})
    chart = alt.Chart(values(rows)).mark_point(
        style="ink-filled", shape=_HEAD, filled=True, size=300, opacity=1, strokeWidth=0
    )
    return _placed(layout, chart).encode(angle=alt.Angle("heading:Q", scale=None))


def _boxes(layout: Layout, parts: dict[str, _Part]) -> alt.Chart:
    rows = [
        {
            "x": box.left,
            "y": box.top,
            "right": box.right,
            "bottom": box.bottom,
            "name": name,
            "busy": parts[name].busy or 0.0,
        }
        for name, box in layout.boxes.items()
        if parts[name].lines
    ]
    chart = alt.Chart(values(rows)).mark_rect(
        style="ink", cornerRadius=5, strokeWidth=1.2, strokeOpacity=0.85
    )
    return _placed(layout, chart).encode(
        x2="right:Q",
        y2="bottom:Q",
        fill=alt.Fill("busy:Q", scale=alt.Scale(domain=[0, 1], range=[IDLE, BUSY], clamp=True), legend=None),
        tooltip=["name:N", alt.Tooltip("busy:Q", format=".1%")],
    )


def _bars(layout: Layout, parts: dict[str, _Part]) -> alt.Chart:
    """Forks, joins and the end: solid bars, because they serve no requests."""
    rows = [
        {"x": box.left, "y": box.top, "right": box.right, "bottom": box.bottom}
        for name, box in layout.boxes.items()
        if not parts[name].lines
    ]
    chart = alt.Chart(values(rows)).mark_rect(style="ink-filled", cornerRadius=3)
    return _placed(layout, chart).encode(x2="right:Q", y2="bottom:Q")


def _box_lines(layout: Layout, parts: dict[str, _Part]) -> list[Row]:
    rows = []
    for name, part in parts.items():
        box = layout.boxes[name]
        first = box.y - _LINE_HEIGHT * (len(part.lines) - 1) / 2
        for index, line in enumerate(part.lines):
            if line:
                y = first + index * _LINE_HEIGHT
                rows.append({"x": box.x, "y": y, "text": line, "weight": "bold" if index == 0 else "normal"})
    return rows


def _texts(layout: Layout, rows: list[Row], halo: bool = False) -> alt.LayerChart | alt.FacetChart | None:
    """Labels, with a halo if they may cross a line."""
    layers = []
    for align in ("center", "left"):
        for weight in ("bold", "normal"):
            own = [
                row
                for row in rows
                if row.get("align", "center") == align and row.get("weight", "normal") == weight
            ]
            for kind in ("halo", "words") if halo else ("words",):
                chart = alt.Chart(values(own)).mark_text(
                    style=kind, align=align, baseline="middle", fontSize=11, fontWeight=weight
                )
                layers += [_placed(layout, chart).encode(text="text:N")] if own else []
    return alt.layer(*layers) if layers else None


def _caption(layout: Layout, network: Network, result: ResultRow | None) -> str:
    text = "Requests go from left to right. "
    if result:
        text += f"The stronger the colour, the busier the station ({result['method']}, {result['kind']}). "
    if network.forks:
        text += "At a bar a request forks into its legs, which join at the next bar. "
    if network.pools:
        text += "A request occupies a slot while it is inside a dashed frame. "
    if layout.unplaced:
        text += f"{layout.unplaced} labels found no room and appear on hovering over their arrow. "
    return text.strip()
