"""Two versions side by side: the page of `waylab compare`, and its table in the terminal."""

from html import escape
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape as plain
from rich.table import Table

from waylab.errors import LabError
from waylab.report.page.numbers import NONE, percent_text, ratio_text, shown
from waylab.report.page.offline import document
from waylab.report.tables.table import definitions, table
from waylab.runfolder import paths
from waylab.runfolder.comparison import ComparedRun, RunComparison
from waylab.runfolder.files import write, write_bytes
from waylab.runfolder.numbers import Ratio

_COLOURS = {"worse": "bold red", "better": "green", "equivalent": "green", "no worse": "green"}
_CLASSES = {"worse": "fail", "better": "pass", "equivalent": "pass", "no worse": "pass"}


def write_comparison(content: RunComparison, directory: Path) -> Path:
    """Write `compare.json` and `compare.html`; return the path of the page."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{directory}: cannot be written: {error.strerror}") from None
    write(directory / paths.COMPARE, content)
    path = directory / "compare.html"
    write_bytes(path, _page(content).encode())
    return path


def show_comparison(content: RunComparison, console: Console) -> None:
    """Print what was found, every configuration with its ratios."""
    lines = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    lines.add_column("configuration", min_width=24)
    for metric in content.metrics:
        lines.add_column(_heading(metric.metric), justify="right")
    for name, ratios in _rows(content):
        lines.add_row(plain(name), *(_ratio_text(ratio) for ratio in ratios))
    console.print(lines)
    for metric in content.metrics:
        colour = _COLOURS.get(metric.verdict, "yellow")
        console.print(f"[{colour}]{metric.verdict}[/{colour}]  {plain(metric.text)}")
    console.print(f"[bold]{content.verdict}[/bold]{_withheld(content)}", soft_wrap=True)


def _withheld(content: RunComparison) -> str:
    """Return why the verdict is not "no worse" although the metrics alone would give it."""
    return f": cannot be called no worse, because {plain(content.withheld)}" if content.withheld else ""


def _heading(metric: str) -> str:
    """Name a metric in a narrow column; the sentences below have it whole."""
    return metric.replace("_ns", "").replace("_per_s", "").replace("cpu_per_request", "cpu")


def _rows(content: RunComparison) -> list[tuple[str, list[Ratio | None]]]:
    names = dict.fromkeys(part.name for metric in content.metrics for part in metric.configurations)
    rows: list[tuple[str, list[Ratio | None]]] = [("all", [metric.overall for metric in content.metrics])]
    for name in names:
        found: list[Ratio | None] = [
            next((part for part in metric.configurations if part.name == name), None)
            for metric in content.metrics
        ]
        rows.append((name, found))
    return rows


def _ratio_text(ratio: Ratio | None) -> str:
    if ratio is None or ratio.ratio is None:
        return NONE
    if ratio.low is None:
        return f"{ratio.ratio:.3f}"
    return f"{ratio.ratio:.3f} {ratio.low:.3f}..{ratio.high:.3f}"


def _cell(ratio: Ratio | None) -> str:
    if ratio is None or ratio.ratio is None:
        return NONE
    if ratio.low is None:
        return shown(ratio.ratio, ratio_text)
    bounds = f"{shown(ratio.low, ratio_text)}, {shown(ratio.high, ratio_text)}"
    return f'{shown(ratio.ratio, ratio_text)} <span class="interval">[{bounds}]</span>'


def _page(content: RunComparison) -> str:
    title = f"{content.name}: two versions"
    sides = [
        (
            name,
            f"{_arm(side)}<code>{escape(side.directory)}</code>, {escape(str(side.version))}, "
            f"commit <code>{escape(side.commit or 'unknown')}</code>, "
            f"{shown(side.trials_used)} of {shown(side.trials_total)} trials used",
        )
        for name, runs in (("baseline", content.baseline), ("candidate", content.candidate))
        for side in runs
    ]
    sides.append(("margin", shown(content.margin, percent_text)))
    verdicts = "".join(
        f'<li><b class="{_CLASSES.get(metric.verdict, "")}">{escape(metric.verdict)}</b>: {escape(metric.text)}</li>'
        for metric in content.metrics
    )
    headings = ["configuration", *(metric.metric for metric in content.metrics)]
    rows = [[escape(name), *(_cell(ratio) for ratio in ratios)] for name, ratios in _rows(content)]
    unit = "trials within blocks of one run" if content.interleaved else "whole runs"
    words = (
        f"Ratios candidate / baseline of {unit}, with 95 % intervals; verdicts are adjusted for the number of "
        "metrics (Holm)."
    )
    if content.withheld:
        verdicts += f'<li><b class="fail">cannot be called no worse</b>: {escape(content.withheld)}</li>'
    notes = "".join(f"<li>{escape(note)}</li>" for note in content.notes)
    sections = (
        f'\n<section id="verdict"><h2>Verdict: {escape(content.verdict)}</h2><ul>{verdicts}</ul></section>\n'
        f'<section id="set-up"><h2>What was compared</h2>{definitions(sides)}</section>\n'
        f'<section id="results"><h2>Every configuration</h2>{table(headings, rows, words)}</section>\n'
        f'<section id="threats"><h2>Threats</h2><ul>{notes}</ul></section>\n'
    )
    return document(title, f'<p class="lead">{escape(content.question)}</p>', sections)


def _arm(side: ComparedRun) -> str:
    return f"<code>{escape(side.arm)}</code> in " if side.arm else ""
