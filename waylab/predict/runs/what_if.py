"""Predictions on a grid around the measured configurations, for the page with sliders."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from waylab.errors import LabError
from waylab.fit.interface import ModelPrediction, RefusedFitError
from waylab.fit.observations import ModelSettings, TrialObservation
from waylab.fit.observations.settings import NUMERIC
from waylab.predict.runs.chosen import FittedChosen

_CELLS_MAX = 600
_FACTORS_MAX = 5
_LEVELS_MAX = 17
# Settings with fractions; the others are counts.
_FRACTIONS = frozenset({"rate_per_s", "think_s", "writes_share", "service_s"})

Progressing = Callable[[int, int], None]


@dataclass(frozen=True)
class GridFactor:
    """A setting that the page changes: its levels in order, the measured ones among them, and where it begins."""

    name: str
    levels: tuple[float, ...]
    measured: tuple[float, ...]
    start: int


@dataclass(frozen=True)
class GridCell:
    """One prediction, or why there is none; `throughputs_per_s` and `responses_s` are the means of trials."""

    prediction: ModelPrediction | None
    refused: str
    throughputs_per_s: tuple[float, ...] = ()
    responses_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class Grid:
    """All combinations of levels; the last factor changes fastest in `cells`."""

    base: ModelSettings
    factors: tuple[GridFactor, ...]
    cells: tuple[GridCell, ...]


def what_if(
    fitted: FittedChosen,
    base: ModelSettings,
    measured: Sequence[TrialObservation],
    report: Progressing = lambda done, total: None,
) -> Grid:
    """Predict every combination of the settings that were measured at several levels.

    The levels lie between the measured ones and reach to twice the largest. Other settings keep the value of `base`.

    Raises:
        LabError: when no setting has two measured levels.
    """
    factors = _factors(fitted, base)
    total = math.prod(len(one.levels) for one in factors)
    trials: dict[ModelSettings, list[TrialObservation]] = {}
    for one in measured:
        trials.setdefault(one.settings, []).append(one)
    cells: list[GridCell] = []
    for values in itertools.product(*(one.levels for one in factors)):
        report(len(cells), total)
        settings = _settings(base, dict(zip((one.name for one in factors), values, strict=True)))
        seen = trials.get(settings, [])
        cells.append(
            replace(
                _cell(fitted, settings),
                throughputs_per_s=tuple(one.throughput_per_s for one in seen),
                responses_s=tuple(one.response_s for one in seen),
            )
        )
    return Grid(base, factors, tuple(cells))


def _settings(base: ModelSettings, values: Mapping[str, float]) -> ModelSettings:
    exact = {name: value if name in _FRACTIONS else round(value) for name, value in values.items()}
    return replace(base, **exact)  # type: ignore[arg-type]


def _cell(fitted: FittedChosen, settings: ModelSettings) -> GridCell:
    if settings.servers and settings.replicas > settings.servers:
        return GridCell(None, f"{settings.replicas} replicas need more than {settings.servers} servers")
    try:
        return GridCell(fitted.predict(settings), "")
    except RefusedFitError as error:
        return GridCell(None, str(error))


def _factors(fitted: FittedChosen, base: ModelSettings) -> tuple[GridFactor, ...]:
    """The settings with several measured levels; where there are too many, those with most levels."""
    varied = [name for name in NUMERIC if len(fitted.domain.levels[name]) > 1]
    if not varied:
        raise LabError(
            "--page: no setting was measured at two levels; measure two numbers of clients, for example"
        )
    varied.sort(key=lambda name: -len(fitted.domain.levels[name]))
    varied = sorted(varied[:_FACTORS_MAX], key=NUMERIC.index)
    levels = {name: _levels(name, fitted.domain.levels[name], getattr(base, name)) for name in varied}
    while math.prod(len(found) for found in levels.values()) > _CELLS_MAX:
        longest = max(levels, key=lambda name: len(levels[name]))
        kept = {*fitted.domain.levels[longest], float(getattr(base, longest)), levels[longest][-1]}
        between = [value for value in levels[longest] if value not in kept]
        if not between:
            # Nothing but measured levels is left: the factor with most of them loses every second one.
            levels[longest] = _halved(levels[longest], float(getattr(base, longest)))
            continue
        levels[longest] = [value for value in levels[longest] if value != between[len(between) // 2]]
    return tuple(
        GridFactor(
            name,
            tuple(found),
            tuple(value for value in found if value in fitted.domain.levels[name]),
            found.index(float(getattr(base, name))),
        )
        for name, found in levels.items()
    )


def _levels(name: str, measured: Sequence[float], start: float) -> list[float]:
    """Measured levels, some between them by ratio, and up to twice the largest."""
    found = {*measured, float(start)}
    ends = [*measured, 1.0 if name == "writes_share" else 2 * measured[-1]]
    steps = max(1, min(4, (_LEVELS_MAX - len(ends)) // len(ends) + 1))
    for low, high in itertools.pairwise(ends):
        for step in range(1, steps + 1):
            share = step / steps
            value = low + (high - low) * share if low <= 0 else low * (high / low) ** share
            found.add(float(f"{value:.3g}") if name in _FRACTIONS else float(round(value)))
    return sorted(found)


def _halved(levels: list[float], start: float) -> list[float]:
    kept = set(levels[::2]) | {levels[-1], start}
    return sorted(kept) if len(kept) < len(levels) else sorted({levels[0], levels[-1], start})
