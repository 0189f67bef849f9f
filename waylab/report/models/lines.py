"""The lines of a network's drawing: from box to box, backwards, and back to the client."""

import math
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[float, float]
_CURVE_STEPS = 14
_CORNER = 7.0
BESIDE = 14.0
_LANE_BESIDE = 5.0
_ABOVE_LINE = 8.0
_CLEARANCE = 2.0
# Possible positions of a label along a line, nearest to one end first.
_PLACES = (0.14, 0.2, 0.26, 0.32, 0.38, 0.44, 0.5, 0.56, 0.62, 0.68, 0.74, 0.8, 0.86)


@dataclass(frozen=True)
class Box:
    """A rectangle by its centre."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> float:
        """Left edge."""
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        """Right edge."""
        return self.x + self.width / 2

    @property
    def top(self) -> float:
        """Upper edge."""
        return self.y - self.height / 2

    @property
    def bottom(self) -> float:
        """Lower edge."""
        return self.y + self.height / 2

    def meets(self, other: "Box", clearance: float = 0.0) -> bool:
        """Whether the two overlap or are closer than the clearance."""
        return (
            abs(self.x - other.x) < (self.width + other.width) / 2 + clearance
            and abs(self.y - other.y) < (self.height + other.height) / 2 + clearance
        )

    def moved(self, x: float, y: float) -> "Box":
        """Return a moved one."""
        return Box(self.x + x, self.y + y, self.width, self.height)


@dataclass(frozen=True)
class Path:
    """A line with an arrowhead at its end. `number` is the arrow's, None for the line back to the client."""

    number: int | None
    points: tuple[Point, ...]
    pointed: bool = True

    @property
    def heading_degrees(self) -> float:
        """Direction of the arrowhead, clockwise from right."""
        (x1, y1), (x2, y2) = self.points[-2:]
        return math.degrees(math.atan2(y2 - y1, x2 - x1))

    def moved(self, x: float, y: float) -> "Path":
        """Return a moved one."""
        return Path(self.number, tuple((px + x, py + y) for px, py in self.points), self.pointed)

    def at(self, share: float) -> Point:
        """Point at a share of the length."""
        lengths = [math.dist(a, b) for a, b in zip(self.points, self.points[1:], strict=False)]
        left = share * sum(lengths)
        for (a, b), length in zip(zip(self.points, self.points[1:], strict=False), lengths, strict=True):
            if left <= length and length > 0:
                part = left / length
                return a[0] + part * (b[0] - a[0]), a[1] + part * (b[1] - a[1])
            left -= length
        return self.points[-1]


def arrow_path(number: int, boxes: list[Box], end_y: float, straight: float = 0.0) -> Path:
    """Curve from the right of the first box through the empty places to the left of the last one, at `end_y`.

    The last `straight` pixels are horizontal, so that words can stand above them.
    """
    points: list[Point] = [(boxes[0].right, boxes[0].y)]
    for before, after in pairwise(boxes):
        last = after is boxes[-1]
        y = end_y if last else after.y
        points += _curve((before.right, before.y), (after.left - straight * last, y))
        if last and straight:
            points.append((after.left, y))
        elif not last:
            points.append((after.right, after.y))
    return Path(number, tuple(points))


def back_path(number: int, origin: Box, target: Box, lane_y: float, lane: int) -> Path:
    """Line that leaves on the right, runs above everything and comes in on the left."""
    right = origin.right + BESIDE + _LANE_BESIDE * lane
    left = target.left - BESIDE - _LANE_BESIDE * lane
    corners = [
        (origin.right, origin.y),
        (right, origin.y),
        (right, lane_y),
        (left, lane_y),
        (left, target.y),
        (target.left, target.y),
    ]
    return Path(number, _rounded(corners))


def home_path(end: Box, client: Box, lane_y: float) -> Path:
    """Line below everything from the end of the requests to the client."""
    return Path(
        None, _rounded([(end.x, end.bottom), (end.x, lane_y), (client.x, lane_y), (client.x, client.bottom)])
    )


def clear_place(path: Path, size: tuple[float, float], taken: list[Box], lines: list[Box]) -> Point | None:
    """Find a free place for a label: above the last horizontal piece of a line, or else anywhere along it.

    The label crosses one of `lines` only if there is no other place.
    """
    level = [
        (x1 + (size[0] / 2 + _CLEARANCE if x2 > x1 else (x2 - x1) / 2), y1)
        for (x1, y1), (x2, y2) in zip(path.points, path.points[1:], strict=False)
        if abs(y1 - y2) < 1e-6 and abs(x1 - x2) >= size[0]
    ]
    for obstacles in ([*taken, *lines], taken):
        for above in (_ABOVE_LINE, -_ABOVE_LINE, 0.0):
            for x, y in [*reversed(level), *(path.at(share) for share in _PLACES)]:
                place = Box(x, y - above, *size)
                if not any(place.meets(box, _CLEARANCE) for box in obstacles):
                    return place.x, place.y
    return None


def vertical_pieces(path: Path) -> list[Box]:
    """Vertical pieces of a line, as thin boxes that labels should not cross."""
    return [
        Box(x1, (y1 + y2) / 2, 2.0, abs(y1 - y2))
        for (x1, y1), (x2, y2) in pairwise(path.points)
        if abs(x1 - x2) < 1e-6 and abs(y1 - y2) > 2 * _CORNER
    ]


def _curve(start: Point, end: Point) -> list[Point]:
    """Points of a curve that leaves and arrives horizontally."""
    (x1, y1), (x2, y2) = start, end
    if abs(y1 - y2) < 1e-6:
        return [end]
    points = []
    for step in range(1, _CURVE_STEPS + 1):
        t = step / _CURVE_STEPS
        along = 1.5 * t * (1 - t) ** 2 + 1.5 * t**2 * (1 - t) + t**3
        points.append((x1 + along * (x2 - x1), y1 + (3 * t**2 - 2 * t**3) * (y2 - y1)))
    return points


def _rounded(corners: list[Point]) -> tuple[Point, ...]:
    """Straight lines with round corners."""
    points = [corners[0]]
    for before, corner, after in zip(corners, corners[1:], corners[2:], strict=False):
        size = min(_CORNER, math.dist(before, corner) / 2, math.dist(corner, after) / 2)
        start, end = _towards(corner, before, size), _towards(corner, after, size)
        for step in range(5):
            t = step / 4
            points.append(
                (
                    (1 - t) ** 2 * start[0] + 2 * t * (1 - t) * corner[0] + t**2 * end[0],
                    (1 - t) ** 2 * start[1] + 2 * t * (1 - t) * corner[1] + t**2 * end[1],
                )
            )
    return (*points, corners[-1])


def _towards(start: Point, goal: Point, distance: float) -> Point:
    length = math.dist(start, goal)
    if length == 0:
        return start
    return (
        start[0] + distance / length * (goal[0] - start[0]),
        start[1] + distance / length * (goal[1] - start[1]),
    )
