"""`waylab predict`, with `--profile`: queue, response time and losses over time under a load that changes."""

import argparse
import dataclasses
import json

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from waylab.cli.fit import commands
from waylab.cli.fit.commands import changes_of, fitted_runs, rate_text, settings_text, time_text, wide_console
from waylab.cli.patience import Patience
from waylab.errors import LabError
from waylab.fit.observations import base_settings, changed_settings, observe, usable
from waylab.predict.profile import (
    Bursts,
    ProfileResult,
    fit_bursts,
    predict_profile,
    read_arrivals,
    read_profile,
)


def predict(arguments: argparse.Namespace) -> int:
    """Print what the models predict: for one configuration, or over time under a profile."""
    if arguments.profile is None:
        if arguments.arrivals is not None:
            raise LabError("--arrivals needs --profile, for example --profile '60s at 20k'")
        return commands.predict(arguments)
    if arguments.page is not None:
        raise LabError("--page shows single configurations; leave out --profile or --page")
    phases = read_profile(arguments.profile)
    recorded = read_arrivals(arguments.arrivals) if arguments.arrivals is not None else None
    bursts = fit_bursts(recorded) if recorded is not None else None
    observations = usable(observe(arguments.runs))
    settings = changed_settings(base_settings(observations), changes_of(arguments.set))
    fitted = fitted_runs(arguments, [settings])
    with Patience("simulating", arguments.interrupt) as patience:

        def report(done: int, total: int) -> None:
            patience.check()
            patience.show(f"{done:,} of {total:,} requests")

        found = predict_profile(fitted, settings, phases, report=report)
        bursty = predict_profile(fitted, settings, phases, bursts, report=report) if bursts else None
    if arguments.json:
        content = {
            "poisson": _as_dict(found),
            "bursts": None
            if bursts is None
            else {**dataclasses.asdict(bursts), "dispersion": bursts.dispersion},
            "bursty": None if bursty is None else _as_dict(bursty),
        }
        print(json.dumps(content, indent=1, allow_nan=False))
        return 0
    console = wide_console()
    console.print(settings_text(found.settings, fitted), soft_wrap=True)
    if recorded is not None:
        console.print(_bursts_text(bursts), soft_wrap=True)
    console.print(_table(found, bursty))
    _show_summary(console, "", found)
    if bursty is not None:
        _show_summary(console, "with bursts: ", bursty)
    for text in found.extrapolates:
        console.print(f"[yellow]extrapolates: {escape(text)}[/yellow]", soft_wrap=True)
    return 0


def _bursts_text(bursts: Bursts | None) -> str:
    if bursts is None:
        return "recorded arrivals: no burstier than Poisson"
    busy, idle = bursts.lengths_s
    return (
        f"recorded arrivals: {time_text(busy)} at {bursts.factors[0]:.3g} times the mean rate, then {time_text(idle)} "
        f"at {bursts.factors[1]:.3g} times (means of exponential times)"
    )


def _table(found: ProfileResult, bursty: ProfileResult | None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    headings = ["from", "arrivals", "mean response", "95th percentile", "in the system", "lost"]
    if bursty is not None:
        headings += ["mean with bursts", "95th percentile with bursts"]
    for heading in headings:
        table.add_column(heading, justify="right")
    for place, one in enumerate(found.windows):
        cells = [
            f"{one.start_s:.3g} s",
            rate_text(one.arrivals_per_s),
            _time(one.response_s),
            _time(one.response_p95_s),
            f"{one.present:.0f}",
            rate_text(one.lost_per_s),
        ]
        if bursty is not None:
            cells += [_time(bursty.windows[place].response_s), _time(bursty.windows[place].response_p95_s)]
        table.add_row(*cells)
    return table


def _time(value_s: float | None) -> str:
    return "" if value_s is None else time_text(value_s)


def _show_summary(console: Console, title: str, found: ProfileResult) -> None:
    share = f" ({100 * found.lost / found.requests:.2g} %)" if found.lost else ""
    console.print(
        f"{title}lost: {found.lost:,} of {found.requests:,} requests{share}; the configuration can serve "
        f"{rate_text(found.capacity_per_s)}",
        soft_wrap=True,
    )
    for one in found.recoveries:
        after = (
            "all is not normal again before the end of the profile"
            if one.normal_s is None
            else f"all is normal again after {time_text(max(one.normal_s - one.ended_s, 0.0))}"
            if one.normal_s > one.ended_s
            else "all is normal again at once"
        )
        console.print(f"{title}{one.disturbance} until {one.ended_s:.4g} s: {after}", soft_wrap=True)


def _as_dict(found: ProfileResult) -> dict[str, object]:
    return {**dataclasses.asdict(found), "settings": found.settings.as_dict()}
