"""The lab of Waystage: it runs experiments on a memcached proxy, analyses the stage times and reports.

In a notebook, `waylab.open("results/...")` gives a finished run as data frames and figures (docs/notebooks.md).
"""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from waylab.errors import LabError
from waylab.version import __version__

if TYPE_CHECKING:
    from waylab.notebook import OpenedRun

__all__ = ["LabError", "__version__", "open", "runs"]


def open(path: str | PathLike[str]) -> OpenedRun:
    """Open a finished run folder, for example `results/20261127T040639Z-smoke`.

    Raises:
        LabError: if there is no run folder at this path.
    """
    # The lab's programs import this package, and do not wait for what only notebooks need.
    from waylab.notebook import OpenedRun  # noqa: PLC0415

    return OpenedRun(path)


def runs(folder: str | PathLike[str] = "results", name: str = "") -> list[Path]:
    """Return the run folders in a folder, the oldest first; only those of the experiment `name`, if it is given.

    A run folder is named after its start and its experiment; a renamed one is not found.

    Raises:
        LabError: if there is none.
    """
    wanted = re.compile(rf"\d{{8}}T\d{{6}}Z-{re.escape(name) if name else '.+'}")
    found = [
        path.parent for path in sorted(Path(folder).glob("*/run.json")) if wanted.fullmatch(path.parent.name)
    ]
    if not found:
        raise LabError(f"{folder}: has no run folder{f' of the experiment {name}' if name else ''}")
    return found
