"""Errors of the chosen model against each factor, its skill over the baselines, and the experiments where it fails."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from waylab.fit.table.baselines import baselines
from waylab.fit.table.observations import CellSettings
from waylab.predict.table.candidates import CHOSEN
from waylab.predict.table.judge import JudgedCell

_LEVELS_MAX = 4
_CELLS_MIN = 3
_FAILURES_MAX = 5
_FAILING = 2.0
_FACTORS: tuple[tuple[str, Callable[[CellSettings], float]], ...] = (
    ("clients", lambda one: one.clients),
    ("workers", lambda one: one.workers),
    ("servers", lambda one: one.servers),
    ("middlewares", lambda one: one.middlewares),
    ("client machines", lambda one: one.client_machines),
    ("share of writes", lambda one: one.writes_share),
    ("keys", lambda one: one.multiget_keys),
    ("value bytes", lambda one: one.value_bytes),
)


@dataclass(frozen=True)
class TableResidual:
    """Relative errors of throughput of the chosen model in a group of cells; a positive bias predicts too much."""

    factor: str
    level: str
    cells: int
    bias: float
    median: float
    coverage: float


@dataclass(frozen=True)
class TableSkill:
    """Median errors of throughput of the chosen model and of the best baseline, at the same cells."""

    part: str
    baseline: str
    chosen: float
    best: float


@dataclass(frozen=True)
class TableFailure:
    """An experiment whose median error is at least twice that of its part, and what is special about it."""

    dataset: str
    experiment: str
    workload: str
    part: str
    residual: TableResidual
    reasons: tuple[str, ...]


def residuals_of(found: Sequence[JudgedCell]) -> list[TableResidual]:
    """The errors against each factor with several levels; more than four levels are divided into four groups."""
    cells = _chosen(found)
    residuals = []
    for name, value in _FACTORS:
        levels = sorted({value(one.settings) for one in cells})
        if len(levels) < 2:
            continue
        bounds = levels
        if len(levels) > _LEVELS_MAX:
            places = [round(share * (len(levels) - 1)) for share in np.linspace(0, 1, _LEVELS_MAX + 1)[1:]]
            bounds = [levels[place] for place in places]
        low = levels[0]
        for bound in bounds:
            group = [one for one in cells if low <= value(one.settings) <= bound]
            level = f"{low:g}" if low == bound else f"{low:g} to {bound:g}"
            residuals.append(_residual(name, level, group))
            low = next((one for one in levels if one > bound), bound)
    return residuals


def skills_of(found: Sequence[JudgedCell]) -> list[TableSkill]:
    """The chosen model and the best baseline of each part."""
    skills = []
    for part in dict.fromkeys(one.part for one in found if not one.refused):
        group = [one for one in found if one.part == part]
        chosen = {(one.dataset, one.settings): _error(one) for one in _chosen(group)}
        if not chosen:
            continue
        best: tuple[float, str] | None = None
        for model in baselines():
            errors = {(one.dataset, one.settings): _error(one) for one in _of(group, model.name)}
            # A baseline that refuses cells is not compared: it might refuse the difficult ones.
            if errors.keys() >= chosen.keys():
                median = float(np.median([abs(errors[key]) for key in chosen]))
                best = min(best or (median, model.name), (median, model.name))
        if best is not None:
            own = float(np.median([abs(one) for one in chosen.values()]))
            skills.append(TableSkill(part, best[1], own, best[0]))
    return skills


def failures_of(found: Sequence[JudgedCell]) -> list[TableFailure]:
    """The experiments with the largest errors, at most five."""
    cells = _chosen(found)
    failures = []
    for part in dict.fromkeys(one.part for one in cells):
        of_part = [one for one in cells if one.part == part]
        usual = float(np.median([abs(_error(one)) for one in of_part]))
        groups: dict[tuple[str, str, str], list[JudgedCell]] = {}
        for one in of_part:
            groups.setdefault((one.dataset, one.settings.experiment, one.settings.workload), []).append(one)
        for (dataset, experiment, workload), group in groups.items():
            residual = _residual("experiment", experiment, group)
            if len(group) >= _CELLS_MIN and residual.median >= _FAILING * max(usual, 0.01):
                failures.append(TableFailure(dataset, experiment, workload, part, residual, _reasons(group)))
    return sorted(failures, key=lambda one: -one.residual.median)[:_FAILURES_MAX]


def _reasons(group: Sequence[JudgedCell]) -> tuple[str, ...]:
    """What most of the cells have in common."""
    counts: dict[str, int] = {}
    for one in group:
        texts = {text.split(" = ")[0] + " beyond the calibration" for text in one.extrapolates}
        if one.flag:
            texts.add("trials that contradict each other")
        if one.bottleneck:
            texts.add(f"bottleneck: {one.bottleneck}")
        for text in texts:
            counts[text] = counts.get(text, 0) + 1
    return tuple(sorted(text for text, count in counts.items() if 2 * count > len(group)))


def _chosen(found: Sequence[JudgedCell]) -> list[JudgedCell]:
    return _of(found, CHOSEN)


def _of(found: Sequence[JudgedCell], model: str) -> list[JudgedCell]:
    return [
        one
        for one in found
        if one.model == model
        and not one.refused
        and one.quantities["throughput"].predicted is not None
        and one.quantities["throughput"].measured is not None
    ]


def _error(one: JudgedCell) -> float:
    quantity = one.quantities["throughput"]
    assert quantity.predicted is not None and quantity.measured is not None
    return quantity.predicted / quantity.measured - 1


def _residual(factor: str, level: str, group: Sequence[JudgedCell]) -> TableResidual:
    errors = [_error(one) for one in group]
    inside = [
        quantity.interval[0] <= (quantity.measured or 0.0) <= quantity.interval[1]
        for one in group
        if (quantity := one.quantities["throughput"]).interval is not None
    ]
    return TableResidual(
        factor,
        level,
        len(group),
        float(np.median(errors)),
        float(np.median(np.abs(errors))),
        sum(inside) / len(inside) if inside else 0.0,
    )
