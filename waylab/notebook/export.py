"""Writes every data frame of a run as CSV or Parquet, for programs that read neither JSON nor record files."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

from waylab.errors import LabError
from waylab.notebook.opened import OpenedRun

if TYPE_CHECKING:
    from pandas import DataFrame

FORMATS = ("csv", "parquet")
FRAMES = ("trials", "configurations", "stages", "percentiles", "seconds")


def export_run(run: OpenedRun, kind: str, folder: Path, records: bool = False) -> list[Path]:
    """Write each data frame of a run to a file of its own, `trials.csv` and so on; return the paths.

    With `records` also those of each program, `records-proxy.csv`. Files of an earlier export are replaced.

    Raises:
        LabError: for an unknown format, Parquet without pyarrow, or a folder that cannot be written.
    """
    if kind not in FORMATS:
        raise LabError(f"export: format {kind!r} is unknown; known: {', '.join(FORMATS)}")
    if kind == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise LabError(
            "export: Parquet needs pyarrow; install it with: pip install pyarrow, or give --to csv"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = [_write(getattr(run, name), folder / f"{name}.{kind}") for name in FRAMES]
        for program in run.programs if records else []:
            written.append(_write(run.records(program, legs=True), folder / f"records-{program}.{kind}"))
    except OSError as error:
        raise LabError(
            f"{error.filename2 or error.filename or folder}: cannot be written: {error.strerror}"
        ) from None
    return written


def _write(content: DataFrame, path: Path) -> Path:
    """Write all or nothing: a reader never sees half a file."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        if path.suffix == ".csv":
            content.to_csv(partial, index=False)
        else:
            content.to_parquet(partial, index=False, engine="pyarrow")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path
