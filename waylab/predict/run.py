"""All models on all configurations of a run, their errors, and how far each is off altogether."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from waylab.analysis import read_analysis
from waylab.fit import NotApplicableError
from waylab.models import UnstableError
from waylab.predict.forecasts import MODELS, ForecastModel
from waylab.predict.held_out import held_out_predictions
from waylab.predict.rules import model_rules
from waylab.runfolder import paths
from waylab.runfolder.analysis import Configuration
from waylab.runfolder.files import read, read_run, write
from waylab.runfolder.prediction import ErrorSummary, MetricValues, ModelSummary, Prediction, Predictions
from waylab.runfolder.results import check_seal, seal
from waylab.version import __version__

CALIBRATION, HELD_OUT = "calibration", "held-out"
DESCRIPTION = "description: the model was fitted to this configuration"


def predict(directory: Path) -> Predictions:
    """Compare every model with every configuration and write the result into the run folder."""
    configurations = read_analysis(directory).configurations
    roles = {trial.configuration: trial.role for trial in read_run(directory).plan}
    calibration = [one for one in configurations if roles[one.name] == CALIBRATION]
    known = calibration if HELD_OUT in roles.values() else None
    entries = [
        _entry(model, configuration, roles[configuration.name], known, configurations)
        for model in MODELS
        for configuration in configurations
    ]
    by_name = {one.name: one for one in configurations if one.used}
    further, sentences = held_out_predictions(directory, by_name) if known else ([], [])
    # A model that applies to no configuration for a reason of design would only be noise.
    fitted = {entry.model for entry in entries if entry.parameters is not None}
    entries = [entry for entry in entries if entry.model in fitted] + further
    names = [
        *(model.name for model in MODELS if model.name in fitted),
        *dict.fromkeys(one.model for one in further),
    ]
    summary = [_summary(name, entries) for name in names]
    path = directory / paths.PREDICTIONS
    write(
        path,
        Predictions(
            format=paths.PREDICTIONS_FORMAT,
            waylab=__version__,
            entries=entries,
            summary=summary,
            facts=[*(_fact(part) for part in summary), *sentences],
            rules=model_rules(read_run(directory).spec.refuted_by, entries),
        ),
    )
    seal(directory)
    return read(path, Predictions)


def read_predictions(directory: Path) -> Predictions:
    """Read what was predicted for a run."""
    content = read(directory / paths.PREDICTIONS, Predictions)
    check_seal(directory, paths.PREDICTIONS)
    return content


def _entry(
    model: ForecastModel,
    configuration: Configuration,
    role: str,
    known: Sequence[Configuration] | None,
    configurations: Sequence[Configuration],
) -> Prediction:
    """Apply a model to a configuration, fitted to those for calibration where some were held out."""
    everything = configuration.operations.get("all")
    entry = Prediction(
        model=model.name,
        configuration=configuration.name,
        x=configuration.x,
        series=configuration.series,
        role=role,
        applies=False,
        reason=None,
        source=None,
        parameters=None,
        measured=MetricValues(
            throughput_per_s=configuration.throughput_per_s.mean,
            response_mean_ns=everything.response_mean_ns.mean if everything else None,
            response_p95_ns=everything.percentiles_ns.get("95") if everything else None,
        ),
        predicted=None,
    )
    try:
        fitted = model.forecast(configuration, known, configurations)
        entry = replace(entry, parameters=fitted.parameters, source=fitted.source)
        predicted = fitted.apply()
    except (NotApplicableError, UnstableError, ValueError) as error:
        return replace(entry, reason=str(error))
    entry = replace(entry, applies=True, predicted=predicted)
    if model.learns and role != HELD_OUT:
        # The model was fitted to this configuration: the difference is no error of a prediction.
        return replace(entry, reason=DESCRIPTION)
    return replace(entry, error=_error(predicted, entry.measured))


def _error(predicted: MetricValues, measured: MetricValues) -> MetricValues:
    """Return predicted / measured - 1 of each metric that both have."""

    def relative(ours: float | None, seen: float | None) -> float | None:
        return ours / seen - 1 if ours and seen else None

    return MetricValues(
        throughput_per_s=relative(predicted.throughput_per_s, measured.throughput_per_s),
        response_mean_ns=relative(predicted.response_mean_ns, measured.response_mean_ns),
        response_p95_ns=relative(predicted.response_p95_ns, measured.response_p95_ns),
    )


def _summary(name: str, entries: list[Prediction]) -> ModelSummary:
    """Median and largest absolute relative error of a model over the configurations to which it applies.

    Over the held-out ones only, if there are any: a configuration that a model has learned from does not test it.
    """
    mine = [entry for entry in entries if entry.model == name]
    held_out = [entry for entry in mine if entry.role == HELD_OUT]
    mine = held_out or mine
    return ModelSummary(
        model=name,
        role=HELD_OUT if held_out else "",
        configurations=len(mine),
        applies=sum(entry.applies for entry in mine),
        source=next((entry.source for entry in mine if entry.source), None),
        throughput_per_s=_errors([entry.error.throughput_per_s for entry in mine]),
        response_mean_ns=_errors([entry.error.response_mean_ns for entry in mine]),
    )


def _errors(values: list[float | None]) -> ErrorSummary:
    errors = [abs(value) for value in values if value is not None]
    return ErrorSummary(
        median_error=statistics.median(errors) if errors else None, largest_error=max(errors, default=None)
    )


def _fact(summary: ModelSummary) -> str:
    """State the error of a model in one sentence."""
    kind = "configurations that were held out" if summary.role else "configurations"
    head = f"Model {summary.model}: applies to {summary.applies} of {summary.configurations} {kind}"
    if (
        summary.applies
        and summary.throughput_per_s.median_error is summary.response_mean_ns.median_error is None
    ):
        head += "; for the configurations that it was fitted to, this is a description and not a prediction"
    parts = [
        f"{name} off by {100 * found.median_error:.1f} % (median), {100 * found.largest_error:.1f} % (largest)"
        for name, found in (
            ("throughput", summary.throughput_per_s),
            ("mean response time", summary.response_mean_ns),
        )
        if found.median_error is not None and found.largest_error is not None
    ]
    return "; ".join([head, *parts]) + "."
