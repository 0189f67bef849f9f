"""The text output of `waylab validate` for a table: errors, residuals and failures within 80 columns."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from waylab.predict.table.judge import JudgedCell
from waylab.predict.table.residuals import failures_of, residuals_of, skills_of
from waylab.predict.table.scores import Score, scores_of

_PERCENT_EXACT = 10.0


def show_table_errors(found: Sequence[JudgedCell], split: str) -> None:
    """Print the errors of each data set and part, then those of the chosen model against each factor."""
    console = Console(highlight=False)
    console.print(f"[bold]split: {split}[/bold]")
    groups: dict[tuple[str, str], list[Score]] = {}
    for score in scores_of(found):
        groups.setdefault((score.dataset, score.part), []).append(score)
    for (dataset, part), scores in groups.items():
        table = _table(
            escape(f"{dataset}: {part}"),
            "model",
            ("cells", "X: med., 90th", "R: med., 90th", "p95", "in: X, R, p95"),
        )
        for score in scores:
            table.add_row(
                escape(score.model),
                str(score.cells),
                _pair(score.throughput),
                _pair(score.response),
                _percent(score.p95),
                _shares(score.coverage, score.response_coverage, score.p95_coverage),
            )
        console.print(table)
    console.print(
        "X: throughput; R: mean response time; p95: 95th percentile; median (p95: only this) and 90th percentile of "
        "absolute relative errors; in: share of measured values within the 90 % prediction interval."
    )
    for skill in skills_of(found):
        console.print(
            f"{escape(skill.part)}: the median error of chosen is {_percent(skill.chosen)}, that of the best baseline, "
            f"{skill.baseline}, {_percent(skill.best)}"
        )
    _show_residuals(console, found)
    _show_failures(console, found)
    _show_doubts(console, found)


def _table(title: str, first: str, headings: Sequence[str]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", padding=(0, 1, 0, 0)
    )
    table.add_column(first, overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _show_residuals(console: Console, found: Sequence[JudgedCell]) -> None:
    residuals = residuals_of(found)
    if not residuals:
        return
    table = _table(
        "chosen: errors of X against each factor", "factor", ("level", "cells", "bias", "median", "inside")
    )
    last = ""
    for one in residuals:
        table.add_row(
            "" if one.factor == last else one.factor,
            one.level,
            str(one.cells),
            f"{100 * one.bias:+.1f} %",
            _percent(one.median),
            _percent(one.coverage),
        )
        last = one.factor
    console.print(table)


def _show_failures(console: Console, found: Sequence[JudgedCell]) -> None:
    failures = failures_of(found)
    if failures:
        console.print(
            "where chosen fails (median error at least twice that of all cells held out in this way):"
        )
    for one in failures:
        reasons = "; ".join(one.reasons) or "nothing in its settings is special"
        console.print(
            f"- {escape(one.dataset)}, {escape(one.experiment)} {escape(one.workload)}, {escape(one.part)}: "
            f"{one.residual.cells} cells, median {_percent(one.residual.median)}, bias "
            f"{100 * one.residual.bias:+.1f} %, {_percent(one.residual.coverage)} inside; {escape(reasons)}"
        )


def _show_doubts(console: Console, found: Sequence[JudgedCell]) -> None:
    flags = dict.fromkeys(
        f"{one.dataset}, {one.settings.experiment} {one.settings.workload}, {one.settings.workers} workers, "
        f"{one.settings.clients} clients: {one.flag}"
        for one in found
        if one.flag
    )
    for text in flags:
        console.print(f"[dim]doubtful: {escape(text)}[/dim]")
    refused: dict[str, int] = {}
    for one in found:
        if one.refused:
            reason = f"{one.model}: {one.refused}"
            refused[reason] = refused.get(reason, 0) + 1
    for reason, count in sorted(refused.items()):
        console.print(f"[dim]refused {count} cell{'s' if count > 1 else ''}: {escape(reason)}[/dim]")


def _pair(values: tuple[float | None, float | None]) -> str:
    known = [value for value in values if value is not None]
    return ", ".join(_number(value) for value in known) + (" %" if known else "")


def _number(value: float) -> str:
    # Four digits at most, so that columns keep their width when a baseline is wrong by factors.
    return f"{100 * value:.1f}" if value < _PERCENT_EXACT else f"{min(100 * value, 9e99):.2g}"


def _shares(*values: float | None) -> str:
    """Whole percents; `-` where a model has no interval or the table no such column."""
    if all(value is None for value in values):
        return ""
    return ", ".join("-" if value is None else f"{100 * value:.0f}" for value in values) + " %"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{_number(value)} %"
