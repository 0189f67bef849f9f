"""`waylab export`: the data frames of a run as files."""

import argparse
import sys
import warnings

from rich.console import Console

from waylab.notebook import OpenedRun, export_run


def export(arguments: argparse.Namespace) -> int:
    """Write the files and print their paths."""
    run = OpenedRun(arguments.run)
    folder = arguments.output or run.directory / "export"
    with warnings.catch_warnings(record=True) as left_out:
        warnings.simplefilter("always", UserWarning)
        written = export_run(run, arguments.to, folder, records=arguments.records)
    for one in left_out:
        print(f"waylab: {one.message}", file=sys.stderr)
    for path in written:
        Console(highlight=False).print(f"{path}", soft_wrap=True, markup=False)
    return 0
