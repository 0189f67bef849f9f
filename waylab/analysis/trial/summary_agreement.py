"""Checks that the numbers within one load summary agree with each other, one line for each that does not.

Optional numbers are checked where they are: other load generators and older versions leave some out.
"""

from collections.abc import Iterator

import numpy as np
from hdrh.histogram import HdrHistogram

from waylab.analysis.statistics.percentiles import rank
from waylab.analysis.trial import histograms
from waylab.errors import LabError
from waylab.runfolder.load import LoadCpu, LoadSecond, LoadSummary
from waylab.runfolder.run import PlannedTrial

# Relative tolerances: of CPU time that is rounded to clock ticks, and of values that a histogram rounds.
_ROUNDED, _BUCKETS = 0.01, 0.01
# With at least this number of requests in a second, every load generator writes their 99th percentile.
_P99_REQUESTS = 1000
_SECOND_NS = 1_000_000_000
_COUNTED = ("hits", "misses", "sent_bytes", "received_bytes")


def summary_disagreements(
    plan: PlannedTrial, load: LoadSummary, decoded: dict[str, HdrHistogram]
) -> list[str]:
    """Return one line for each contradiction within the summary."""
    return [
        *_operations(load),
        *_deviations(load, decoded),
        *_window(load),
        *_seconds(plan, load),
        *_histograms(plan, load),
        *_cpu(plan, load),
        *_verification(plan, load),
    ]


def _operations(load: LoadSummary) -> Iterator[str]:
    """Compare counts of the totals with those of all operations, and these with the sum of the single ones."""
    operations = load.operations.by_name()
    everything = operations["all"]
    # A `d15` is the sum of five requests, each of which is an operation itself.
    parts = [one for name, one in operations.items() if name not in ("all", "d15")]
    for name in _COUNTED:
        counted, total = getattr(everything, name), getattr(load.totals, name)
        if counted is not None and counted != total:
            yield f"{name} of all operations are {counted}, and {total} in the totals"
        of_parts = [getattr(one, name) for one in parts]
        if counted is not None and None not in of_parts and of_parts and sum(of_parts) != counted:
            yield f"{name} of single operations are {sum(of_parts)}, and {counted} of all"
    failed = sum(one.errors for one in parts)
    if parts and failed != everything.errors:
        yield f"{failed} errors of single operations, {everything.errors} of all"
    unsent = load.totals.unsent or 0
    for name, one in operations.items():
        answered, wanted = one.count, one.errors + (unsent if name == "all" else 0)
        if one.response.unanswered != wanted:
            yield f"{one.response.unanswered} requests of {name} have no answer, but {wanted} failed or were not sent"
        if answered and not one.response.histogram:
            yield f"{name} has {answered} answered requests and no histogram"


def _deviations(load: LoadSummary, decoded: dict[str, HdrHistogram]) -> Iterator[str]:
    for name, histogram in decoded.items():
        response, count = load.operations.by_name()[name].response, histogram.get_total_count()
        if not count or response.std_ns is None:
            continue
        mean_ns, found_ns = histograms.moments(histogram)
        # The load generator divides by n - 1, pgbench's summary by n.
        sample_ns = found_ns * np.sqrt(count / max(1, count - 1))
        slack_ns = _BUCKETS * (sample_ns + mean_ns)
        if not found_ns - slack_ns <= response.std_ns <= sample_ns + slack_ns:
            beside = f"{response.std_ns:.0f} ns beside it"
            yield f"the deviation of {name} is {found_ns:.0f} ns in its histogram and {beside}"


