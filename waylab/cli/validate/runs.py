"""`waylab validate RUN`: the configurations that a specification holds out, predicted and compared."""

import argparse
import json
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from waylab.cli.fit.commands import interval_text, rate_text, show_reasons, time_text, wide_console
from waylab.cli.patience import Patience
from waylab.errors import LabError
from waylab.fit.observations import observe
from waylab.predict.runs import CHOSEN, JudgedConfiguration, judge_runs
from waylab.predict.runs.judge import run_scores


def validate_runs(arguments: argparse.Namespace) -> int:
    """Fit to the calibration trials of runs and print the errors at the held-out configurations."""
    tables = [path for path in arguments.table if not path.is_dir()]
    if tables:
        raise LabError(f"validate: {tables[0]} is no run folder")
    observations = observe(arguments.table)
    with Patience("predicting held-out configurations", arguments.interrupt) as patience:

        def report(done: int, total: int) -> None:
            patience.check()
            patience.show(f"{done} of {total} inner hold-outs done")

        fits, judged = judge_runs(observations, report, arguments.split)
    if arguments.json:
        print(json.dumps([one.as_row() for one in judged], indent=1, allow_nan=False))
        return 0
    console = wide_console()
    _show_configurations(console, judged)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("held out", "model"):
        table.add_column(heading)
    for heading in (
        "configurations",
        "X: median, 90th",
        "R: median, 90th",
        "p95: median, 90th",
        "X, R, p95 in interval",
    ):
        table.add_column(heading, justify="right")
    for one in run_scores(judged):
        table.add_row(
            one.part,
            escape(one.model),
            str(one.configurations),
            ", ".join(f"{100 * value:.1f} %" for value in one.throughput),
            ", ".join(f"{100 * value:.1f} %" for value in one.response),
            ", ".join(f"{100 * value:.1f} %" for value in one.p95 or ()),
            ", ".join(
                f"{100 * value:.0f}"
                for value in (one.throughput_coverage, one.response_coverage, one.p95_coverage)
                if value is not None
            )
            + " %",
        )
    console.print(table)
    console.print(
        "X: throughput; R: mean response time; p95: 95th percentile of the response time; in interval: share of "
        "measured values within the 90 % prediction interval",
        soft_wrap=True,
    )
    reasons: dict[str, str] = {}
    for fitted in fits:
        weights = fitted.weights(interpolates=False)
        console.print(f"{CHOSEN}: " + ", ".join(f"{name} {share:.2f}" for name, share in weights.items()))
        reasons |= fitted.fits.reasons
    show_reasons(console, reasons)
    return 0


def _show_configurations(console: Console, judged: Sequence[JudgedConfiguration]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("held out", "configuration") if judged[0].held_out else ("configuration",):
        table.add_column(heading)
    for heading in ("X measured", "predicted", "90 % interval", "R measured", "predicted", "90 % interval"):
        table.add_column(heading, justify="right")
    for one in judged:
        if one.model != CHOSEN:
            continue
        seen, found = one.measured, one.predicted
        names = [escape(text) for text in (one.held_out, seen.configuration) if text]
        if found is None:
            table.add_row(*names, rate_text(seen.throughput_per_s), escape(one.refused))
            continue
        rate, time_s = found.throughput_per_s, found.response_s
        table.add_row(
            *names,
            rate_text(seen.throughput_per_s),
            rate_text(rate.value),
            _marked(interval_text(rate, rate_text), rate.contains(seen.throughput_per_s)),
            time_text(seen.response_s),
            time_text(time_s.value),
            _marked(interval_text(time_s, time_text), time_s.contains(seen.response_s)),
        )
    console.print(table)


def _marked(text: str, holds: bool | None) -> str:
    return text if holds else f"[yellow]{text} missed[/yellow]"
