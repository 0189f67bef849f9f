"""The records of single requests as a data frame: fields, stamps in nanoseconds, intervals in seconds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from waylab.analysis.trial.artifacts import read_trial_records, testbed_of
from waylab.analysis.trial.stages import in_window
from waylab.errors import LabError
from waylab.notebook.columns import FactorColumns, Row
from waylab.records import OPERATIONS, OUTCOMES, PARENT, Records
from waylab.runfolder import paths
from waylab.runfolder.files import read
from waylab.runfolder.load import LoadSummary
from waylab.runfolder.run import PlannedTrial, Run
from waylab.runfolder.trial import TestbedFacts

if TYPE_CHECKING:
    from pandas import DataFrame

# Fields whose numbers stand for words.
_WORDS = {"operation": OPERATIONS, "outcome": OUTCOMES}
_PADDING = "reserved"


def recorded_programs(directory: Path, run: Run) -> list[str]:
    """Return the names of the programs that left records in any trial; each file is named after its program."""
    return sorted({_program(path) for trial in run.plan for path in _files(directory, trial.id)})


def _program(path: Path) -> str:
    return path.stem.partition("-")[0]


def records_frame(
    directory: Path, run: Run, program: str, trials: Sequence[PlannedTrial], legs: bool = False
) -> DataFrame:
    """One row for each record that a program left in these trials; with `legs` also those of single legs.

    Of several trials, one with a damaged record file is left out with a warning that names it.

    Raises:
        LabError: for a trial with a damaged record file, or if no trial has records of this program.
    """
    # Pandas takes a second to load: only who wants a frame waits for it.
    from pandas import DataFrame, concat  # noqa: PLC0415

    factors = FactorColumns(run.spec)
    abouts: dict[str, Row] = {
        one.id: {"trial": one.id, "configuration": one.configuration, **factors.row(one.levels)}
        for one in trials
    }
    # All parts have the same categories, so that they remain categories when they are joined.
    known = {
        name: [*dict.fromkeys(str(about[name]) for about in abouts.values())]
        for name in next(iter(abouts.values()))
    }
    parts, damaged = [], []
    for trial in trials:
        try:
            found = [
                _frame(records, _window_ns(directory, trial.id), legs)
                for records in _records(directory, trial.id, program)
            ]
        except LabError as error:
            damaged.append(f"trial {trial.id} is left out: {error}")
            continue
        for part in found:
            beside = {
                name: _repeated(value, known[name], len(part)) for name, value in abouts[trial.id].items()
            }
            parts.append(concat([DataFrame(beside, index=part.index), part], axis="columns"))
    if not parts:
        raise LabError(
            damaged[0].replace(" is left out", "") if damaged else _none(directory, trials, program)
        )
    for text in damaged:
        warnings.warn(text, stacklevel=3)
    return concat(parts, ignore_index=True)


def _none(directory: Path, trials: Sequence[PlannedTrial], program: str) -> str:
    seen = {_program(path) for trial in trials for path in _files(directory, trial.id)}
    left = f"there are records of: {', '.join(sorted(seen))}" if seen else "there are no record files"
    return f"{directory}: no records of {program!r}; {left}"


def _repeated(value: object, known: Sequence[str], count: int) -> object:
    """Return a cell for every row; text is a category, which takes a byte or two instead of dozens."""
    from pandas import Categorical, Index  # noqa: PLC0415

    if not isinstance(value, str):
        return value
    return Categorical.from_codes(np.full(count, known.index(value), np.int64), Index(known))


def _files(directory: Path, trial_id: str) -> list[Path]:
    return sorted((paths.trial_directory(directory, trial_id) / paths.RECORDS).glob("*.way"))


def _records(directory: Path, trial_id: str, program: str) -> Iterator[Records]:
    files = [path for path in _files(directory, trial_id) if _program(path) == program]
    testbed = testbed_of(files[0].parent) if files else TestbedFacts()
    return (read_trial_records(path, testbed) for path in files)


def _window_ns(directory: Path, trial_id: str) -> tuple[int, int]:
    return read(paths.trial_directory(directory, trial_id) / paths.LOAD, LoadSummary).window_ns


def _frame(records: Records, window_ns: tuple[int, int], legs: bool) -> DataFrame:
    from pandas import Categorical, DataFrame, Index  # noqa: PLC0415

    rows = records.rows if legs else records.parents
    fields = [name for name in rows.dtype.names or () if name not in (*records.stamps, _PADDING)]
    columns: dict[str, object] = {"in_window": in_window(records, rows, window_ns)}
    for name in fields:
        if name in _WORDS:
            known = _WORDS[name]
            columns[name] = Categorical.from_codes(_codes(rows[name], len(known)), Index(known))
        elif name == "leg":
            columns["is_leg"] = rows["leg"] != PARENT
        else:
            columns[name] = rows[name]
    columns |= {f"{name}_s": _seconds(records.interval_ns(rows, name)) for name in records.intervals}
    columns["total_s"] = _seconds(records.total_ns(rows))
    columns |= {f"{name}_ns": rows[name] for name in records.stamps}
    return DataFrame(columns)


def _seconds(time_ns: NDArray[np.int64]) -> NDArray[np.float64]:
    return time_ns.astype(np.float64) * np.float64(1e-9)


def _codes(numbers: NDArray[np.uint8], known: int) -> NDArray[np.int64]:
    """Return the numbers of words; -1, which is no word, for one that this version does not know."""
    found = numbers.astype(np.int64)
    return np.where(found < known, found, -1)
