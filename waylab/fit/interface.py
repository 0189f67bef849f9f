"""What every model of runs offers: `fit(observations)`, then `predict(settings)` or the reason for refusing."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from waylab.fit.observations import ModelSettings, TrialObservation
from waylab.fit.observations.settings import NUMERIC
from waylab.fit.table.interface import RefusedFitError

__all__ = [
    "Domain",
    "Estimate",
    "FittedModel",
    "ModelPrediction",
    "RefusedFitError",
    "RunModel",
    "domain_of_runs",
    "parameter_interval",
    "unidentifiable",
]


@dataclass(frozen=True)
class Estimate:
    """A predicted value with its 90 % prediction interval; without one, `low` and `high` are `None`."""

    value: float
    low: float | None = None
    high: float | None = None

    def contains(self, measured: float) -> bool | None:
        """Whether the interval contains a measured value."""
        return None if self.low is None or self.high is None else self.low <= measured <= self.high


@dataclass(frozen=True)
class ModelPrediction:
    """What a model predicts for settings: rate per second, times in seconds, shares, numbers of requests."""

    settings: ModelSettings
    model: str
    throughput_per_s: Estimate
    response_s: Estimate
    # Standard deviation of ln X and ln R from what the calibration leaves open, before calibration of intervals.
    uncertainty: tuple[float, float] | None = None
    # The same from what all trials of a block have in common: another block has another effect.
    block_uncertainty: tuple[float, float] | None = None
    responses_s: Mapping[str, float] = field(default_factory=dict)
    percentiles_s: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    # The same by each model of percentiles that a model has; `percentiles_s` are those of one of them, or a blend.
    percentile_models_s: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    # The 95th percentile of all response times, with its interval.
    p95_s: Estimate | None = None
    utilisation: Mapping[str, float] = field(default_factory=dict)
    present: Mapping[str, float] = field(default_factory=dict)
    bottleneck: str = ""
    extrapolates: tuple[str, ...] = ()


@dataclass(frozen=True)
class Domain:
    """The calibrated values of each numeric setting, and the systems that were measured."""

    levels: Mapping[str, tuple[float, ...]]
    others: frozenset[tuple[tuple[str, str], ...]]

    def beyond(self, settings: ModelSettings) -> tuple[str, ...]:
        """How settings lie beyond the calibrated ones; empty for an interpolation."""
        found = []
        for name, levels in self.levels.items():
            value = float(getattr(settings, name))
            if value > levels[-1]:
                found.append(f"{name} = {value:g} is above the largest calibrated, {levels[-1]:g}")
            elif value < levels[0]:
                found.append(f"{name} = {value:g} is below the smallest calibrated, {levels[0]:g}")
        if settings.others not in self.others:
            found.append("a setting that no model knows as a number was not calibrated")
        return tuple(found)

    def constant(self, settings: ModelSettings) -> list[str]:
        """Settings that differ from the only calibrated level, so that nothing says what they do."""
        return [
            name
            for name, levels in self.levels.items()
            if len(levels) == 1 and float(getattr(settings, name)) != levels[0]
        ]


def domain_of_runs(observations: Sequence[TrialObservation]) -> Domain:
    """The domain that observations span."""
    known = [one.settings for one in observations]
    return Domain(
        {name: tuple(sorted({float(getattr(one, name)) for one in known})) for name in NUMERIC},
        frozenset(one.others for one in known),
    )


# What a change needs to have been measured at two levels, because no physics says what it costs.
_MEASURED = ("value_bytes", "keys", "replicas", "writes_share")


def unidentifiable(domain: Domain, settings: ModelSettings) -> str:
    """Why nothing that was measured says what these settings do, with the measurement that would help; or nothing."""
    constant = [name for name in domain.constant(settings) if name in _MEASURED]
    if settings.writes_share == 0 and "replicas" in constant:
        constant.remove("replicas")
    if not constant:
        return ""
    return (
        f"{', '.join(constant)} had one level in all trials, so that its effect cannot be identified; "
        f"measure a second level of {constant[0]}"
    )


# Half the width of a 90 % interval of a normal variable, in standard deviations; and the widest that is shown.
_HALF, _SPREAD_MAX = 1.645, 20.0


def parameter_interval(value: float, log_spread: float) -> tuple[float, float]:
    """Return the ends of the 90 % interval of a parameter, from the standard deviation of its logarithm."""
    factor = math.exp(_HALF * min(log_spread, _SPREAD_MAX))
    return value / factor, value * factor


class FittedModel(Protocol):
    """A model with its parameters."""

    @property
    def name(self) -> str:
        """The name of the model."""

    @property
    def parameters(self) -> Mapping[str, float]:
        """Parameters in plain units."""

    @property
    def log_spreads(self) -> Mapping[str, float]:
        """Standard deviations of the logarithms of the parameters; empty where the model has none."""

    @property
    def unidentified(self) -> Sequence[str]:
        """What the observations could not identify."""

    @property
    def domain(self) -> Domain:
        """What was calibrated."""

    def predict(self, settings: ModelSettings) -> ModelPrediction:
        """Predict one configuration.

        Raises:
            RefusedFitError: when the settings cannot be predicted, with the measurement that would help.
        """


class RunModel(Protocol):
    """A way to learn from trials."""

    @property
    def name(self) -> str:
        """The name of the model."""

    def fit(self, observations: Sequence[TrialObservation]) -> FittedModel:
        """Estimate the parameters.

        Raises:
            RefusedFitError: when the observations cannot identify the model.
        """
