"""The lab of Waystage: it runs experiments on a memcached proxy, analyses the stage times and reports.

In a notebook, `waylab.open("results/...")` gives a finished run as data frames and figures (docs/notebooks.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from waylab.errors import LabError
from waylab.version import __version__

if TYPE_CHECKING:
    from waylab.cli.experiment import BuiltExperiment
    from waylab.notebook import OpenedRun

__all__ = ["LabError", "__version__", "experiment", "open", "runs"]


def experiment(
    name: str,
    question: str,
    hypothesis: str,
    refuted_by: Sequence[Mapping[str, object]],
    **sections: object,
) -> BuiltExperiment:
    """Build a specification in code; `.run()` runs it and returns the run.

    `refuted_by` has the rules that would refute the hypothesis, for example
    `[{"metric": "throughput_per_s", "of": {"clients": 8}, "to": {"clients": 2}, "below": 1}]`. The other sections are
    those of the TOML file (docs/experiment-design.md), for example `load={"test_time_s": 5.0}`,
    `factors={"clients": [2, 8]}` and `design={"blocks": 4}`.

    Raises:
        LabError: in one line, if the specification is not valid.
    """
    # The lab's programs import this package, and do not wait for what only notebooks need.
    from waylab.cli.experiment import BuiltExperiment  # noqa: PLC0415

    stated = {"name": name, "question": question, "hypothesis": hypothesis, "refuted_by": refuted_by}
    return BuiltExperiment({**stated, **sections})


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
