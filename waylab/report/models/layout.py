"""The positions of a network's drawing in pixels: boxes, arrows, labels, frames. Knows no chart."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from waylab.models.description import CLIENT
from waylab.report.models.graph import END, Graph
from waylab.report.models.layers import Layers, is_place, layers_of
from waylab.report.models.lines import (
    BESIDE,
    Box,
    Path,
    arrow_path,
    back_path,
    clear_place,
    home_path,
    vertical_pieces,
)

LETTER_PIXELS = 6.1
_WORDS_HEIGHT = 13.0
_MARGIN = 14.0
_GAP_ACROSS_MIN = 40.0
_GAP_ACROSS_PER_ARROW = 4.0
_ARROWS_MAX = 12
_GAP_DOWN = 24.0
_PASSING_HEIGHT = 6.0
_FRAME_MARGIN = 13.0
_FRAME_TITLE = 18.0
_LANE = 18.0
# Distance between arrows to the same place, with room for a label above each; more arrows get no labels.
_PORT = 15.5
_PORTS_MAX = 4
_ROUNDS = 8


@dataclass(frozen=True)
class Words:
    """Text with its centre at a point."""

    text: str
    x: float
    y: float
    details: str = ""

    @property
    def box(self) -> Box:
        """The rectangle that it covers."""
        return Box(self.x, self.y, LETTER_PIXELS * len(self.text), _WORDS_HEIGHT)


@dataclass(frozen=True)
class Frame:
    """A pool's frame around its places, title above its upper edge on the left."""

    title: str
    left: float
    top: float
    right: float
    bottom: float


@dataclass
class Layout:
    """The whole drawing; y grows downwards."""

    width: float
    height: float
    boxes: dict[str, Box]
    paths: list[Path] = field(default_factory=list)
    words: list[Words] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    unplaced: int = 0
    """Labels without a free place."""


def layout_of(graph: Graph, sizes: Mapping[str, tuple[float, float]], comes_again: bool) -> Layout:
    """Place everything. `sizes` is (width, height) by place; with `comes_again` an arrow leads back to the client."""
    layers = layers_of(graph)
    boxes = _boxes(graph, layers, sizes)
    frames = _frames(graph, boxes)
    ports = _ports(graph, layers, boxes)
    paths = [
        arrow_path(number, [boxes[name] for name in way], ports[number], _straight(graph, layers, number))
        for number, way in sorted(layers.ways.items())
    ]
    top = min([box.top for box in boxes.values()] + [frame.top - _FRAME_TITLE for frame in frames])
    for lane, number in enumerate(layers.back):
        arrow = graph.arrows[number]
        y = top - _LANE * (lane + 1)
        paths.append(back_path(number, boxes[arrow.origin], boxes[arrow.target], y, lane))
    if comes_again:
        bottom = max([box.bottom for box in boxes.values()] + [frame.bottom for frame in frames])
        paths.append(home_path(boxes[END], boxes[CLIENT], bottom + _LANE))
    places = {name: box for name, box in boxes.items() if is_place(name)}
    layout = Layout(0.0, 0.0, places, paths, frames=frames)
    _write(layout, graph)
    return _moved(layout)


def _boxes(graph: Graph, layers: Layers, sizes: Mapping[str, tuple[float, float]]) -> dict[str, Box]:
    down = _down(layers, sizes)
    boxes: dict[str, Box] = {}
    x = 0.0
    for column, names in enumerate(layers.columns):
        width = max(sizes[name][0] if is_place(name) else 0.0 for name in names)
        for name in names:
            size = sizes[name] if is_place(name) else (width, _PASSING_HEIGHT)
            boxes[name] = Box(x + width / 2, down[name], *size)
        x += width + _gap(graph, layers, column)
    return boxes


