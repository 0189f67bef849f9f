"""Errors and coverage of models, by data set and by what was held out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from waylab.predict.table.judge import JudgedCell

ALL = "all"


@dataclass(frozen=True)
class Score:
    """Median and 90th percentile of absolute relative errors, and the share of cells within each interval."""

    dataset: str
    part: str
    model: str
    cells: int
    throughput: tuple[float | None, float | None]
    response: tuple[float | None, float | None]
    p95: float | None
    coverage: float | None
    response_coverage: float | None
    p95_coverage: float | None


def scores_of(found: Sequence[JudgedCell]) -> list[Score]:
    """One score for each data set, part and model, and for all data sets together if there are several."""
    groups: dict[tuple[str, str, str], list[JudgedCell]] = {}
    several = len({one.dataset for one in found}) > 1
    for one in found:
        if one.refused:
            continue
        for dataset in [one.dataset, ALL] if several else [one.dataset]:
            groups.setdefault((dataset, one.part, one.model), []).append(one)
    return [_score(*key, group) for key, group in groups.items()]


def _score(dataset: str, part: str, model: str, group: Sequence[JudgedCell]) -> Score:
    response = _errors(group, "response_mean")
    throughput = _errors(group, "throughput")
    p95 = _errors(group, "response_p95")
    return Score(
        dataset,
        part,
        model,
        len(group),
        (_quantile(throughput, 0.5), _quantile(throughput, 0.9)),
        (_quantile(response, 0.5), _quantile(response, 0.9)),
        _quantile(p95, 0.5),
        _coverage(group, "throughput"),
        _coverage(group, "response_mean"),
        _coverage(group, "response_p95"),
    )


def _errors(group: Sequence[JudgedCell], name: str) -> list[float]:
    found = [one.quantities[name] for one in group if name in one.quantities]
    return [
        abs(one.predicted / one.measured - 1)
        for one in found
        if one.predicted is not None and one.measured is not None
    ]


def _quantile(errors: Sequence[float], share: float) -> float | None:
    return float(np.quantile(errors, share)) if errors else None


def _coverage(group: Sequence[JudgedCell], name: str) -> float | None:
    inside = [
        one.interval[0] <= one.measured <= one.interval[1]
        for cell in group
        if (one := cell.quantities.get(name)) is not None
        and one.interval is not None
        and one.measured is not None
    ]
    return sum(inside) / len(inside) if inside else None
