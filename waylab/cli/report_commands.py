"""The commands on finished runs: report, stages, compare, campaign."""

import argparse

import msgspec
from rich.console import Console
from rich.table import Table

from waylab.analysis.across.contrasts.versions import MARGIN, METRICS, compare_runs
from waylab.analysis.trial.folder_stages import ProgramStages, folder_stages
from waylab.cli.exits import verdict_exit
from waylab.errors import LabError
from waylab.report import (
    find_runs,
    show_comparison,
    write_campaign,
    write_comparison,
    write_report,
    write_sample,
)

_PAIR = 2


def report(arguments: argparse.Namespace) -> int:
    """Write the report of each run, or one sample page over all of them."""
    if arguments.sample:
        paths = [write_sample(arguments.runs, arguments.sample)]
    else:
        paths = [write_report(run) for run in arguments.runs]
    for path in paths:
        Console(highlight=False).print(f"{path}", soft_wrap=True)
    return 0


def stages(arguments: argparse.Namespace) -> int:
    """Print the times of stages from record files."""
    found = folder_stages(arguments.records, arguments.skip, arguments.cut, arguments.partial)
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return 0
    # Wider than any table: nothing cuts numbers off.
    console = Console(highlight=False, width=500)
    for program, content in found.items():
        which = "of the measured window" if content.measured else "with prefill and warm-up, see --skip"
        title = f"{program}: mean (median, 99th percentile) in us, answered requests {which}"
        console.print(title, soft_wrap=True)
        table = Table(box=None)
        rows = _stage_rows(content)
        if console.is_terminal and _width(rows) > Console().width:
            rows = [list(column) for column in zip(*rows, strict=True)]
        for column in rows[0]:
            table.add_column(column, justify="left" if column == "operation" else "right")
        for row in rows[1:]:
            table.add_row(*row)
        console.print(table, soft_wrap=True)
    return 0


def _stage_rows(content: ProgramStages) -> list[list[str]]:
    """Return the heading and one row for each operation."""
    names = list(content.operations["all"].stages)
    rows = [["operation", "requests", *names]]
    for operation, numbers in content.operations.items():
        times = (numbers.stages[name] for name in names)
        cells = (
            f"{time.mean_ns / 1e3:.1f} ({time.p50_ns / 1e3:.1f}, {time.p99_ns / 1e3:.1f})" for time in times
        )
        rows.append([operation, str(numbers.count), *cells])
    return rows


def _width(rows: list[list[str]]) -> int:
    """Return the columns of a terminal that these rows take, with one space on each side of a cell."""
    return sum(max(len(cell) for cell in column) + 2 for column in zip(*rows, strict=True))


def campaign(arguments: argparse.Namespace) -> int:
    """Write one page over several runs."""
    path = write_campaign(find_runs(arguments.runs), arguments.output, arguments.title)
    Console(highlight=False).print(f"{path}", soft_wrap=True)
    return 0


def compare(arguments: argparse.Namespace) -> int:
    """Compare runs of two sides and return the verdict as exit code."""
    if arguments.runs and (arguments.a or arguments.b):
        raise LabError("compare: give either RUN_A RUN_B, or --a RUN RUN --b RUN RUN")
    if arguments.runs and len(arguments.runs) != _PAIR:
        raise LabError(
            f"compare: {len(arguments.runs)} runs without sides; give RUN_A RUN_B, or --a RUN RUN --b RUN RUN"
        )
    old, new = arguments.a or arguments.runs[:1], arguments.b or arguments.runs[1:]
    metrics = tuple(arguments.metric) if arguments.metric else METRICS
    margin = MARGIN if arguments.margin is None else arguments.margin
    content = compare_runs(old, new, margin, metrics)
    path = write_comparison(content, arguments.output or new[-1])
    console = Console(highlight=False)
    show_comparison(content, console)
    console.print(f"{path}", soft_wrap=True)
    return verdict_exit(content.verdict)
