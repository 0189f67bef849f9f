"""The set-up drawn: load generators, proxies and backends with the links of their hosts, as an SVG within the page.

Only what the run folder says: the plan, and the testbed as it was measured. Knows nothing of results.
"""

from collections.abc import Iterable
from html import escape
from itertools import pairwise

from msgspec import to_builtins

from waylab.report.page.content import Content
from waylab.runfolder.run import PlannedTrial, lookup
from waylab.runfolder.trial import Link

_WIDTH, _GAP, _SPACE = 124, 40, 12
_TITLE, _LINE, _PAD = 20, 13, 6
_BOXES_MAX = 4
_DRAWINGS_MAX = 3

# One box: its title and its lines.
Box = tuple[str, list[str]]


def diagram(content: Content) -> str:
    """Draw every arrangement of the run, as far as there is room for them; nothing for an unknown set-up."""
    if content.spec.gates.imported:
        return ""
    arrangements: dict[str, list[PlannedTrial]] = {}
    for trial in content.run.plan:
        arrangements.setdefault(_key(trial), []).append(trial)
    drawn = []
    for members in list(arrangements.values())[:_DRAWINGS_MAX]:
        words = _which(members, content.run.plan) if len(arrangements) > 1 else "The system under test"
        label = escape(f"{words}: load, proxies and backends")
        svg = _drawing(_columns(content, members), label)
        drawn.append(f'<figure class="set-up"><h3>{escape(words)}</h3>{svg}</figure>')
    if len(arrangements) > _DRAWINGS_MAX:
        drawn.append(
            f'<p class="soft">Of {len(arrangements)} arrangements the first {_DRAWINGS_MAX} are drawn.</p>'
        )
    return "".join(drawn)


def _key(trial: PlannedTrial) -> str:
    """Return what trials have in common that are drawn together."""
    described = trial.description
    parts = (described.name, described.programs, described.load_reaches, described.shown, trial.assignment)
    return repr(parts)


def _which(members: list[PlannedTrial], plan: list[PlannedTrial]) -> str:
    """Name the levels that only these trials have."""
    words = []
    for factor in members[0].levels:
        mine = list(dict.fromkeys(trial.levels[factor] for trial in members))
        if len(mine) < len({trial.levels[factor] for trial in plan}):
            words.append(f"{factor} {' or '.join(mine)}")
    return ", ".join(words) or members[0].configuration


def _columns(
    content: Content, members: list[PlannedTrial]
) -> tuple[list[list[Box]], list[list[tuple[int, int]]]]:
    """Return the boxes from left to right, and between adjacent columns which box leads to which."""
    described, assignment = members[0].description, members[0].assignment
    links = content.analysis.testbed.links
    server = content.servers[0] if len(content.servers) == 1 else "backend"
    generators = max(1, len(assignment.get("load", [])))
    counts = {"load": generators, **described.programs}
    columns = []
    for role, count in counts.items():
        hosts = assignment.get(role) or []
        name = described.titles.get(role, "load" if role == "load" else server)
        facts = _facts(members, described.shown.get(role, []))
        if role == "load" and generators > 1:
            facts[0] += " in all"
        boxes = []
        for index in range(count):
            host = hosts[index % len(hosts)] if hosts else None
            boxes.append((name if count == 1 else f"{name} {index + 1}", [*facts, *_host(host, links)]))
        columns.append(boxes)
    return columns, _ways(list(counts.values()), described.load_reaches)


def _facts(members: list[PlannedTrial], shown: Iterable[list[str]]) -> list[str]:
    """Return the settings of a role that are shown, each with its label."""
    return [f"{label} {_values(members, key).lower()}".strip() for label, key in shown]


def _ways(counts: list[int], load_reaches: str) -> list[list[tuple[int, int]]]:
    """Return which box leads to which: generators to one program each, or to all; the others to all."""
    ways = [
        [(source, target) for source in range(sources) for target in range(targets)]
        for sources, targets in pairwise(counts)
    ]
    if load_reaches == "one" and counts[0] >= counts[1]:
        ways[0] = [(source, source % counts[1]) for source in range(counts[0])]
    return ways


