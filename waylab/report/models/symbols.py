"""The usual sign for a station: a queue open to the left and a circle for its servers."""

from collections.abc import Callable, Sequence

import altair as alt

from waylab.models.description import Station
from waylab.report.figures.figure import values
from waylab.report.models.figure import Row
from waylab.report.models.lines import Box

_CELLS = 4
_CELL_WIDTH = 7.0
_CELL_HEIGHT = 14.0
_RADIUS = 7.0
_LINE = 29.0
_LETTER = 6.0


def station_marks(
    stations: Sequence[tuple[Box, Station]], placed: Callable[[alt.Chart], alt.Chart]
) -> list[alt.Chart]:
    """Draw the signs of all stations; `placed` gives a chart the drawing's axes."""
    strokes: list[Row] = []
    circles: list[Row] = []
    words: list[Row] = []
    for number, (box, station) in enumerate(stations):
        text = servers_text(station)
        queue = _queue_width(station)
        left, y = box.x - sign_width(station) / 2, box.top + _LINE
        if queue:
            strokes += _queue(number, left, y)
        circles.append({"x": left + queue + _RADIUS, "y": y})
        if text:
            words.append({"x": left + queue + 2 * _RADIUS + 4, "y": y, "text": text})
    lines = alt.Chart(values(strokes)).mark_line(style="ink", strokeWidth=1.2)
    rounds = alt.Chart(values(circles)).mark_point(
        shape="circle", filled=False, size=3.14159 * _RADIUS**2, opacity=1, style="ink", strokeWidth=1.2
    )
    texts = alt.Chart(values(words)).mark_text(style="words", align="left", baseline="middle", fontSize=11)
    marks = [placed(rounds)]
    if strokes:
        marks.append(placed(lines).encode(detail="line:N", order="order:Q"))
    if words:
        marks.append(placed(texts).encode(text="text:N"))
    return marks


def sign_width(station: Station) -> float:
    """Width of the sign of a station, including the text beside it."""
    text = servers_text(station)
    return _queue_width(station) + 2 * _RADIUS + (4 + _LETTER * len(text) if text else 0)


def servers_text(station: Station) -> str:
    """The text beside the circle: the number of servers and unusual properties."""
    words = []
    if station.servers is None:
        words.append("delay")
    elif station.rates:
        words.append(f"rates 1–{len(station.rates)}")
    elif station.servers > 1:
        words.append(f"×{station.servers:,}")
    if station.discipline != "fcfs" and station.servers is not None:
        words.append(station.discipline)
    if station.capacity is not None:
        words.append(f"room {station.capacity:,}")
    if station.batch > 1:
        words.append(f"batch {station.batch:,}")
    return " ".join(words)


def _queue_width(station: Station) -> float:
    return 0.0 if station.servers is None else _CELLS * _CELL_WIDTH


def _queue(number: int, left: float, y: float) -> list[Row]:
    """Points of the lines of one queue: two long ones, and one behind each cell."""
    right = left + _CELLS * _CELL_WIDTH
    top, bottom = y - _CELL_HEIGHT / 2, y + _CELL_HEIGHT / 2
    lines = [((left, top), (right, top)), ((left, bottom), (right, bottom))]
    lines += [
        ((left + cell * _CELL_WIDTH, top), (left + cell * _CELL_WIDTH, bottom))
        for cell in range(1, _CELLS + 1)
    ]
    return [
        {"x": x, "y": down, "line": f"{number} {index}", "order": order}
        for index, line in enumerate(lines)
        for order, (x, down) in enumerate(line)
    ]
