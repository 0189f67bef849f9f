"""`waylab explain`: where the time goes, what saturates first, and what one more of each part would bring."""

import argparse
import dataclasses
import json
from collections.abc import Callable

from rich import box
from rich.markup import escape
from rich.table import Table

from waylab.cli.fit.commands import (
    changes_of,
    fitted_runs,
    prediction_as_dict,
    rate_text,
    settings_text,
    time_text,
    wide_console,
)
from waylab.fit.interface import Estimate
from waylab.fit.observations import changed_settings
from waylab.predict.runs import explain_run


def explain(arguments: argparse.Namespace) -> int:
    """Print the explanation of one configuration."""
    changes = changes_of(arguments.set)
    fitted = fitted_runs(arguments)
    busiest = max(fitted.observations, key=lambda one: one.throughput_per_s)
    settings = changed_settings(busiest.settings, changes)
    found = explain_run(fitted, settings)
    if arguments.json:
        content = dataclasses.asdict(dataclasses.replace(found, prediction=None))  # type: ignore[arg-type]
        content["prediction"] = prediction_as_dict(found.prediction)
        print(json.dumps(content, indent=1, allow_nan=False))
        return 0
    console = wide_console()
    one = found.prediction
    console.print(settings_text(settings, fitted), soft_wrap=True)
    rate, response = _estimate(one.throughput_per_s, rate_text), _estimate(one.response_s, time_text)
    console.print(f"predicted: {rate}, mean response {response}", soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="where the time goes", title_justify="left")
    for heading in ("part", "time", "share"):
        table.add_column(heading, justify="left" if heading == "part" else "right")
    for part in found.parts:
        table.add_row(escape(part.name), time_text(part.time_s), f"{100 * part.share:.0f} %")
    console.print(table)
    if found.stages_s:
        stages = ", ".join(f"{name} {time_text(value)}" for name, value in found.stages_s.items() if value)
        console.print(f"measured stages: {stages}", soft_wrap=True)
    first = found.limits[0]
    where = f", from about {found.knee_clients} clients on" if found.knee_clients else ""
    console.print(
        f"saturates first: {escape(first.name)}, at {rate_text(first.throughput_per_s)}{where}; then "
        + ", ".join(
            f"{escape(other.name)} at {rate_text(other.throughput_per_s)}" for other in found.limits[1:]
        ),
        soft_wrap=True,
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="what a change brings", title_justify="left")
    for heading in ("change", "throughput", "90 % interval", "mean response", "90 % interval"):
        table.add_column(heading, justify="left" if heading == "change" else "right")
    for gain in found.gains:
        cells = []
        for ratio in (gain.throughput, gain.response):
            cells += [_percent(ratio.value), f"{_percent(ratio.low)} to {_percent(ratio.high)}"]
        table.add_row(escape(gain.change), *cells)
    console.print(table)
    return 0


def _estimate(one: Estimate, text: Callable[[float], str]) -> str:
    between = (
        f" ({text(one.low)} to {text(one.high)})" if one.low is not None and one.high is not None else ""
    )
    return f"{text(one.value)}{between}"


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{100 * (ratio - 1):+.1f} %"
