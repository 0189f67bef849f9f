"""Time per stage, from the records of the proxy (or of the embedded cache) within the measured window."""

import numpy as np
from numpy.typing import NDArray

from waylab.records import OPERATIONS, OUTCOMES, Records
from waylab.runfolder.trial_numbers import OperationStages, QueueLength, StageTimes

# Interval lengths in nanoseconds by operation and stage.
Samples = dict[str, dict[str, NDArray[np.int64]]]


def window_rows(records: Records, window_ns: tuple[int, int]) -> NDArray[np.void]:
    """Return the requests (not legs) whose first and last stamps lie within the window."""
    rows = records.parents
    return rows[in_window(records, rows, window_ns)]


def in_window(records: Records, rows: NDArray[np.void], window_ns: tuple[int, int]) -> NDArray[np.bool_]:
    """Return for each row whether its first and last stamps lie within the window."""
    first, last = records.stamps[0], records.stamps[-1]
    inside: NDArray[np.bool_] = (rows[first] >= window_ns[0]) & (rows[last] <= window_ns[1])
    return inside


def stage_samples(records: Records, window_ns: tuple[int, int]) -> Samples:
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


def stage_summary(samples: Samples) -> dict[str, OperationStages[float]]:
    """Count, mean and percentiles of each stage by operation; the means add up to the mean total."""
    return {
        operation: OperationStages(
            count=len(stages["total"]), stages={stage: _times(values) for stage, values in stages.items()}
        )
        for operation, stages in samples.items()
    }


def _times(values: NDArray[np.int64]) -> StageTimes[float]:
    percentiles = (float(value) for value in np.percentile(values, (5, 25, 50, 75, 95, 99)))
    p5, p25, p50, p75, p95, p99 = percentiles
    mean = float(values.mean())
    return StageTimes(mean_ns=mean, p5_ns=p5, p25_ns=p25, p50_ns=p50, p75_ns=p75, p95_ns=p95, p99_ns=p99)


def pool(many: list[Samples]) -> Samples:
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


def queue_summary(records: Records, window_ns: tuple[int, int]) -> QueueLength[float] | None:
    """Requests that arriving ones found ahead of them: mean and percentiles; None where nothing is known."""
    rows = window_rows(records, window_ns)
    # A record file says itself which fields it has.
    if "queue_length" not in (rows.dtype.names or ()) or not len(rows):
        return None
    lengths = rows["queue_length"]
    return QueueLength(
        mean=float(lengths.mean()),
        p50=float(np.percentile(lengths, 50)),
        p95=float(np.percentile(lengths, 95)),
        largest=float(lengths.max()),
    )


def outcomes(records: Records, window_ns: tuple[int, int]) -> dict[str, int]:
    """Count the requests by outcome."""
    rows = window_rows(records, window_ns)
    numbers, counts = np.unique(rows["outcome"], return_counts=True)
    return {
        OUTCOMES[number] if number < len(OUTCOMES) else f"outcome {number}": int(count)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
    }
