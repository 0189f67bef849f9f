"""The judge: predicts every held-out cell with every model, and says what was measured there."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from waylab.errors import LabError
from waylab.fit.table.discrepancy import CYCLE_MAX
from waylab.fit.table.interface import (
    CellPrediction,
    FittedTableModel,
    RefusedFitError,
    TableModel,
    domain_of,
)
from waylab.fit.table.observations import CellSettings, Observation, ObservedCell, cells_of
from waylab.fit.table.percentile import fit_percentile_excess
from waylab.models import ModelError
from waylab.predict.table.candidates import CHOSEN, blend, candidates, may_be_chosen, weights_of
from waylab.predict.table.intervals import (
    NORMAL,
    QUANTILE_BEFORE,
    QUANTILE_BEFORE_BEYOND,
    QUANTILE_BEFORE_FAR,
    around,
    half_width,
)
from waylab.predict.table.splits import (
    ANCHORED,
    EXTRAPOLATING,
    TO_FOUR_TIMES,
    HoldOut,
    hold_outs,
    inner_hold_outs,
)

QUANTITIES = ("throughput", "response_mean", "response_middleware_mean", "response_p95")
_INNER_MAX = 4


@dataclass(frozen=True)
class PredictedQuantity:
    """One quantity of one cell: measured, predicted, and the 90 % interval of what is measured."""

    measured: float | None
    predicted: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class JudgedCell:
    """One held-out cell and one model."""

    dataset: str
    split: str
    part: str
    settings: CellSettings
    model: str
    anchors: int
    view: str
    quantities: Mapping[str, PredictedQuantity]
    extrapolates: tuple[str, ...] = ()
    weights: Mapping[str, float] | None = None
    bottleneck: str = ""
    refused: str = ""
    # Why the measurement of the cell is doubtful, or nothing.
    flag: str = ""


Report = Callable[[int, int], None]


def judge(
    observations: Sequence[Observation], split: str, report: Report = lambda done, total: None
) -> list[JudgedCell]:
    """Predict the held-out cells of a split, data set by data set.

    Raises:
        LabError: when the table has no usable row, or nothing to hold out.
    """
    cells, unusable = cells_of(observations)
    if not cells:
        raise LabError(f"no usable row: {unusable[0][1]}" if unusable else "no usable row")
    jobs = [
        (dataset, one)
        for dataset in sorted({one.mean.dataset for one in cells})
        for one in hold_outs([cell for cell in cells if cell.mean.dataset == dataset], split)
    ]
    if not any(one.targets and not one.refused for _, one in jobs):
        reasons = sorted({one.refused for _, one in jobs if one.refused})
        raise LabError(
            f"nothing to hold out for the split {split!r}: "
            + ("; ".join(reasons) if reasons else f"no cell has two levels of a factor of {split}")
        )
    found: list[JudgedCell] = []
    judges = {dataset: _Judge(split) for dataset, _ in jobs}
    for done, (dataset, outer) in enumerate(jobs):
        report(done, len(jobs))
        if outer.refused:
            found += [_refused(dataset, split, one, outer.part, outer.refused) for one in outer.targets]
        else:
            found += _judged(dataset, split, outer, judges[dataset])
    return found + [
        JudgedCell(one.dataset, split, "unusable", one.settings, CHOSEN, 0, one.view, {}, refused=reason)
        for one, reason in unusable
    ]


def _refused(
    dataset: str,
    split: str,
    cell: ObservedCell,
    part: str,
    reason: str,
    model: str = CHOSEN,
    anchors: int = 0,
) -> JudgedCell:
    measured = {
        name: PredictedQuantity(value, None, None)
        for name in QUANTITIES
        if (value := measured_quantity(cell, name)) is not None
    }
    return JudgedCell(
        dataset,
        split,
        part,
        cell.settings,
        model,
        anchors,
        cell.mean.view,
        measured,
        refused=reason,
        flag=cell.flag,
    )


def measured_quantity(cell: ObservedCell, name: str) -> float | None:
    """What was measured of a quantity."""
    one = cell.mean
    return {
        "throughput": one.throughput_per_s,
        "response_mean": one.response_s,
        "response_middleware_mean": one.response_middleware_s,
        "response_p95": one.response_p95_s,
    }[name]


def predicted_quantity(found: CellPrediction, name: str, view: str) -> float | None:
    """What a model predicts of a quantity."""
    return {
        "throughput": found.throughput_per_s,
        "response_mean": found.response_in(view),
        "response_middleware_mean": found.inside_s,
        "response_p95": found.p95_s,
    }[name]


class _Fits:
    """Every model fitted to one calibration set, or the reason why it cannot be."""

    def __init__(self, models: Sequence[TableModel], calibration: Sequence[ObservedCell]) -> None:
        self.fitted: dict[str, FittedTableModel] = {}
        self.reasons: dict[str, str] = {}
        self._excess = fit_percentile_excess(calibration)
        for model in models:
            try:
                self.fitted[model.name] = model.fit(calibration)
            except (RefusedFitError, ModelError) as error:
                self.reasons[model.name] = str(error)

    def predict(self, settings: CellSettings) -> tuple[dict[str, CellPrediction], dict[str, str]]:
        found: dict[str, CellPrediction] = {}
        reasons = dict(self.reasons)
        for name, fitted in self.fitted.items():
            try:
                one = fitted.predict(settings)
            except (RefusedFitError, ModelError) as error:
                reasons[name] = str(error)
                continue
            if self._excess is not None and one.inside_s is not None and one.p95_s is None:
                one = replace(one, p95_s=self._excess.p95_s(settings, one.inside_s))
            found[name] = one
        return found, reasons


def _errors(cell: ObservedCell, found: CellPrediction) -> dict[str, float]:
    """Logarithm of predicted over measured, by quantity."""
    errors = {}
    for name in QUANTITIES:
        measured, predicted = measured_quantity(cell, name), predicted_quantity(found, name, cell.mean.view)
        if measured is not None and predicted is not None:
            errors[name] = math.log(predicted / measured)
    return errors


_Pair = tuple[ObservedCell, dict[str, CellPrediction]]


class _Judge:
    """Judges the hold-outs of one data set; hold-outs with the same inner ones share them."""

    def __init__(self, split: str) -> None:
        self._split = split
        self._known: dict[tuple[object, ...], list[_Pair]] = {}

    def pairs(self, outer: HoldOut, models: Sequence[TableModel]) -> list[_Pair]:
        """Cells held out inside the calibration set, with the predictions of all models."""
        inner = _spaced(inner_hold_outs(outer, self._split), _INNER_MAX)
        key = tuple(
            (
                one.part,
                *(cell.settings for cell in one.calibration),
                None,
                *(cell.settings for cell in one.targets),
            )
            for one in inner
        )
        if key not in self._known:
            found: list[_Pair] = []
            for one in inner:
                fits = _Fits(models, one.calibration)
                found += [(cell, fits.predict(cell.settings)[0]) for cell in one.targets]
            self._known[key] = found
        return self._known[key]


def _spaced(found: Sequence[HoldOut], count: int) -> list[HoldOut]:
    """At most so many, evenly over all."""
    if len(found) <= count:
        return list(found)
    return [found[place * len(found) // count] for place in range(count)]


def _judged(dataset: str, split: str, outer: HoldOut, judge_of: _Judge) -> list[JudgedCell]:
    models = candidates(outer, split)
    names = [one.name for one in models]
    inner: dict[str, list[dict[str, float]]] = {name: [] for name in [CHOSEN, *names]}
    pairs = judge_of.pairs(outer, models)
    for cell, found in pairs:
        for name, prediction in found.items():
            inner[name].append(_errors(cell, prediction))
    throughput_errors = {
        name: [one["throughput"] for one in inner[name]] for name in names if may_be_chosen(name, outer)
    }
    weights = weights_of(throughput_errors, names)
    for cell, found in pairs:
        chosen = blend(found, weights)
        if chosen is not None:
            inner[CHOSEN].append(_errors(cell, chosen))
    fits = _Fits(models, outer.calibration)
    domain = domain_of(outer.calibration)
    judged = []
    for cell in outer.targets:
        found, reasons = fits.predict(cell.settings)
        chosen = blend(found, weights) or blend(found, dict.fromkeys(throughput_errors, 1.0))
        if chosen is not None:
            found = {CHOSEN: chosen, **found}
        else:
            reasons[CHOSEN] = "; ".join(sorted(set(reasons.values())))
        for name in [CHOSEN, *names]:
            if name not in found:
                judged.append(_refused(dataset, split, cell, outer.part, reasons[name], name, outer.anchors))
                continue
            judged.append(
                JudgedCell(
                    dataset,
                    split,
                    outer.part,
                    cell.settings,
                    name,
                    outer.anchors,
                    cell.mean.view,
                    _quantities(cell, found[name], inner[name], outer.part),
                    tuple(domain.beyond(cell.settings)),
                    weights if name == CHOSEN else None,
                    found[name].bottleneck,
                    flag=cell.flag,
                )
            )
    return judged


def _half_width(
    name: str, found: CellPrediction, errors: Sequence[float], part: str, is_response: bool
) -> float:
    """Half the interval of ln of a quantity: from held-out errors, or from the model's own spread.

    Calibration cells with fewer servers hardly hold a change of the number of servers, so that errors among them say
    little about one. Where that is predicted, the model's spread counts.
    """
    if part in EXTRAPOLATING and name != "throughput" and not is_response:
        before = QUANTILE_BEFORE_BEYOND
    else:
        before = QUANTILE_BEFORE_FAR if part == TO_FOUR_TIMES else QUANTILE_BEFORE
    half = half_width(errors, 0.0, before)
    if part not in ANCHORED or found.spread is None:
        return half
    own = found.spread if name == "throughput" or is_response else found.spread_inside
    if own is None:
        return half
    return max(half, NORMAL * own) if name == "response_p95" else NORMAL * own


def _quantities(
    cell: ObservedCell, found: CellPrediction, inner: Sequence[Mapping[str, float]], part: str
) -> dict[str, PredictedQuantity]:
    quantities = {}
    of_throughput = 0.0
    for name in QUANTITIES:
        measured, predicted = measured_quantity(cell, name), predicted_quantity(found, name, cell.mean.view)
        if measured is None:
            continue
        if predicted is None:
            quantities[name] = PredictedQuantity(measured, None, None)
            continue
        errors = [one[name] for one in inner if name in one]
        half = _half_width(name, found, errors, part, predicted == found.response_s)
        if name == "throughput":
            of_throughput = half
        elif found.inside_s is not None and predicted != found.response_s:
            # Clients are inside or outside: if the time outside is known, an error of X appears in the time inside,
            # larger by the ratio of the whole cycle to the time inside.
            half = max(half, of_throughput * min(found.response_s / found.inside_s, CYCLE_MAX))
        quantities[name] = PredictedQuantity(measured, predicted, around(predicted, half))
    return quantities
