"""Splits of a table: which cells calibrate and which are held out. No split looks at a measured value."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from waylab.fit.table.observations import CellSettings, ObservedCell

SPLITS = ("pools", "clients", "servers", "levels")
ANCHORS = (0, 1, 2, 4)


def anchored(count: int) -> str:
    """The part of hold-outs with so many anchor cells."""
    return "blind" if not count else f"{count} anchor{'s' if count > 1 else ''}"


TO_TWICE, TO_FOUR_TIMES = "to twice the clients", "to four times the clients"
ANCHORED = frozenset(anchored(count) for count in ANCHORS)
# Parts whose targets lie beyond the calibrated settings in a direction that a bottleneck limits.
EXTRAPOLATING = frozenset({TO_TWICE, TO_FOUR_TIMES, "extrapolation", *ANCHORED})
_COUNTS_MIN = 4
_POOLS_MIN = 3
_REACH_MAX = 4
_TWICE = 2
_FACTORS = ("writes_share", "middlewares", "value_bytes", "multiget_keys")

Cells = tuple[ObservedCell, ...]


@dataclass(frozen=True)
class HoldOut:
    """Cells to learn from and cells to predict. `part` names the table row in which the errors are reported."""

    part: str
    calibration: Cells
    targets: Cells
    anchors: int = 0
    refused: str = ""
    # Without the anchors: the cells among which models are chosen.
    known: Cells = ()


def hold_outs(cells: Sequence[ObservedCell], split: str) -> list[HoldOut]:
    """The hold-outs of a split, for the cells of one data set."""
    return list(_SPLITTERS[split](tuple(cells)))


def inner_hold_outs(outer: HoldOut, split: str) -> list[HoldOut]:
    """Hold-outs within the calibration cells alone that resemble the outer one, to choose models and set intervals."""
    return [one for one in _INNER[split](outer) if not one.refused]


def _grouped(cells: Cells, key: Callable[[CellSettings], object]) -> list[Cells]:
    groups: dict[object, list[ObservedCell]] = {}
    for one in cells:
        groups.setdefault(key(one.settings), []).append(one)
    return [tuple(group) for group in groups.values()]


def _deployment(one: CellSettings) -> CellSettings:
    """Everything but pool size and clients."""
    return replace(one, workers=int(one.workers > 0), clients=1)


def _pools(cells: Cells) -> Iterator[HoldOut]:
    for group in _grouped(tuple(one for one in cells if one.settings.slots), _deployment):
        pools = sorted({one.settings.workers for one in group})
        if len(pools) < _POOLS_MIN:
            yield HoldOut(
                "refused",
                (),
                group,
                refused=f"only {len(pools)} pool sizes were measured there; {_POOLS_MIN} are needed",
            )
            continue
        yield from _each_pool(group, pools)


def _each_pool(group: Cells, pools: Sequence[int]) -> Iterator[HoldOut]:
    for pool in pools:
        part = "interpolation" if pools[0] < pool < pools[-1] else "extrapolation"
        yield HoldOut(
            part,
            tuple(one for one in group if one.settings.workers != pool),
            tuple(one for one in group if one.settings.workers == pool),
        )


def _inner_pools(outer: HoldOut) -> Iterator[HoldOut]:
    pools = sorted({one.settings.workers for one in outer.calibration})
    for one in _each_pool(outer.calibration, pools):
        # Interpolations are judged by interpolations where there are any.
        if len(pools) < _POOLS_MIN or outer.part != "interpolation" or one.part == "interpolation":
            yield one
    if len(pools) >= _POOLS_MIN and outer.part == "interpolation":
        yield from (one for one in _each_pool(outer.calibration, pools) if one.part != "interpolation")


def _clients(cells: Cells) -> Iterator[HoldOut]:
    for group in _grouped(cells, _deployment):
        counts = sorted({one.settings.clients for one in group})
        if len(counts) < _COUNTS_MIN:
            yield HoldOut(
                "refused",
                (),
                group,
                refused=f"only {len(counts)} numbers of clients were measured there; {_COUNTS_MIN} are needed",
            )
            continue
        half = counts[(len(counts) + 1) // 2 - 1]
        # No more than four times the calibrated clients are predicted.
        cut = max(half, min(one for one in counts if _REACH_MAX * one >= counts[-1]))
        yield from _beyond(group, cut)


def _beyond(group: Cells, cut: int) -> Iterator[HoldOut]:
    calibration = tuple(one for one in group if one.settings.clients <= cut)
    for part, low, high in (
        (TO_TWICE, 1, _TWICE),
        (TO_FOUR_TIMES, _TWICE, _REACH_MAX),
    ):
        targets = tuple(one for one in group if low * cut < one.settings.clients <= high * cut)
        if targets:
            yield HoldOut(part, calibration, targets)


def _inner_clients(outer: HoldOut) -> Iterator[HoldOut]:
    counts = sorted({one.settings.clients for one in outer.calibration})
    for cut in counts[1:-1]:
        for one in _beyond(outer.calibration, cut):
            if one.part == outer.part:
                yield one


def _kind(one: CellSettings) -> tuple[object, ...]:
    return one.writes_share, one.multiget_keys > 0, one.value_bytes, one.slots > 0


def _servers(cells: Cells) -> Iterator[HoldOut]:
    for group in _grouped(cells, _kind):
        counts = sorted({one.settings.servers for one in group})
        if len(counts) < 2:
            yield HoldOut(
                "refused", (), group, refused="all cells of this workload have the same number of servers"
            )
            continue
        for servers in counts[1:]:
            known = tuple(one for one in group if one.settings.servers < servers)
            for held in _grouped(
                tuple(one for one in group if one.settings.servers == servers),
                lambda one: one.experiment,
            ):
                yield from _anchored(known, held)


def _anchored(known: Cells, held: Cells) -> Iterator[HoldOut]:
    for anchors in ANCHORS:
        if anchors * 3 > len(held):
            continue
        chosen = anchor_cells(held, anchors)
        yield HoldOut(
            anchored(anchors),
            known + chosen,
            tuple(one for one in held if one not in chosen),
            anchors,
            known=known,
        )


def anchor_cells(held: Cells, count: int) -> Cells:
    """The cells that a user would measure first: the most clients with the largest pool, then the other corners."""
    corners: tuple[Callable[[CellSettings], tuple[int, int]], ...] = (
        lambda one: (-one.workers, -one.clients),
        lambda one: (one.workers, -one.clients),
        lambda one: (-one.workers, one.clients),
    )
    if len({one.settings.workers for one in held}) == 1:
        # A second anchor at the same pool size and nearly the same load would add nothing.
        corners = (corners[0], corners[2])
    found: list[ObservedCell] = []
    for place in range(count):
        if place < len(corners):
            key = corners[place]
            ordered = sorted(held, key=lambda one: (key(one.settings), one.settings))
        else:
            middle = sorted(held, key=lambda one: (one.settings.clients, one.settings))
            ordered = middle[len(middle) // 2 :] + middle
        found.append(next(one for one in ordered if one not in found))
    return tuple(found)


def _place(one: CellSettings) -> tuple[object, ...]:
    return one.experiment, one.servers, one.middlewares, one.client_machines, one.writes_share


def _inner_deployments(outer: HoldOut) -> Iterator[HoldOut]:
    cells = outer.known or outer.calibration
    groups = _grouped(cells, _place)
    for group in groups:
        rest = tuple(one for one in cells if one not in group)
        if rest and len(group) > outer.anchors:
            chosen = anchor_cells(group, outer.anchors)
            targets = tuple(one for one in group if one not in chosen)
            yield HoldOut(outer.part, rest + chosen, targets, outer.anchors)


def _levels(cells: Cells) -> Iterator[HoldOut]:
    for factor in _FACTORS:
        for group in _grouped(cells, lambda one, factor=factor: _comparable(one, factor)):  # type: ignore[misc]
            levels = sorted({getattr(one.settings, factor) for one in group})
            if len(levels) < 2:
                continue
            for level in levels:
                rest = tuple(one for one in group if getattr(one.settings, factor) != level)
                held = tuple(one for one in group if getattr(one.settings, factor) == level)
                refused = ""
                if len(levels) == 2 and factor in ("writes_share", "value_bytes"):
                    refused = (
                        f"without it, {factor} is constant, and it decides which link or machine is the bottleneck: "
                        f"its effect cannot be identified; measure a third"
                    )
                yield HoldOut(factor, rest, held, refused=refused)


def _comparable(one: CellSettings, factor: str) -> tuple[object, ...]:
    if factor == "writes_share":
        return one.experiment, one.multiget_keys > 0, one.slots > 0
    return one.writes_share, one.multiget_keys > 0, one.slots > 0


def _inner_levels(outer: HoldOut) -> Iterator[HoldOut]:
    levels = sorted({getattr(one.settings, outer.part) for one in outer.calibration})
    if len(levels) > 1:
        for level in levels:
            rest = tuple(one for one in outer.calibration if getattr(one.settings, outer.part) != level)
            held = tuple(one for one in outer.calibration if getattr(one.settings, outer.part) == level)
            yield HoldOut(outer.part, rest, held)
    else:
        yield from _inner_deployments(outer)


_SPLITTERS = {"pools": _pools, "clients": _clients, "servers": _servers, "levels": _levels}
_INNER = {
    "pools": _inner_pools,
    "clients": _inner_clients,
    "servers": _inner_deployments,
    "levels": _inner_levels,
}