def _gap(graph: Graph, layers: Layers, column: int) -> float:
    """The gap after a column: room for the longest label of an arrow that starts or ends there."""
    here = set(layers.columns[column])
    after = set(layers.columns[column + 1]) if column + 1 < len(layers.columns) else set()
    passing = [number for number, way in layers.ways.items() if here & set(way) and after & set(way)]
    straight = max((_straight(graph, layers, number) for number in passing), default=0.0)
    words = max((len(graph.arrows[number].words) for number in passing), default=0)
    frames = 0.0
    for name in here | after:
        frames = max(frames, 1.5 * _FRAME_MARGIN if name in layers.pool else 0.0)
    across = _GAP_ACROSS_MIN + _GAP_ACROSS_PER_ARROW * min(len(passing), _ARROWS_MAX)
    return max(across + straight, LETTER_PIXELS * words + 30.0) + frames


def _arriving(graph: Graph, layers: Layers, target: str) -> list[int]:
    return [number for number in layers.ways if graph.arrows[number].target == target]


def _straight(graph: Graph, layers: Layers, number: int) -> float:
    """Length of the horizontal end of an arrow: room for the labels of all arrows to the same place."""
    target = graph.arrows[number].target
    arriving = _arriving(graph, layers, target)
    words = max(len(graph.arrows[other].words) for other in arriving)
    if not words or (len(arriving) > 1 and (target == END or len(arriving) > _PORTS_MAX)):
        return 0.0
    back = sum(graph.arrows[other].target == target for other in layers.back)
    return LETTER_PIXELS * words + 14.0 + BESIDE * min(back, 2)


def _ports(graph: Graph, layers: Layers, boxes: Mapping[str, Box]) -> dict[int, float]:
    """Height at which each arrow reaches its place, from top to bottom in the order of their origins."""
    ports = {}
    for name, box in boxes.items():
        if not is_place(name):
            continue
        arriving = _arriving(graph, layers, name)
        arriving.sort(key=lambda number: (boxes[layers.ways[number][-2]].y, number))
        room = max(0.0, box.height - _PORT) if name != END else 0.0
        step = min(_PORT, room / max(1, len(arriving) - 1))
        for index, number in enumerate(arriving):
            ports[number] = box.y + step * (index - (len(arriving) - 1) / 2)
    return ports


