"""Assigns the places of a drawing to columns, and orders each column. Knows no pixels.

A place's column is its longest path from the client; long arrows get an empty place in each column that they pass. The
order has the fewest crossings of those that averaging over neighbours finds (Sugiyama et al., 1981).
"""

from dataclasses import dataclass, field
from itertools import pairwise

from waylab.models.description import CLIENT
from waylab.report.models.graph import END, Graph

_SWEEPS = 12
# Prefix of the name of an empty place; no station's name has it.
_PASSED = "\0way "


@dataclass
class Layers:
    """Columns of names. A passing arrow's empty places are named by the arrow's number and the column."""

    columns: list[list[str]]
    ways: dict[int, list[str]]
    """Number of an arrow to the names that it passes, ends included."""
    back: list[int]
    """Numbers of the arrows that run backwards or stay in a column."""
    pool: dict[str, str] = field(default_factory=dict)
    """Name to its pool."""


def layers_of(graph: Graph) -> Layers:
    """Arrange the places of a graph."""
    back = _back_arrows(graph)
    forward = [number for number in range(len(graph.arrows)) if number not in back]
    column = _columns(graph, forward)
    columns: list[list[str]] = [[] for _ in range(max(column.values()) + 1)]
    for name in graph.places:
        columns[column[name]].append(name)
    pool = {name: title for title, members in graph.pools.items() for name in members}
    ways: dict[int, list[str]] = {}
    for number in forward:
        arrow = graph.arrows[number]
        ways[number] = [arrow.origin]
        for passed in range(column[arrow.origin] + 1, column[arrow.target]):
            name = f"{_PASSED}{number} {passed}"
            ways[number].append(name)
            columns[passed].append(name)
            if pool.get(arrow.origin) and pool.get(arrow.origin) == pool.get(arrow.target):
                pool[name] = pool[arrow.origin]
        ways[number].append(arrow.target)
    return Layers(_ordered(columns, list(ways.values()), pool), ways, back, pool)


def is_place(name: str) -> bool:
    """Whether a name in a column is a place, and not an empty place of a long arrow."""
    return not name.startswith(_PASSED)


def _back_arrows(graph: Graph) -> list[int]:
    """Arrows that close a cycle, found from the client in the order of the description."""
    outgoing: dict[str, list[int]] = {}
    for number, arrow in enumerate(graph.arrows):
        outgoing.setdefault(arrow.origin, []).append(number)
    back: list[int] = []
    done: set[str] = set()
    on_way: set[str] = set()

    def follow(name: str) -> None:
        on_way.add(name)
        for number in outgoing.get(name, []):
            target = graph.arrows[number].target
            if target in on_way:
                back.append(number)
            elif target not in done:
                follow(target)
        on_way.discard(name)
        done.add(name)

    follow(CLIENT)
    return back


def _columns(graph: Graph, forward: list[int]) -> dict[str, int]:
    """Longest path from the client, in arrows."""
    column = dict.fromkeys(graph.places, 0)
    arrows = [graph.arrows[number] for number in forward]
    for _ in graph.places:
        for arrow in arrows:
            column[arrow.target] = max(column[arrow.target], column[arrow.origin] + 1)
    column[END] = max(column[END], 1 + max(column[name] for name in graph.places if name != END))
    return column


def _ordered(columns: list[list[str]], ways: list[list[str]], pool: dict[str, str]) -> list[list[str]]:
    neighbours: tuple[dict[str, list[str]], dict[str, list[str]]] = ({}, {})
    for way in ways:
        for before, after in pairwise(way):
            neighbours[0].setdefault(after, []).append(before)
            neighbours[1].setdefault(before, []).append(after)
    best, crossings = [list(names) for names in columns], _crossings(columns, neighbours[1])
    current = [list(names) for names in columns]
    for sweep in range(_SWEEPS):
        sides = neighbours[sweep % 2]
        numbers = range(1, len(current)) if sweep % 2 == 0 else range(len(current) - 2, -1, -1)
        for number in numbers:
            beside = current[number - 1 if sweep % 2 == 0 else number + 1]
            current[number] = _sorted(current[number], beside, sides, pool)
        found = _crossings(current, neighbours[1])
        if found < crossings or sweep == 1:
            # The first round counts even without fewer crossings: it keeps the members of a pool together.
            best, crossings = [list(names) for names in current], found
    return best


def _sorted(
    names: list[str], beside: list[str], neighbours: dict[str, list[str]], pool: dict[str, str]
) -> list[str]:
    """Sort by the mean position of the neighbours; members of a pool stay together."""
    place = {name: index / max(1, len(beside) - 1) for index, name in enumerate(beside)}
    own = {
        name: _mean([place[other] for other in neighbours.get(name, [])], index / max(1, len(names) - 1))
        for index, name in enumerate(names)
    }
    groups: dict[str, list[float]] = {}
    for name in names:
        groups.setdefault(_group(name, pool), []).append(own[name])
    return sorted(names, key=lambda name: (_mean(groups[_group(name, pool)]), _group(name, pool), own[name]))


def _group(name: str, pool: dict[str, str]) -> str:
    return f"\0pool {pool[name]}" if name in pool else name


def _mean(numbers: list[float], otherwise: float = 0.0) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _crossings(columns: list[list[str]], after: dict[str, list[str]]) -> int:
    count = 0
    for names, following in pairwise(columns):
        place = {name: index for index, name in enumerate(following)}
        lines = [(i, place[other]) for i, name in enumerate(names) for other in after.get(name, [])]
        for index, (start, end) in enumerate(lines):
            count += sum((start - left) * (end - right) < 0 for left, right in lines[:index])
    return count
