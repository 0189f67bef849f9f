"""`waylab export`: the data frames of a run as files."""

import argparse

from rich.console import Console

from waylab.notebook import OpenedRun, export_run


def export(arguments: argparse.Namespace) -> int:
    """Write the files and print their paths."""
    run = OpenedRun(arguments.run)
    folder = arguments.output or run.directory / "export"
    for path in export_run(run, arguments.to, folder, records=arguments.records):
        Console(highlight=False).print(f"{path}", soft_wrap=True, markup=False)
    return 0
