"""Where the time went, from a folder of record files alone: no run, no load generator, no summary."""

from pathlib import Path
from typing import Any

import numpy as np

from waylab.analysis.stages import outcomes, queue_summary, stage_samples, stage_summary
from waylab.errors import LabError
from waylab.records import Records, joined_records, read_records


def folder_stages(
    directory: Path, skip_s: float = 0.0, cut_s: float = 0.0, partial: bool = False
) -> dict[str, Any]:
    """Stage times by program and operation, in nanoseconds; several files of one program are taken together.

    `skip_s` and `cut_s` leave out so many seconds after the first stamp and before the last one.
    Raises LabError when there is no record file, one cannot be trusted, or nothing is left.
    """
    paths = sorted(directory.glob("*.way")) if directory.is_dir() else [directory]
    if not paths:
        raise LabError(f"{directory}: holds no record files (*.way)")
    programs: dict[str, Records] = {}
    for path in paths:
        records = read_records(path, partial)
        known = programs.get(records.program)
        programs[records.program] = joined_records(known, records) if known else records
    return {name: _summary(directory, records, skip_s, cut_s) for name, records in programs.items()}


def _summary(directory: Path, records: Records, skip_s: float, cut_s: float) -> dict[str, Any]:
    rows = records.parents
    if not len(rows):
        raise LabError(f"{directory}: {records.program}: no request was recorded")
    first_ns, last_ns = int(rows[records.stamps[0]].min()), int(rows[records.stamps[-1]].max())
    window_ns = (first_ns + round(skip_s * 1e9), last_ns - round(cut_s * 1e9))
    operations = stage_summary(stage_samples(records, window_ns))
    if not operations:
        raise LabError(
            f"{directory}: {records.program}: no answered request is left of "
            f"{(last_ns - first_ns) / 1e9:.3g} s; leave out less"
        )
    return {
        "window_ns": list(window_ns),
        "sample": records.header["sample"],
        "dropped": records.dropped,
        "operations": operations,
        "outcomes": outcomes(records, window_ns),
        "queue_length": queue_summary(records, window_ns),
        "batch": _batches(records) if records.program == "messages" else None,
    }


def _batches(records: Records) -> dict[str, float] | None:
    """Recorded requests that went to the database together; all of them only if every request was recorded."""
    rows = records.parents
    rows = rows[rows["backend"] != 65535]
    if not len(rows):
        return None
    batches = rows["backend"].astype(np.uint64) << np.uint64(32) | rows["backend_sequence"]
    _, sizes = np.unique(batches, return_counts=True)
    # A request meets the batch that it is part of: large ones are met more often.
    met = float((sizes.astype(float) ** 2).sum() / sizes.sum())
    return {"mean": float(sizes.mean()), "met_mean": met, "largest": float(sizes.max())}