def _down(layers: Layers, sizes: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Vertical centre of every name: near its neighbours, without overlap in its column."""
    height = {
        name: sizes[name][1] if is_place(name) else _PASSING_HEIGHT
        for names in layers.columns
        for name in names
    }
    neighbours: dict[str, list[str]] = {name: [] for name in height}
    for way in layers.ways.values():
        for before, after in pairwise(way):
            neighbours[before].append(after)
            neighbours[after].append(before)
    down: dict[str, float] = {}
    for names in layers.columns:
        offsets = _offsets(names, height, layers.pool)
        middle = (offsets[0] + offsets[-1]) / 2
        down.update({name: offset - middle for name, offset in zip(names, offsets, strict=True)})
    for sweep in range(_ROUNDS):
        for names in layers.columns if sweep % 2 == 0 else reversed(layers.columns):
            offsets = _offsets(names, height, layers.pool)
            wanted = [
                sum(down[other] for other in neighbours[name]) / max(1, len(neighbours[name])) - offset
                for name, offset in zip(names, offsets, strict=True)
            ]
            for name, base, offset in zip(names, _not_falling(wanted), offsets, strict=True):
                down[name] = base + offset
    return down


def _offsets(names: list[str], height: Mapping[str, float], pool: Mapping[str, str]) -> list[float]:
    """Vertical centres of a column's names at their smallest distances."""
    offsets = [0.0]
    for above, below in pairwise(names):
        gap = _GAP_DOWN if is_place(above) or is_place(below) else _GAP_DOWN / 2
        if pool.get(above) != pool.get(below):
            gap += _FRAME_MARGIN * bool(pool.get(above)) + (_FRAME_MARGIN + _FRAME_TITLE) * bool(
                pool.get(below)
            )
        offsets.append(offsets[-1] + (height[above] + height[below]) / 2 + gap)
    return offsets


def _not_falling(wanted: list[float]) -> list[float]:
    """Isotonic regression: the nearest numbers (least squares) that never decrease."""
    blocks: list[list[float]] = []
    for number in wanted:
        blocks.append([number, 1.0])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, count = blocks.pop()
            total = blocks[-1][1] + count
            blocks[-1] = [(blocks[-1][0] * blocks[-1][1] + mean * count) / total, total]
    return [mean for mean, count in blocks for _ in range(round(count))]


def _frames(graph: Graph, boxes: Mapping[str, Box]) -> list[Frame]:
    """One frame for each pool, or one for each of its places if a frame would enclose other places."""
    frames = []
    for title, members in graph.pools.items():
        inside = [boxes[name] for name in members if name in boxes]
        if not inside:
            continue
        whole = _frame(title, inside)
        others = [box for name, box in boxes.items() if is_place(name) and name not in members]
        cover = Box(
            (whole.left + whole.right) / 2,
            (whole.top + whole.bottom - _FRAME_TITLE) / 2,
            whole.right - whole.left,
            whole.bottom - whole.top + _FRAME_TITLE,
        )
        apart = any(cover.meets(box) for box in others)
        frames += [_frame(title, [box]) for box in inside] if apart else [whole]
    return frames


def _frame(title: str, inside: list[Box]) -> Frame:
    return Frame(
        title,
        min(box.left for box in inside) - _FRAME_MARGIN,
        min(box.top for box in inside) - _FRAME_MARGIN,
        max(box.right for box in inside) + _FRAME_MARGIN,
        max(box.bottom for box in inside) + _FRAME_MARGIN,
    )


def _write(layout: Layout, graph: Graph) -> None:
    """Place the label of every arrow where it covers nothing."""
    taken = list(layout.boxes.values())
    for frame in layout.frames:
        width = LETTER_PIXELS * len(frame.title) * 1.6
        taken.append(Box(frame.left + width / 2, frame.top - _FRAME_TITLE / 2, width, _FRAME_TITLE))
    lines = [piece for path in layout.paths for piece in vertical_pieces(path)]
    for path in layout.paths:
        if path.number is None or not graph.arrows[path.number].words:
            continue
        arrow = graph.arrows[path.number]
        size = (LETTER_PIXELS * len(arrow.words), _WORDS_HEIGHT)
        place = clear_place(path, size, taken, lines)
        if place is None:
            layout.unplaced += 1
            continue
        words = Words(arrow.words, *place, arrow.details)
        taken.append(words.box)
        layout.words.append(words)


def _moved(layout: Layout) -> Layout:
    """Move everything to the margin, and compute the size of the drawing."""
    xs = [x for path in layout.paths for x, _ in path.points]
    ys = [y for path in layout.paths for _, y in path.points]
    for box in [*layout.boxes.values(), *(words.box for words in layout.words)]:
        xs += [box.left, box.right]
        ys += [box.top, box.bottom]
    for frame in layout.frames:
        xs += [frame.left, frame.right, frame.left + LETTER_PIXELS * len(frame.title) * 1.6]
        ys += [frame.top - _FRAME_TITLE, frame.bottom]
    x, y = _MARGIN - min(xs), _MARGIN - min(ys)
    return Layout(
        max(xs) + x + _MARGIN,
        max(ys) + y + _MARGIN,
        {name: box.moved(x, y) for name, box in layout.boxes.items()},
        [path.moved(x, y) for path in layout.paths],
        [Words(words.text, words.x + x, words.y + y, words.details) for words in layout.words],
        [
            Frame(frame.title, frame.left + x, frame.top + y, frame.right + x, frame.bottom + y)
            for frame in layout.frames
        ],
        layout.unplaced,
    )
