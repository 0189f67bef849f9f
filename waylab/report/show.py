"""The run in the terminal: the main figures, what failed, and where the report is."""

from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from waylab.report.page.content import Content, read_content
from waylab.report.page.numbers import NONE, rate_text, time_text
from waylab.runfolder import paths


def show_run(directory: Path, console: Console) -> None:
    """Print the summary of a run that has been analysed."""
    content = read_content(directory)
    console.print(f"\n[bold]{escape(content.run.name)}[/bold]  {escape(content.spec.question)}")
    console.print(_results(content))
    for sentence in content.facts:
        console.print(f"• {escape(sentence)}")
    failed = [trial for trial in content.analysis.trials if not trial.used]
    if failed:
        console.print("[bold red]Trials that are not used:[/bold red]")
    for trial in failed:
        console.print(f"  [red]✗[/red] {escape(trial.id)}: {escape('; '.join(trial.reasons))}")
    report = directory / paths.REPORT
    console.print(
        f"report: {report if report.is_file() else f'none yet; waylab report {directory}'}", soft_wrap=True
    )


def _results(content: Content) -> Table:
    """One line for each configuration, narrow enough for a terminal of eighty columns."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("configuration", min_width=22)
    for heading in ("requests/s", "95 % interval", "mean", "p95", "p99"):
        table.add_column(heading, justify="right", no_wrap=True)
    for c in content.analysis.configurations:
        everything = c.operations.get("all")
        percentiles = everything.percentiles_ns if everything else {}
        rate = c.throughput_per_s
        interval = f"{rate_text(rate.low)}..{rate_text(rate.high)}" if rate.low is not None else NONE
        table.add_row(
            escape(c.name) + ("" if c.used == c.trials else f" ({c.used} of {c.trials})"),
            rate_text(rate.mean),
            interval,
            time_text(everything.response_mean_ns.mean if everything else None),
            *(time_text(percentiles.get(percent)) for percent in ("95", "99")),
        )
    return table
