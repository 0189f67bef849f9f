"""Where the time went, from a folder of record files alone: no run, no load generator, no summary."""

from pathlib import Path

import numpy as np
from msgspec import Struct

from waylab.analysis.trial.artifacts import read_trial_records, testbed_of
from waylab.analysis.trial.stages import outcomes, queue_summary, stage_samples, stage_summary
from waylab.errors import LabError
from waylab.records import Records, joined_records
from waylab.runfolder import paths
from waylab.runfolder.files import read
from waylab.runfolder.load import LoadSummary
from waylab.runfolder.trial_numbers import OperationStages, QueueLength


class BatchSizes(Struct, frozen=True, kw_only=True):
    """Recorded requests that went to the database together."""

    mean: float  # mean number of requests of a batch
    met_mean: float  # mean size of the batch that a request is part of
    largest: float  # largest batch


class ProgramStages(Struct, frozen=True, kw_only=True):
    """The stages of one program."""

    measured: bool  # whether the window is the measured one of a trial; otherwise the warm-up is part of it
    window_ns: tuple[int, int]  # the window on CLOCK_MONOTONIC, in nanoseconds
    sample: int  # one record is kept for this many requests
    dropped: int | None  # records that were dropped; null for a file without its end
    operations: dict[str, OperationStages[float]]  # by operation, `all` first
    outcomes: dict[str, int]  # requests by outcome
    queue_length: QueueLength[float] | None  # requests that arriving ones found ahead of them
    batch: BatchSizes | None  # batches of a message service


def folder_stages(
    directory: Path, skip_s: float = 0.0, cut_s: float = 0.0, partial: bool = False
) -> dict[str, ProgramStages]:
    """Stage times by program and operation, in nanoseconds; several files of one program are taken together.

    The records of a trial are those of its measured window, which its summary has. Other records are all taken,
    the prefill and the warm-up included. `skip_s` and `cut_s` leave out as many seconds after the beginning and
    before the end.
    Raises LabError when there is no record file, one cannot be trusted, or nothing is left.
    """
    if directory.is_dir() and (directory / paths.RECORDS).is_dir():
        directory = directory / paths.RECORDS
    places = sorted(directory.glob("*.way")) if directory.is_dir() else [directory]
    measured_ns = _measured_window(places[0].parent) if places else None
    if not places:
        raise LabError(f"{directory}: contains no record files (*.way)")
    programs: dict[str, Records] = {}
    testbed = testbed_of(places[0].parent)
    for path in places:
        records = read_trial_records(path, testbed, partial)
        known = programs.get(records.program)
        programs[records.program] = joined_records(known, records) if known else records
    return {
        name: _summary(directory, records, measured_ns, skip_s, cut_s) for name, records in programs.items()
    }


def _measured_window(records: Path) -> tuple[int, int] | None:
    """Return the measured window of the trial that wrote these records; None if they belong to no trial."""
    summary = records.resolve().parent / paths.LOAD
    return read(summary, LoadSummary).window_ns if summary.is_file() else None


def _summary(
    directory: Path, records: Records, measured_ns: tuple[int, int] | None, skip_s: float, cut_s: float
) -> ProgramStages:
    rows = records.parents
    if not len(rows):
        raise LabError(f"{directory}: {records.program}: no request was recorded")
    first_ns, last_ns = int(rows[records.stamps[0]].min()), int(rows[records.stamps[-1]].max())
    begin_ns, end_ns = measured_ns or (first_ns, last_ns)
    window_ns = (begin_ns + round(skip_s * 1e9), end_ns - round(cut_s * 1e9))
    operations = stage_summary(stage_samples(records, window_ns))
    if not operations:
        raise LabError(
            f"{directory}: {records.program}: no answered request is left of "
            f"{(last_ns - first_ns) / 1e9:.3g} s; leave out less"
        )
    return ProgramStages(
        measured=measured_ns is not None,
        window_ns=window_ns,
        sample=records.sample,
        dropped=records.dropped,
        operations=operations,
        outcomes=outcomes(records, window_ns),
        queue_length=queue_summary(records, window_ns),
        batch=_batches(records) if records.program == "messages" else None,
    )


def _batches(records: Records) -> BatchSizes | None:
    """Sizes of the batches; right only if every request was recorded."""
    rows = records.parents
    rows = rows[rows["backend"] != 65535]
    if not len(rows):
        return None
    batches = rows["backend"].astype(np.uint64) << np.uint64(32) | rows["backend_sequence"]
    _, sizes = np.unique(batches, return_counts=True)
    # A request meets the batch that it is part of: large ones are met more often.
    met = float((sizes.astype(float) ** 2).sum() / sizes.sum())
    return BatchSizes(mean=float(sizes.mean()), met_mean=met, largest=float(sizes.max()))
