"""Held-out configurations of runs, predicted by every model and compared with what was measured there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from waylab.errors import LabError
from waylab.fit.interface import ModelPrediction
from waylab.fit.observations import TrialObservation, pooled, usable
from waylab.predict.runs.chosen import CHOSEN, FittedChosen, fit_runs

CALIBRATION, HELD_OUT = "calibration", "held-out"
INTERPOLATION, EXTRAPOLATION = "interpolation", "extrapolation"


@dataclass(frozen=True)
class JudgedConfiguration:
    """One held-out configuration and one model."""

    measured: TrialObservation
    model: str
    predicted: ModelPrediction | None
    refused: str = ""

    @property
    def part(self) -> str:
        """Whether the configuration lies between calibrated ones or beyond them."""
        return EXTRAPOLATION if self.predicted and self.predicted.extrapolates else INTERPOLATION

    def as_row(self) -> dict[str, object]:
        """The object of `--json`, with the names of the objects of tables."""
        found, seen = self.predicted, self.measured
        p95 = found.percentiles_s.get("all", {}).get("95") if found else None
        return {
            "dataset": seen.run,
            "experiment": seen.configuration,
            "settings": seen.settings.as_dict(),
            "model": self.model,
            "split": "specification",
            "held_out": self.part,
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
            "response_p95_predicted_s": p95,
            "response_p95_interval_s": None,
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
    p95: float | None
    throughput_coverage: float
    response_coverage: float


def split_by_role(
    observations: Sequence[TrialObservation],
) -> tuple[list[TrialObservation], list[TrialObservation]]:
    """Trials for calibration and held-out ones, as the specification names them.

    Raises:
        LabError: when it names none.
    """
    known = [one for one in observations if one.role == CALIBRATION]
    held = [one for one in observations if one.role == HELD_OUT]
    if not known or not held:
        raise LabError(
            f"the specification {'holds out no configuration' if known or not held else 'has none for calibration'}: "
            "name them in [predict] before there is data, for example held_out = [{ clients = 64 }]"
        )
    return known, held


def judge_runs(
    observations: Sequence[TrialObservation], report: Callable[[int, int], None] = lambda done, total: None
) -> tuple[FittedChosen, list[JudgedConfiguration]]:
    """Fit to the calibration trials and predict the held-out configurations.

    Raises:
        LabError: when nothing is held out, or no model can be fitted.
    """
    known, held = split_by_role(usable(observations))
    fitted = fit_runs(known, [one.settings for one in held], report)
    judged = []
    for one in pooled(held):
        found, reasons = fitted.predict_all(one.settings, one.trials)
        judged += [JudgedConfiguration(one, name, prediction) for name, prediction in found.items()]
        judged += [
            JudgedConfiguration(one, name, None, reason)
            for name, reason in reasons.items()
            if name not in found
        ]
    return fitted, judged


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
    rates_held, times_held = [], []
    for one in group:
        found, seen = one.predicted, one.measured
        assert found is not None
        rates.append(abs(found.throughput_per_s.value / seen.throughput_per_s - 1))
        times.append(abs(found.response_s.value / seen.response_s - 1))
        rates_held.append(bool(found.throughput_per_s.contains(seen.throughput_per_s)))
        times_held.append(bool(found.response_s.contains(seen.response_s)))
        ours, theirs = (parts.get("all", {}).get("95") for parts in (found.percentiles_s, seen.percentiles_s))
        if ours and theirs:
            p95.append(abs(ours / theirs - 1))
    return RunScore(
        part,
        model,
        len(group),
        (median(rates), float(np.quantile(rates, 0.9))),
        (median(times), float(np.quantile(times, 0.9))),
        median(p95) if p95 else None,
        sum(rates_held) / len(rates_held),
        sum(times_held) / len(times_held),
    )
