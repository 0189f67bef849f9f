"""A trial second by second, for the figure of its course over time."""

from waylab.runfolder.load import LoadSecond
from waylab.runfolder.trial_numbers import Trace, TraceSecond, WithinTrial

# Fewer points make no curve.
SECONDS_MIN = 5


def trace(seconds: list[LoadSecond], within: WithinTrial) -> Trace | None:
    """Throughput, mean response and misses of every whole second, the warm-up included; None for short trials."""
    measured = [second.second for second in seconds if second.measured]
    if len(measured) < SECONDS_MIN:
        return None
    warm_up = within.warm_up
    return Trace(
        measured_from=measured[0],
        settled_from=measured[0] + warm_up.cut_s if warm_up and warm_up.steady else None,
        steady=warm_up.steady if warm_up else None,
        seconds=[trace_second(second) for second in seconds if second.second <= measured[-1]],
    )


def trace_second(second: LoadSecond) -> TraceSecond:
    """Return the numbers of one second; no response time without a reply."""
    read = second.hits + second.misses
    return TraceSecond(
        second=second.second,
        measured=second.measured,
        throughput_per_s=second.requests,
        response_mean_ns=second.mean_ns if second.requests else None,
        response_p99_ns=second.p99_ns if second.requests else None,
        miss_ratio=second.misses / read if read else None,
    )
