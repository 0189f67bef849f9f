"""Time per stage, from the records of the proxy (or of the embedded cache) within the measured window."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from waylab.records import OPERATIONS, OUTCOMES, Records

STAGE_PERCENTILES = (5, 25, 50, 75, 95, 99)


def window_rows(records: Records, window_ns: tuple[int, int]) -> NDArray[np.void]:
    """Return the requests (not legs) whose first and last stamps lie within the window."""
    rows = records.parents
    first, last = records.stamps[0], records.stamps[-1]
    return rows[(rows[first] >= window_ns[0]) & (rows[last] <= window_ns[1])]


def stage_samples(records: Records, window_ns: tuple[int, int]) -> dict[str, dict[str, NDArray[np.int64]]]:
    """Return the interval lengths by operation (and `all`), then by stage, `total` included; answered requests only."""
    rows = window_rows(records, window_ns)
    rows = rows[rows["outcome"] == OUTCOMES.index("answered")]
    kinds = {"all": rows}
    for number in np.unique(rows["operation"]):
        name = OPERATIONS[number] if number < len(OPERATIONS) else f"operation {number}"
        kinds[name] = rows[rows["operation"] == number]
    return {
        name: {
            **{stage: records.interval_ns(some, stage) for stage in records.intervals},
            "total": records.total_ns(some),
        }
        for name, some in kinds.items()
        if len(some)
    }


def stage_summary(samples: dict[str, dict[str, NDArray[np.int64]]]) -> dict[str, Any]:
    """Count, mean and percentiles of each stage by operation; the means add up to the mean total."""
    return {
        operation: {
            "count": len(stages["total"]),
            "stages": {
                stage: {
                    "mean_ns": float(values.mean()),
                    **{
                        f"p{percent}_ns": float(np.percentile(values, percent))
                        for percent in STAGE_PERCENTILES
                    },
                }
                for stage, values in stages.items()
            },
        }
        for operation, stages in samples.items()
    }


def pool(many: list[dict[str, dict[str, NDArray[np.int64]]]]) -> dict[str, dict[str, NDArray[np.int64]]]:
    """Put the samples of several trials together, so that percentiles are those of all requests."""
    pooled: dict[str, dict[str, list[NDArray[np.int64]]]] = {}
    for samples in many:
        for operation, stages in samples.items():
            for stage, values in stages.items():
                pooled.setdefault(operation, {}).setdefault(stage, []).append(values)
    return {
        operation: {stage: np.concatenate(values) for stage, values in stages.items()}
        for operation, stages in pooled.items()
    }


def queue_summary(records: Records, window_ns: tuple[int, int]) -> dict[str, float] | None:
    """Requests that arriving ones found ahead of them: mean and percentiles; None where nothing is known."""
    rows = window_rows(records, window_ns)
    # A record file says itself which fields it has.
    lengths = rows["queue_length"] if "queue_length" in (rows.dtype.names or ()) else []
    if not len(lengths):
        return None
    return {
        "mean": float(lengths.mean()),
        "p50": float(np.percentile(lengths, 50)),
        "p95": float(np.percentile(lengths, 95)),
        "largest": float(lengths.max()),
    }


def outcomes(records: Records, window_ns: tuple[int, int]) -> dict[str, int]:
    """Count the requests by outcome."""
    rows = window_rows(records, window_ns)
    numbers, counts = np.unique(rows["outcome"], return_counts=True)
    return {
        OUTCOMES[number] if number < len(OUTCOMES) else f"outcome {number}": int(count)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
    }