def _window(load: LoadSummary) -> Iterator[str]:
    """Check that exactly the whole seconds of the window are measured; merged runs round their seconds."""
    if load.started_clock_ns is None or load.parts:
        return
    numbers = [second.second for second in load.seconds]
    if numbers != list(range(len(numbers))):
        yield "the seconds are not numbered from 0"
        return
    begin_ns, end_ns = (clock_ns - load.started_clock_ns for clock_ns in load.window_ns)
    whole = set(range(max(0, -(-begin_ns // _SECOND_NS)), max(0, end_ns // _SECOND_NS)))
    measured = {second.second for second in load.seconds if second.measured}
    # The last seconds are missing if nothing ended in them.
    if measured != whole & set(numbers):
        yield f"{len(measured)} seconds are measured, but {len(whole)} whole seconds lie in the window"


def _seconds(plan: PlannedTrial, load: LoadSummary) -> Iterator[str]:
    keys = plan.load.multi_key_get
    for second in load.seconds:
        if load.operations.messages:
            break
        if second.hits + second.misses > keys * second.requests:
            yield f"second {second.second}: {second.hits + second.misses} keys in {second.requests} requests"
            return
    answered = load.totals.requests_answered
    # An error reply is an answer, a time-out is not.
    ended = sum(second.requests for second in load.seconds)
    failed = sum(second.errors or 0 for second in load.seconds)
    known = load.started_clock_ns is not None and load.seconds and answered is not None
    if known and not ended <= (answered or 0) <= ended + failed:
        yield f"{ended} requests and {failed} errors in all seconds, {answered} answered in the totals"


def _histograms(plan: PlannedTrial, load: LoadSummary) -> Iterator[str]:
    """Compare the histograms of each second with its counts and its 99th percentile."""
    if not any(second.histograms for second in load.seconds):
        return
    for second in load.seconds:
        try:
            problem = _second(second, plan.load.multi_key_get, bool(load.operations.messages))
        except LabError as error:
            problem = str(error)
        if problem:
            yield f"second {second.second}: {problem}"
            return


def _second(second: LoadSecond, keys: int, of_messages: bool) -> str | None:
    failed = second.errors or 0
    where = f"second {second.second}"
    found = {name: histograms.decode(text, where) for name, text in second.histograms.items() if text}
    counts = {name: histogram.get_total_count() for name, histogram in found.items()}
    if sum(counts.values()) != second.requests:
        return f"{sum(counts.values())} of {second.requests} requests in its histograms"
    if not of_messages and second.hits + second.misses > keys * counts.get("get", 0):
        return f"{second.hits + second.misses} keys, but {counts.get('get', 0)} gets in its histograms"
    everything = histograms.merge(list(found.values()))
    if not everything.get_total_count():
        return None
    mean_ns = histograms.mean(everything)
    if second.mean_ns is not None and not np.isclose(mean_ns, second.mean_ns, rtol=_BUCKETS):
        return f"its mean is {mean_ns:.0f} ns in its histograms and {second.mean_ns:.0f} ns beside them"
    return _p99(second, everything, failed)


def _p99(second: LoadSecond, everything: HdrHistogram, failed: int) -> str | None:
    (p99_ns,) = histograms.values_at(everything, [99.0], failed)
    # pgbench's summary leaves it out with fewer requests.
    if second.p99_ns is None and second.requests >= _P99_REQUESTS and _answered(99.0, everything, failed):
        return f"its p99 is {p99_ns} ns in its histograms and missing beside them"
    if second.p99_ns is not None and not np.isclose(p99_ns, second.p99_ns, rtol=_BUCKETS):
        return f"its p99 is {p99_ns} ns in its histograms and {second.p99_ns:.0f} ns beside them"
    return None


def _answered(percent: float, histogram: HdrHistogram, failed: int) -> bool:
    """Return whether the request at the rank of a percentile was answered."""
    answered = histogram.get_total_count()
    return bool(rank(percent, answered + failed) <= answered)


def _cpu(plan: PlannedTrial, load: LoadSummary) -> Iterator[str]:
    """Compare the share of CPU time with the CPU time, of one load generator or of each of several."""
    threads = plan.load.threads
    if load.cpu is None:
        return
    if not load.parts:
        yield from _share(load.cpu, threads * load.measured_s)
        return
    times_s = [part.measured_s for part in load.parts]
    for part, time_s in zip(load.parts, times_s, strict=True):
        yield from _share(part.cpu, threads * (time_s or 0.0))
    yield from _share(load.cpu, threads * sum(time_s or 0.0 for time_s in times_s))
    for name in ("user_s", "system_s"):
        total, found = sum(getattr(part.cpu, name) for part in load.parts), getattr(load.cpu, name)
        if abs(total - found) > _ROUNDED * (1 + total):
            yield f"cpu.{name} is {found:g}, and {total:g} of all load generators"


def _share(cpu: LoadCpu, capacity_s: float) -> Iterator[str]:
    if not capacity_s or cpu.polled_s is None:
        return
    used_s = cpu.user_s + cpu.system_s - cpu.polled_s
    share = max(0.0, used_s / capacity_s)
    if abs(share - cpu.share) > _ROUNDED * share + 1e-6:
        yield f"the load's share of CPU time is {cpu.share:.3f}, but {used_s:g} s of {capacity_s:g} s were used"


def _verification(plan: PlannedTrial, load: LoadSummary) -> Iterator[str]:
    found = load.verification
    if load.valid and load.reasons:
        yield f"the run is called valid, but there is a reason why it is not: {load.reasons[0]}"
    if found.unjudged > found.checked:
        yield f"{found.unjudged} values not judged of {found.checked} checked"
    # The values of a reply that ended with an error were checked, too.
    read = sum(second.hits + plan.load.multi_key_get * (second.errors or 0) for second in load.seconds)
    if load.started_clock_ns is not None and not load.operations.messages and found.checked > read:
        yield f"{found.checked} values were checked, but {read} were read"
