"""Tables of the models beside the measurement."""

from collections.abc import Callable
from html import escape

from waylab.report.page.content import Content
from waylab.report.page.numbers import (
    NONE,
    percent_text,
    rate_text,
    ratio_text,
    shown,
    signed_percent_text,
    time_text,
)
from waylab.report.tables.table import filled, table
from waylab.runfolder.prediction import Forecast


def models_table(content: Content) -> str:
    """Measured and predicted, configuration by configuration."""
    rows = []
    for entry in content.predictions.entries:
        measured, predicted, error = entry.measured, entry.predicted or Forecast(), entry.error
        parameters = ", ".join(_parameter(name, value) for name, value in (entry.parameters or {}).items())
        rows.append(
            [
                escape(entry.model),
                escape(content.label(entry.configuration)),
                parameters or NONE,
                shown(predicted.utilisation, ratio_text),
                _both(measured.throughput_per_s, predicted.throughput_per_s, rate_text),
                shown(error.throughput_per_s, signed_percent_text),
                _both(measured.response_mean_ns, predicted.response_mean_ns, time_text),
                shown(error.response_mean_ns, signed_percent_text),
                escape(entry.reason or ""),
            ]
        )
    headings = [
        "model",
        "configuration",
        "parameters",
        "utilisation",
        "throughput, measured → model",
        "error",
        "mean response, measured → model",
        "error",
        "why no error",
    ]
    return table(
        *filled(headings, rows),
        "Error is predicted / measured - 1. A description of the data that a model was fitted to has none.",
    )


def models_summary_table(content: Content) -> str:
    """How far each model is off altogether."""
    rows = [
        [
            escape(s.model),
            f"{shown(s.applies)} of {shown(s.configurations)}",
            *(
                shown(error, percent_text)
                for found in (s.throughput_per_s, s.response_mean_ns)
                for error in (found.median_error, found.largest_error)
            ),
            escape(s.source or ""),
        ]
        for s in content.predictions.summary
    ]
    headings = [
        "model",
        "applies to",
        "throughput, median error",
        "largest",
        "response, median error",
        "largest",
        "where its parameters come from",
    ]
    return table(*filled(headings, rows), "Absolute relative errors over the configurations.")


def held_out_table(content: Content) -> str:
    """Configurations that no model had seen: measured, predicted, and whether the interval contains the measurement."""
    rows = []
    for entry in content.predictions.entries:
        ends = ((entry.throughput_interval_per_s, rate_text), (entry.response_mean_interval_ns, time_text))
        if all(interval is None for interval, _ in ends):
            continue
        measured, predicted = entry.measured, entry.predicted or Forecast()
        row = [escape(entry.model), escape(entry.configuration)]
        for (interval, text), seen, found in (
            (ends[0], measured.throughput_per_s, predicted.throughput_per_s),
            (ends[1], measured.response_mean_ns, predicted.response_mean_ns),
        ):
            row += [shown(seen, text), shown(found, text)]
            if interval is None or seen is None:
                row += [NONE, NONE]
                continue
            row += [
                f"{text(interval[0])} to {text(interval[1])}",
                "yes" if interval[0] <= seen <= interval[1] else "no",
            ]
        rows.append(row)
    parts = ["measured", "predicted", "90 % interval", "inside"]
    headings = [
        "model",
        "configuration",
        *(f"throughput, {p}" for p in parts),
        *(f"mean response, {p}" for p in parts),
    ]
    return table(headings, rows, "No model learned from these configurations.") if rows else ""


def _both(measured: float | None, predicted: float | None, text: Callable[[float], str]) -> str:
    return (
        shown(measured, text) if predicted is None else f"{shown(measured, text)} → {shown(predicted, text)}"
    )


def _parameter(name: str, value: float | list[float]) -> str:
    if isinstance(value, list):
        return f"{_parameter(name, value[0])} to {_parameter(name, value[-1]).rpartition(' ')[2]}"
    stem, _, unit = name.rpartition("_")
    if unit == "ns":
        return f"{escape(stem)} {shown(value, time_text)}"
    if unit == "s" and stem.endswith("_per"):
        return f"{escape(stem[:-4])} {shown(value, rate_text)}/s"
    if unit == "s":
        return f"{escape(stem)} {shown(value, lambda time_s: time_text(1e9 * time_s))}"
    return f"{escape(name)} {shown(value)}"
