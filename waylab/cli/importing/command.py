"""`waylab import`: the run folder, its analysis and its report."""

import argparse
import shutil
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from waylab.adapters import ImportRequest, ReadOptions, import_results
from waylab.cli.commands import conclude
from waylab.cli.importing.arguments import UNITS_NS
from waylab.errors import LabError


def import_files(arguments: argparse.Namespace) -> int:
    """Import the files, then analyse, predict and report."""
    if arguments.errors_max < 0:
        raise LabError(f"--errors-max {arguments.errors_max}: give a number of requests, 0 or more")
    directory = import_results(
        ImportRequest(
            files=arguments.files,
            directory=arguments.out or _new_name(arguments.name),
            name=arguments.name,
            levels=arguments.set,
            names=arguments.names,
            where=arguments.where,
            errors_max=arguments.errors_max,
            options=ReadOptions(unit_ns=UNITS_NS.get(arguments.unit or "", 0), tag=arguments.tag),
        )
    )
    console = Console(stderr=True, highlight=False)
    console.print(f"run folder: {directory}", soft_wrap=True, markup=False)
    try:
        return conclude(directory, console)
    except BaseException:
        # A folder without a report would be half a result.
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _new_name(name: str) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    first = Path("results") / f"{stamp}-{name}"
    others = (first.with_name(f"{first.name}-{number}") for number in range(2, 100))
    return next((one for one in (first, *others) if not one.exists()), first)
