"""`waylab validate`: held-out configurations of a table, predicted by every model and compared with the measurement."""

import argparse
import json
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from waylab.cli.patience import Patience
from waylab.cli.validate_runs import validate_runs
from waylab.errors import LabError
from waylab.fit.table.observations import read_observations
from waylab.predict.table.judge import JudgedCell, judge
from waylab.predict.table.rows import row_of
from waylab.predict.table.scores import scores_of

# A narrower table would break its words.
_WIDTH_MIN = 110


def validate(arguments: argparse.Namespace) -> int:
    """Hold out cells of a table or the configurations that a specification names, and print the errors."""
    if any(path.is_dir() for path in arguments.table):
        return validate_runs(arguments)
    if len(arguments.table) > 1:
        raise LabError("validate: give one table, or run folders")
    if arguments.split is None:
        raise LabError("validate: a table needs --split pools, clients, servers or levels")
    arguments.table = arguments.table[0]
    observations = read_observations(arguments.table)
    with Patience("predicting held-out cells", arguments.interrupt) as patience:

        def report(done: int, total: int) -> None:
            patience.check()
            patience.show(f"{done} of {total} hold-outs done")

        try:
            found = judge(observations, arguments.split, report)
        except LabError as error:
            raise LabError(f"{arguments.table}: {error}") from None
    if arguments.json:
        print(json.dumps([row_of(one) for one in found], indent=1, allow_nan=False))
    else:
        _show(found, arguments.split)
    return 0


def _show(found: Sequence[JudgedCell], split: str) -> None:
    console = Console(highlight=False)
    console.width = max(console.width, _WIDTH_MIN)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=f"split: {split}", title_justify="left")
    for heading in ("data set", "held out", "model"):
        table.add_column(heading, overflow="fold")
    for heading in ("cells", "X: median, 90th", "R: median, 90th", "p95: median", "X in interval"):
        table.add_column(heading, justify="right")
    for score in scores_of(found):
        table.add_row(
            escape(score.dataset),
            escape(score.part),
            escape(score.model),
            str(score.cells),
            _pair(score.throughput),
            _pair(score.response),
            _percent(score.p95),
            _percent(score.coverage),
        )
    console.print(table)
    console.print(
        "X: throughput; R: mean response time; median and 90th percentile of absolute relative errors; "
        "X in interval: share of measured throughputs within the 90 % prediction interval"
    )
    refused: dict[str, int] = {}
    for one in found:
        if one.refused:
            reason = f"{one.model}: {one.refused}"
            refused[reason] = refused.get(reason, 0) + 1
    for reason, count in sorted(refused.items()):
        console.print(f"[dim]refused {count} cells: {escape(reason)}[/dim]", soft_wrap=True)


def _pair(values: tuple[float | None, float | None]) -> str:
    return ", ".join(_percent(value) for value in values if value is not None)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"
