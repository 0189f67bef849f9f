"""`waylab fit` and `waylab predict`: models fitted to runs, and predictions of other settings."""

import argparse
import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from waylab.cli.patience import Patience
from waylab.errors import LabError
from waylab.fit.interface import Estimate, ModelPrediction, parameter_interval
from waylab.fit.observations import (
    TrialObservation,
    base_settings,
    changed_settings,
    observe,
    usable,
)
from waylab.fit.observations.settings import ModelSettings
from waylab.predict.runs import FittedChosen, fit_runs
from waylab.predict.runs.what_if import what_if
from waylab.report.what_if import write_what_if

_WIDTH_MIN = 150


def fit(arguments: argparse.Namespace) -> int:
    """Print the parameters of the models."""
    fitted = fitted_runs(arguments)
    if arguments.json:
        print(json.dumps(_fit_as_dict(fitted), indent=1))
        return 0
    console = wide_console()
    domain = ", ".join(
        f"{name} {' '.join(f'{level:g}' for level in levels)}"
        for name, levels in fitted.domain.levels.items()
        if len(levels) > 1
    )
    console.print(f"{len(fitted.observations)} configurations; measured: {domain}", soft_wrap=True)
    weights = fitted.weights(interpolates=True)
    for name, model in fitted.fits.fitted.items():
        if not model.parameters:
            continue
        share = f", weight {weights[name]:.2f}" if name in weights else ""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=f"{name}{share}", title_justify="left")
        table.add_column("parameter")
        table.add_column("value", justify="right")
        table.add_column("90 % interval", justify="right")
        for parameter, value in model.parameters.items():
            spread = model.log_spreads.get(parameter)
            table.add_row(escape(parameter), _parameter(parameter, value), _around(parameter, value, spread))
        console.print(table)
    for text in fitted.unidentified:
        console.print(f"[yellow]not identified: {escape(text)}[/yellow]", soft_wrap=True)
    show_reasons(console, fitted.fits.reasons)
    return 0


