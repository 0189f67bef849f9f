"""One JSON object for each held-out cell and model."""

from waylab.predict.table.judge import JudgedCell, PredictedQuantity

# Names of the three values of each quantity: measured, predicted, interval.
_NAMES = {
    "throughput": ("throughput_measured_per_s", "throughput_predicted_per_s", "throughput_interval_per_s"),
    "response_mean": ("response_mean_measured_s", "response_mean_predicted_s", "response_mean_interval_s"),
    "response_middleware_mean": (
        "response_middleware_mean_measured_s",
        "response_middleware_mean_predicted_s",
        "response_middleware_mean_interval_s",
    ),
    "response_p95": ("response_p95_measured_s", "response_p95_predicted_s", "response_p95_interval_s"),
}
_ALWAYS = ("throughput", "response_mean")
_NOTHING = PredictedQuantity(None, None, None)


def row_of(one: JudgedCell) -> dict[str, object]:
    """The object of a cell and a model; a value that was not measured or is not predicted is null."""
    row: dict[str, object] = {
        "dataset": one.dataset,
        "experiment": one.settings.experiment,
        "settings": one.settings.as_dict(),
        "model": one.model,
        "split": one.split,
        "held_out": one.part,
        "anchors": one.anchors if one.split == "servers" else None,
        "extrapolates": list(one.extrapolates),
        "view": one.view,
    }
    for name, keys in _NAMES.items():
        found = one.quantities.get(name)
        if found is None and name not in _ALWAYS:
            continue
        measured, predicted, interval = keys
        found = found or _NOTHING
        row[measured] = found.measured
        row[predicted] = found.predicted
        row[interval] = list(found.interval) if found.interval else None
    row["bottleneck"] = one.bottleneck or None
    row["weights"] = dict(one.weights) if one.weights else None
    row["flag"] = one.flag or None
    row["refused"] = one.refused or None
    return row
