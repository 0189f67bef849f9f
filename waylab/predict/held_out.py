"""Held-out configurations in `predictions.json`: what the models of runs predicted, and whether it came true."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from scipy.stats import binom

from waylab.errors import LabError
from waylab.fit.interface import Estimate
from waylab.fit.layered.model import NAME as LAYERED
from waylab.fit.observations import observe
from waylab.predict.runs.chosen import CHOSEN, LEVEL
from waylab.predict.runs.judge import JudgedConfiguration, judge_runs
from waylab.runfolder.analysis import Configuration
from waylab.runfolder.prediction import Forecast, MetricValues, Prediction

RUN_MODELS = (CHOSEN, LAYERED)
HELD_OUT = "held-out"
# Below this probability, so few measurements inside cannot be chance.
_TAIL = 0.05


def held_out_predictions(
    directory: Path, configurations: Mapping[str, Configuration]
) -> tuple[list[Prediction], list[str]]:
    """Predictions of the held-out configurations, and the result in sentences."""
    try:
        fits, judged = judge_runs(observe([directory]))
    except LabError as error:
        return [], [f"The held-out configurations were not predicted: {error}."]
    source = ", ".join(f"{name} {share:.2f}" for name, share in fits[0].weights(interpolates=False).items())
    entries = [
        _entry(
            one,
            configurations[one.measured.configuration],
            f"weights: {source}" if one.model == CHOSEN else None,
        )
        for name in RUN_MODELS
        for one in judged
        if one.model == name
    ]
    return entries, came_true([one for one in judged if one.model == CHOSEN])


def _entry(one: JudgedConfiguration, configuration: Configuration, source: str | None) -> Prediction:
    seen, found = one.measured, one.predicted
    measured = MetricValues(
        throughput_per_s=seen.throughput_per_s,
        response_mean_ns=1e9 * seen.response_s,
        response_p95_ns=_nanoseconds(seen.percentiles_s.get("all", {}).get("95")),
    )
    predicted = None
    error = MetricValues()
    if found is not None:
        predicted = Forecast(
            throughput_per_s=found.throughput_per_s.value,
            response_mean_ns=1e9 * found.response_s.value,
            response_p95_ns=_nanoseconds(found.percentiles_s.get("all", {}).get("95")),
            utilisation=max(found.utilisation.values(), default=None),
        )
        error = MetricValues(
            throughput_per_s=found.throughput_per_s.value / seen.throughput_per_s - 1,
            response_mean_ns=found.response_s.value / seen.response_s - 1,
        )
    return Prediction(
        model=one.model,
        configuration=configuration.name,
        x=configuration.x,
        series=configuration.series,
        role=HELD_OUT,
        applies=found is not None,
        reason=one.refused or None,
        source=source,
        parameters={},
        measured=measured,
        predicted=predicted,
        error=error,
        throughput_interval_per_s=_ends(found.throughput_per_s, 1.0) if found else None,
        response_mean_interval_ns=_ends(found.response_s, 1e9) if found else None,
    )


def _ends(one: Estimate, factor: float) -> list[float] | None:
    return None if one.low is None or one.high is None else [factor * one.low, factor * one.high]


def _nanoseconds(value_s: float | None) -> float | None:
    return None if value_s is None else 1e9 * value_s


def came_true(judged: Sequence[JudgedConfiguration]) -> list[str]:
    """Whether as many measurements lie within the intervals as promised, in sentences."""
    known = [(one.measured, one.predicted) for one in judged if one.predicted is not None]
    if not known:
        return []
    sentences = []
    for name, errors, inside, ends in (
        (
            "throughputs",
            [abs(found.throughput_per_s.value / seen.throughput_per_s - 1) for seen, found in known],
            sum(bool(found.throughput_per_s.contains(seen.throughput_per_s)) for seen, found in known),
            [found.throughput_per_s for _, found in known],
        ),
        (
            "mean response times",
            [abs(found.response_s.value / seen.response_s - 1) for seen, found in known],
            sum(bool(found.response_s.contains(seen.response_s)) for seen, found in known),
            [found.response_s for _, found in known],
        ),
    ):
        kept = float(binom.cdf(inside, len(known), LEVEL)) >= _TAIL
        # An interval that is wide enough is always right, so that its width belongs to the result.
        widths = [math.sqrt(one.high / one.low) for one in ends if one.low and one.high]
        sentences.append(
            f"Of the configurations that no model had seen, {inside} of {len(known)} measured {name} lie within the "
            f"90 % prediction intervals: the prediction {'came true' if kept else 'did not come true'}. They are off "
            f"by {100 * median(errors):.1f} % (median), {100 * max(errors):.1f} % (largest); "
            f"an interval reaches {100 * (median(widths) - 1):.0f} % above the prediction (median)."
        )
    return sentences