def _values(members: list[PlannedTrial], key: str) -> str:
    """Return the values of a setting over the trials: one, two, or the smallest and the largest."""
    distinct = sorted({lookup(to_builtins(trial), key) for trial in members})
    return f"{distinct[0]} to {distinct[-1]}" if len(distinct) > 2 else " or ".join(map(str, distinct))


def _host(name: str | None, links: dict[str, Link]) -> list[str]:
    """Return the name of the host, and its link."""
    if name is None:
        return []
    link = links.get(name)
    if link is None:
        return [name]
    lines = [name + (f", {link.cores:g} cores" if link.cores else "")]
    widths = [f"{arrow} {rate:g}" for arrow, rate in (("↑", link.up_mbit), ("↓", link.down_mbit)) if rate]
    lines += [" ".join(widths) + " Mbit/s"] if widths else []
    lines += [f"delay {link.delay_ms:g} ms"] if link.delay_ms else []
    return lines


def _drawing(arranged: tuple[list[list[Box]], list[list[tuple[int, int]]]], label: str) -> str:
    columns, ways = arranged
    shown = [_shortened(column) for column in columns]
    heights = [sum(_height(box) for box in column) + _SPACE * (len(column) - 1) for column in shown]
    height, width = max(heights) + 2, len(shown) * _WIDTH + (len(shown) - 1) * _GAP + 2
    boxes: list[str] = []
    middles: list[list[float]] = []
    for number, column in enumerate(shown):
        x, y = 1 + number * (_WIDTH + _GAP), 1 + (max(heights) - heights[number]) / 2
        middles.append([])
        for box in column:
            boxes.append(_box(box, x, y))
            middles[number].append(y + _height(box) / 2)
            y += _height(box) + _SPACE
    lines = []
    for number, pairs in enumerate(ways):
        from_x, to_x = 1 + number * (_WIDTH + _GAP) + _WIDTH, 1 + (number + 1) * (_WIDTH + _GAP)
        known = {
            (min(source, len(middles[number]) - 1), min(target, len(middles[number + 1]) - 1))
            for source, target in pairs
        }
        for source, target in sorted(known):
            lines.append(
                f'<line x1="{from_x:g}" y1="{middles[number][source]:g}" x2="{to_x:g}" '
                f'y2="{middles[number + 1][target]:g}" stroke="currentColor" stroke-opacity="0.45"/>'
            )
    return (
        f'<svg class="diagram" role="img" aria-label="{label}" '
        f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width * 1.25:g}" font-family="system-ui, sans-serif">{"".join(lines)}{"".join(boxes)}</svg>'
    )


def _shortened(column: list[Box]) -> list[Box]:
    if len(column) <= _BOXES_MAX:
        return column
    kept = column[: _BOXES_MAX - 1]
    return [*kept, (f"… and {len(column) - len(kept)} more", [])]


def _height(box: Box) -> float:
    return _TITLE + _LINE * len(box[1]) + _PAD


def _box(box: Box, x: float, y: float) -> str:
    title, lines = box
    centre = x + _WIDTH / 2
    text = (
        f'<text x="{centre:g}" y="{y + 16:g}" text-anchor="middle" font-size="12" font-weight="600" '
        f'fill="currentColor">{escape(title)}</text>'
    )
    for number, line in enumerate(lines):
        place = y + _TITLE + _LINE * (number + 1) - 2
        text += (
            f'<text x="{centre:g}" y="{place:g}" text-anchor="middle" font-size="10" '
            f'fill="currentColor" fill-opacity="0.75">{escape(line)}</text>'
        )
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_height(box):g}" rx="5" fill="currentColor" '
        f'fill-opacity="0.05" stroke="currentColor" stroke-opacity="0.6"/>{text}'
    )
