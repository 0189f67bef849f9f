"""Held-out configurations of runs, predicted by every model and compared with what was measured there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from waylab.fit.interface import ModelPrediction, RefusedFitError
from waylab.fit.observations import TrialObservation, pooled, usable
from waylab.fit.observations.blocks import keys_of
from waylab.predict.runs.chosen import CHOSEN, FittedChosen, fit_runs
from waylab.predict.runs.splits import SPECIFICATION, RunHoldOut, run_hold_outs

INTERPOLATION, EXTRAPOLATION = "interpolation", "extrapolation"


@dataclass(frozen=True)
class JudgedConfiguration:
    """One held-out configuration and one model."""

    measured: TrialObservation
    model: str
    predicted: ModelPrediction | None
    refused: str = ""
    split: str = SPECIFICATION
    # What was held out, for example "servers = 5"; empty if the specification names it.
    held_out: str = ""

    @property
    def part(self) -> str:
        """Whether the configuration lies between calibrated ones or beyond them."""
        return EXTRAPOLATION if self.predicted and self.predicted.extrapolates else INTERPOLATION

    def as_row(self) -> dict[str, object]:
        """The object of `--json`, with the names of the objects of tables."""
        found, seen = self.predicted, self.measured
        p95 = found.p95_s if found else None
        return {
            "dataset": seen.run,
            "experiment": seen.configuration,
            "settings": seen.settings.as_dict(),
            "model": self.model,
            "split": self.split,
            "held_out": self.held_out or self.part,
            "extrapolates": list(found.extrapolates) if found else [],
            "trials": seen.trials,
            "throughput_measured_per_s": seen.throughput_per_s,
            "throughput_predicted_per_s": found.throughput_per_s.value if found else None,
            "throughput_interval_per_s": [found.throughput_per_s.low, found.throughput_per_s.high]
            if found
            else None,
            "response_mean_measured_s": seen.response_s,
            "response_mean_predicted_s": found.response_s.value if found else None,
            "response_mean_interval_s": [found.response_s.low, found.response_s.high] if found else None,
            "response_p95_measured_s": seen.percentiles_s.get("all", {}).get("95"),
            "response_p95_predicted_s": p95.value if p95 else None,
            "response_p95_interval_s": [p95.low, p95.high] if p95 else None,
            "bottleneck": found.bottleneck or None if found else None,
            "refused": self.refused or None,
        }


@dataclass(frozen=True)
class RunScore:
    """Errors and coverage of a model over held-out configurations of one part."""

    part: str
    model: str
    configurations: int
    throughput: tuple[float, float]
    response: tuple[float, float]
    p95: tuple[float, float] | None
    throughput_coverage: float
    response_coverage: float
    p95_coverage: float | None


def judge_runs(
    observations: Sequence[TrialObservation],
    report: Callable[[int, int], None] = lambda done, total: None,
    split: str | None = None,
) -> tuple[list[FittedChosen], list[JudgedConfiguration]]:
    """Fit to the calibration trials and predict the held-out ones, for each hold-out of a split.

    Raises:
        LabError: when nothing is held out, or no model can be fitted for the hold-out of the specification.
    """
    fits: list[FittedChosen] = []
    judged: list[JudgedConfiguration] = []
    hold_outs = run_hold_outs(usable(observations), split)
    for place, one in enumerate(hold_outs):

        def of_all(done: int, total: int, place: int = place) -> None:
            report(place * total + done, len(hold_outs) * total)

        try:
            fitted = fit_runs(one.known, [trial.settings for trial in one.held], of_all)
        except RefusedFitError as error:
            if split is None:
                raise
            judged += [_judged(trial, CHOSEN, None, one, split, str(error)) for trial in pooled(one.held)]
            continue
        fits.append(fitted)
        judged += _predicted(fitted, one, split or SPECIFICATION)
    return fits, judged


def _predicted(fitted: FittedChosen, hold_out: RunHoldOut, split: str) -> list[JudgedConfiguration]:
    judged = []
    calibrated = set(keys_of(hold_out.known))
    # Trials of calibrated blocks share the effects of these blocks with the calibration.
    later = {
        one.settings
        for one, key in zip(hold_out.held, keys_of(hold_out.held), strict=True)
        if key not in calibrated
    }
    for one in pooled(hold_out.held):
        found, reasons = fitted.predict_all(one.settings, one.trials, same_blocks=one.settings not in later)
        judged += [_judged(one, name, prediction, hold_out, split) for name, prediction in found.items()]
        judged += [
            _judged(one, name, None, hold_out, split, reason)
            for name, reason in reasons.items()
            if name not in found
        ]
    return judged


def _judged(
    one: TrialObservation,
    model: str,
    found: ModelPrediction | None,
    hold_out: RunHoldOut,
    split: str,
    refused: str = "",
) -> JudgedConfiguration:
    name = f"{hold_out.factor} {hold_out.level}" if hold_out.factor else ""
    return JudgedConfiguration(one, model, found, refused, split, name)


def run_scores(judged: Sequence[JudgedConfiguration]) -> list[RunScore]:
    """One score for each part and model, the chosen one first."""
    groups: dict[tuple[str, str], list[JudgedConfiguration]] = {}
    for one in judged:
        if one.predicted is not None:
            groups.setdefault((one.part, one.model), []).append(one)
    return [
        _score(*key, groups[key])
        for key in sorted(groups, key=lambda key: (key[0], key[1] != CHOSEN, key[1]))
    ]


def _score(part: str, model: str, group: Sequence[JudgedConfiguration]) -> RunScore:
    rates, times, p95 = [], [], []
    rates_held, times_held, p95_held = [], [], []
    for one in group:
        found, seen = one.predicted, one.measured
        assert found is not None
        rates.append(abs(found.throughput_per_s.value / seen.throughput_per_s - 1))
        times.append(abs(found.response_s.value / seen.response_s - 1))
        rates_held.append(bool(found.throughput_per_s.contains(seen.throughput_per_s)))
        times_held.append(bool(found.response_s.contains(seen.response_s)))
        measured_s = seen.percentiles_s.get("all", {}).get("95")
        if found.p95_s and measured_s:
            p95.append(abs(found.p95_s.value / measured_s - 1))
            p95_held.append(bool(found.p95_s.contains(measured_s)))
    return RunScore(
        part,
        model,
        len(group),
        (median(rates), float(np.quantile(rates, 0.9))),
        (median(times), float(np.quantile(times, 0.9))),
        (median(p95), float(np.quantile(p95, 0.9))) if p95 else None,
        sum(rates_held) / len(rates_held),
        sum(times_held) / len(times_held),
        sum(p95_held) / len(p95_held) if p95_held else None,
    )
