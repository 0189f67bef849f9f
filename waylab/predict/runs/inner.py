"""Configurations held out inside the calibration set: every model fitted to the others, and its errors there."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from waylab.fit.interface import (
    FittedModel,
    ModelPrediction,
    RefusedFitError,
    RunModel,
    domain_of_runs,
    unidentifiable,
)
from waylab.fit.layered import FittedLayered, LayeredModel
from waylab.fit.observations import ModelSettings, TrialObservation, pooled
from waylab.fit.observations.settings import NUMERIC
from waylab.models import ModelError

_SINGLE_MAX = 8
QUANTITIES = ("throughput", "response")


@dataclass(frozen=True)
class InnerPair:
    """A configuration held out inside the calibration set, and what each model predicted for it."""

    measured: TrialObservation
    predicted: Mapping[str, ModelPrediction]
    extrapolates: bool

    def errors(self, model: str) -> dict[str, float]:
        """Logarithm of predicted over measured, by quantity."""
        found = self.predicted[model]
        return {
            "throughput": math.log(found.throughput_per_s.value / self.measured.throughput_per_s),
            "response": math.log(found.response_s.value / self.measured.response_s),
        }


@dataclass
class Fits:
    """Every model fitted to trials, or the reason why it cannot be."""

    fitted: dict[str, FittedModel] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def predict(self, settings: ModelSettings) -> tuple[dict[str, ModelPrediction], dict[str, str]]:
        """Predictions by model, and reasons of those that refuse."""
        found, reasons = {}, dict(self.reasons)
        for name, one in self.fitted.items():
            try:
                found[name] = one.predict(settings)
            except (RefusedFitError, ModelError) as error:
                reasons[name] = str(error)
        return found, reasons


def fit_all(
    models: Sequence[RunModel], observations: Sequence[TrialObservation], start: FittedLayered | None = None
) -> Fits:
    """Fit every model."""
    fits = Fits()
    for model in models:
        try:
            if isinstance(model, LayeredModel) and start is not None:
                fits.fitted[model.name] = model.refit(observations, start)
            else:
                fits.fitted[model.name] = model.fit(observations)
        except (RefusedFitError, ModelError) as error:
            fits.reasons[model.name] = str(error)
    return fits


def inner_pairs(
    models: Sequence[RunModel],
    observations: Sequence[TrialObservation],
    start: FittedLayered | None,
    report: Callable[[int, int], None],
) -> list[InnerPair]:
    """Hold out every configuration in turn, then the extreme levels of every factor."""
    known = sorted({one.settings for one in observations})
    groups: list[set[ModelSettings]] = [{one} for one in _spaced(known, _SINGLE_MAX)]
    for name in NUMERIC:
        levels = sorted({getattr(one, name) for one in known})
        ends = (levels[-1], levels[0])[: max(0, len(levels) - 1)]
        groups += [{one for one in known if getattr(one, name) == level} for level in ends]
    found = []
    for done, held in enumerate(groups):
        report(done, len(groups))
        rest = [one for one in observations if one.settings not in held]
        if len({one.settings for one in rest}) < 2:
            continue
        fits, domain = fit_all(models, rest, start), domain_of_runs(rest)
        for one in pooled([one for one in observations if one.settings in held]):
            if unidentifiable(domain, one.settings):
                # The choice would refuse it, so that errors there say nothing about its predictions.
                continue
            predicted, _ = fits.predict(one.settings)
            found.append(InnerPair(one, predicted, bool(domain.beyond(one.settings))))
    return found


def _spaced(found: Sequence[ModelSettings], count: int) -> list[ModelSettings]:
    """At most so many, evenly over all."""
    if len(found) <= count:
        return list(found)
    return [found[place * len(found) // count] for place in range(count)]
