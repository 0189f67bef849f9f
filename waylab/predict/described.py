"""How far every model is from the configurations of a run.

`predictions.json` states errors only for predictions. A published model is often a description of the data that it was
fitted to. Its difference from these data is not an error of predictions, and pages must not call it one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from waylab.runfolder.prediction import MetricValues, Prediction, Predictions


@dataclass(frozen=True)
class ModelDifferences:
    """The absolute relative differences of one model; None where it does not compute the metric."""

    model: str
    configurations: int
    # Whether the model was fitted to the configurations that it is compared with.
    description: bool
    throughput: float | None
    response: float | None
    largest_response: float | None


def model_differences(predictions: Predictions) -> list[ModelDifferences]:
    """Return those of each model, in the order of `predictions.json`; over held-out configurations only, if any."""
    found = []
    for model in dict.fromkeys(entry.model for entry in predictions.entries):
        entries = [one for one in predictions.entries if one.model == model and one.predicted]
        held_out = [one for one in entries if one.error.response_mean_ns is not None]
        entries = held_out or entries
        responses = _differences(entries, lambda values: values.response_mean_ns)
        throughputs = _differences(entries, lambda values: values.throughput_per_s)
        if responses or throughputs:
            found.append(
                ModelDifferences(
                    model,
                    len(entries),
                    not held_out,
                    median(throughputs) if throughputs else None,
                    median(responses) if responses else None,
                    max(responses) if responses else None,
                )
            )
    return found


def descriptions(predictions: Predictions) -> set[str]:
    """Return the models that were fitted to every configuration that they are compared with."""
    return {one.model for one in model_differences(predictions) if one.description}


def _differences(entries: list[Prediction], value: Callable[[MetricValues], float | None]) -> list[float]:
    found = []
    for entry in entries:
        measured = value(entry.measured)
        predicted = value(entry.predicted) if entry.predicted else None
        if measured and predicted is not None:
            found.append(abs(predicted / measured - 1))
    return found
