"""Turns a trial of another tool into the summary of a load that the lab reads (`load.json`)."""

from hdrh.histogram import HdrHistogram

from waylab.adapters.foreign import ForeignTimes, ForeignTrial
from waylab.runfolder import paths
from waylab.runfolder.load import (
    LoadOperation,
    LoadOperations,
    LoadSource,
    LoadSummary,
    LoadTimes,
    LoadTotals,
    LoadVerification,
)

# Starts that no file states are spread over this many nanoseconds, about 30 years.
_STARTS_NS = 1 << 60


def load_summary(trial: ForeignTrial, source: LoadSource) -> LoadSummary:
    """Return the summary of a trial. What the tool does not report is null, zero or empty."""
    begin_ns = _begin_ns(trial, source)
    completed = round(trial.throughput_per_s * trial.measured_s)
    rate = trial.load.rate
    operations = {name: _operation(one) for name, one in trial.operations.items()}
    # Errors are counted for all operations together.
    everything = LoadOperation(count=trial.requests, errors=trial.errors, response=operations["all"].response)
    return LoadSummary(
        format=paths.LOAD_FORMAT,
        measure_from_clock_ns=begin_ns,
        measure_to_clock_ns=begin_ns + round(1e9 * trial.measured_s),
        measured_s=trial.measured_s,
        totals=LoadTotals(
            requests=trial.requests,
            hits=trial.hits,
            misses=trial.misses,
            errors=trial.errors,
            completed=completed,
            achieved_share=trial.throughput_per_s / rate if rate else None,
        ),
        throughput_per_s=trial.throughput_per_s,
        operations=LoadOperations(all=everything, get=operations.get("get"), set=operations.get("set")),
        seconds=list(trial.seconds),
        verification=LoadVerification(checked=0, wrong=0, torn=0, stale=0, unexpected_reply=0),
        valid=True,
        reasons=[],
        partial=trial.partial,
        settings={"clients": trial.load.clients, "loop": trial.loop},
        source=source,
    )


def _operation(times: ForeignTimes) -> LoadOperation:
    return LoadOperation(
        count=times.count,
        response=LoadTimes(
            mean_ns=times.mean_ns,
            std_ns=times.std_ns,
            histogram=_encoded(times.histogram) if times.histogram is not None else "",
            percentiles=dict(times.known_percentiles()),
        ),
    )


def _encoded(histogram: HdrHistogram) -> str:
    found: bytes = histogram.encode()
    return found.decode()


def _begin_ns(trial: ForeignTrial, source: LoadSource) -> int:
    """Return the start of the window. The comparison of runs takes equal ones for copies of one measurement.

    The start of a file without one is derived from its content, so that a copied file has the same.
    """
    if trial.started_unix_s and 0 < trial.started_unix_s < 1e10:
        return round(1e9 * trial.started_unix_s) + (trial.line or 0)
    return int(source.sha256[:16], 16) % _STARTS_NS + (trial.line or 0)