def predict(arguments: argparse.Namespace) -> int:
    """Print what the models predict for settings."""
    changes = changes_of(arguments.set)
    observations = usable(observe(arguments.runs))
    settings = changed_settings(base_settings(observations), changes)
    fitted = fitted_runs(arguments, [settings])
    found, reasons = fitted.predict_all(settings)
    if arguments.page is not None:
        _write_page(arguments, fitted, settings, observations)
    if fitted.name not in found:
        raise LabError(reasons[fitted.name])
    if arguments.json:
        rows = [prediction_as_dict(one) for one in found.values()]
        print(json.dumps({"predictions": rows, "refused": reasons}, indent=1, allow_nan=False))
        return 0
    console = wide_console()
    console.print(settings_text(settings, fitted), soft_wrap=True)
    _show_prediction(console, found[fitted.name])
    for text in fitted.unidentified:
        console.print(f"[yellow]not identified: {escape(text)}[/yellow]", soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("model", "throughput", "90 % interval", "mean response", "90 % interval"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for name, one in found.items():
        table.add_row(
            escape(name),
            rate_text(one.throughput_per_s.value),
            interval_text(one.throughput_per_s, rate_text),
            time_text(one.response_s.value),
            interval_text(one.response_s, time_text),
        )
    console.print(table)
    show_reasons(console, reasons)
    return 0


def _write_page(
    arguments: argparse.Namespace,
    fitted: FittedChosen,
    settings: ModelSettings,
    observations: Sequence[TrialObservation],
) -> None:
    """Predict the grid and write the page with sliders."""
    with Patience("predicting", arguments.interrupt) as patience:

        def report(done: int, total: int) -> None:
            patience.check()
            patience.show(f"{done} of {total} combinations")

        grid = what_if(fitted, settings, observations, report)
    names = ", ".join(path.name for path in arguments.runs)
    notes = [f"Not identified: {text}" for text in fitted.unidentified]
    write_what_if(grid, arguments.page, f"What if? {names}", notes)


def fitted_runs(arguments: argparse.Namespace, among: Sequence[ModelSettings] = ()) -> FittedChosen:
    """Fit to all usable trials of the runs, with progress on a terminal."""
    observations = usable(observe(arguments.runs))
    with Patience("fitting models", arguments.interrupt) as patience:

        def report(done: int, total: int) -> None:
            patience.check()
            patience.show(f"{done} of {total} configurations held out")

        return fit_runs(observations, among, report)


def changes_of(given: Sequence[str]) -> dict[str, str]:
    """Changes by name from NAME=VALUE.

    Raises:
        LabError: for text without "=" or a name that is given twice.
    """
    changes: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise LabError(f"--set {text[:60]}: give NAME=VALUE, for example clients=500")
        if name.strip() in changes:
            raise LabError(f"--set {name.strip()}: is given twice")
        changes[name.strip()] = value
    return changes


def _show_prediction(console: Console, one: ModelPrediction) -> None:
    use = ", ".join(f"{name} {100 * share:.0f} %" for name, share in one.utilisation.items())
    present = ", ".join(f"{name} {count:.3g}" for name, count in one.present.items())
    console.print(f"bottleneck: {escape(one.bottleneck or 'unknown')}")
    if use:
        console.print(f"utilisation: {escape(use)}", soft_wrap=True)
    if present:
        console.print(f"requests present: {escape(present)}", soft_wrap=True)
    for operation, values in one.percentiles_s.items():
        mean_s = one.responses_s.get(operation, one.response_s.value if operation == "all" else math.nan)
        parts = ", ".join(f"p{share} {time_text(value)}" for share, value in values.items())
        console.print(f"response of {escape(operation)}: mean {time_text(mean_s)}, {parts}", soft_wrap=True)
    if one.p95_s is not None:
        interval = interval_text(one.p95_s, time_text)
        console.print(f"p95 of all: {time_text(one.p95_s.value)}, 90 % interval {interval}", soft_wrap=True)
    for text in one.extrapolates:
        console.print(f"[yellow]extrapolates: {escape(text)}[/yellow]", soft_wrap=True)


def settings_text(settings: ModelSettings, fitted: FittedChosen) -> str:
    """The settings that were measured at several levels or that differ from the measured ones."""
    values = settings.as_dict()
    shown = [
        f"{name} = {values[name]:g}"
        for name, levels in fitted.domain.levels.items()
        if len(levels) > 1 or values[name] != levels[0]
    ]
    return "settings: " + ", ".join(shown)


def prediction_as_dict(one: ModelPrediction) -> dict[str, Any]:
    """A prediction for `--json`."""
    content = dataclasses.asdict(one)
    content["settings"] = one.settings.as_dict()
    del content["uncertainty"]
    return content


def _fit_as_dict(fitted: FittedChosen) -> dict[str, Any]:
    return {
        "domain": {name: list(levels) for name, levels in fitted.domain.levels.items()},
        "weights": fitted.weights(interpolates=True),
        "models": {
            name: {
                "parameters": dict(one.parameters),
                "log_standard_deviations": dict(one.log_spreads),
                "unidentified": list(one.unidentified),
            }
            for name, one in fitted.fits.fitted.items()
        },
        "refused": fitted.fits.reasons,
    }


def _parameter(name: str, value: float) -> str:
    return time_text(value) if name.endswith("_s") and not name.endswith("_per_s") else f"{value:.4g}"


def _around(name: str, value: float, spread: float | None) -> str:
    if spread is None:
        return ""
    low, high = parameter_interval(value, spread)
    return f"{_parameter(name, low)} to {_parameter(name, high)}"


def interval_text(one: Estimate, text: Any) -> str:
    """The interval in words."""
    return "" if one.low is None or one.high is None else f"{text(one.low)} to {text(one.high)}"


def rate_text(value: float) -> str:
    """Requests per second."""
    return f"{value:,.0f}/s"


def time_text(value_s: float) -> str:
    """A time in the unit that suits it."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if value_s * factor >= 1:
            return f"{value_s * factor:.3g} {unit}"
    return f"{value_s * 1e9:.3g} ns"


def wide_console() -> Console:
    """A console that does not break the words of a table."""
    console = Console(highlight=False)
    console.width = max(console.width, _WIDTH_MIN)
    return console


def show_reasons(console: Console, reasons: dict[str, str]) -> None:
    """Print why models refuse."""
    for name, reason in reasons.items():
        console.print(f"[dim]{escape(name)} refuses: {escape(reason)}[/dim]", soft_wrap=True)
