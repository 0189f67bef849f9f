"""The run in the terminal: the main figures, what failed, and where the report is."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from waylab import folder
from waylab.report.content import Content, read_content
from waylab.report.numbers import NONE, percent_text, rate_text, time_text


def show_run(directory: Path, console: Console) -> None:
    """Print the summary of a run that has been analysed."""
    content = read_content(directory)
    console.print(f"\n[bold]{escape(content.run['name'])}[/bold]  {escape(content.spec['question'])}")
    console.print(_results(content))
    _models(content, console)
    for sentence in content.analysis["facts"]:
        console.print(f"• {escape(sentence)}")
    failed = [trial for trial in content.analysis["trials"] if not trial["used"]]
    if failed:
        console.print("[bold red]Trials that are not used:[/bold red]")
    for trial in failed:
        console.print(f"  [red]✗[/red] {escape(trial['id'])}: {escape('; '.join(trial['reasons']))}")
    report = directory / folder.REPORT
    console.print(
        f"report: {report if report.is_file() else f'none yet; waylab report {directory}'}", soft_wrap=True
    )


def _results(content: Content) -> Table:
    table = Table()
    table.add_column("configuration")
    for heading in ("used", "requests/s", "95 % interval", "mean", "p50", "p95", "p99", "CPU/request"):
        table.add_column(heading, justify="right")
    for c in content.analysis["configurations"]:
        everything = c["operations"].get("all", {})
        percentiles = everything.get("percentiles_ns", {})
        rate = c["throughput_per_s"]
        interval = (
            f"{rate_text(rate['low'])} – {rate_text(rate['high'])}" if rate["low"] is not None else NONE
        )
        table.add_row(
            escape(c["name"]),
            f"{c['used']}/{c['trials']}",
            rate_text(rate["mean"]),
            interval,
            time_text(everything["response_mean_ns"]["mean"] if everything else None),
            *(time_text(percentiles.get(percent)) for percent in ("50", "95", "99")),
            time_text(c["cpu_per_request_ns"].get("total", {}).get("mean")),
        )
    return table


def _models(content: Content, console: Console) -> None:
    for summary in content.predictions["summary"]:
        throughput, response = summary["throughput_per_s"], summary["response_mean_ns"]
        said = f"response off by {percent_text(response['median_error'])} (median), {percent_text(response['largest_error'])} (largest)"
        if throughput["median_error"] is not None:
            said = f"throughput off by {percent_text(throughput['median_error'])} (median); {said}"
        if not summary["applies"]:
            said = "applies nowhere"
        console.print(
            f"model {escape(summary['model'])}: applies to {summary['applies']} of {summary['configurations']}; {said}"
        )
