"""Checks that the summary of several load generators is the sum of their own summaries, which lie beside it.

Each check returns one line for each number that is not. The load generator merges the summaries
(docs/load-summary.md); the analysis only adds up what the lab reads.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from hdrh.histogram import HdrHistogram
from msgspec import to_builtins

from waylab.analysis.statistics.percentiles import rank
from waylab.analysis.trial import histograms
from waylab.errors import LabError
from waylab.runfolder import paths
from waylab.runfolder.files import read
from waylab.runfolder.load import LoadOperation, LoadSecond, LoadSummary

_SECOND_NS = 1_000_000_000
# Means are added up in floating point, and percentiles are values of a histogram.
_SAME, _BUCKETS = 1e-9, 0.01
# Unix time and the monotonic clock are read one after the other when a load generator starts.
_CLOCKS_NS = 50_000_000

_TOTALS = (
    *("requests", "keys", "hits", "misses", "errors", "sent_bytes", "received_bytes"),
    *("completed", "requests_answered", "unsent"),
)
_COUNTS = ("count", "errors", "hits", "misses", "sent_bytes", "received_bytes")
_VERIFIED = ("checked", "wrong", "torn", "stale", "unexpected_reply", "unjudged")
_OF_SECONDS = ("requests", "errors", "hits", "misses", "sum_ns")


def merged_disagreements(directory: Path, load: LoadSummary, required: bool) -> list[str]:
    """Return one line for each number that is not the sum of its parts; none for a single load generator.

    The summaries of the parts are `required` in folders of versions that write a manifest.
    """
    if not load.parts:
        return []
    files = [directory / paths.part_of_load(index) for index in range(len(load.parts))]
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        return [f"{missing[0]} is missing, which is merged in {paths.LOAD}"] if required else []
    try:
        parts = [read(path, LoadSummary) for path in files]
        return list(_disagreements(load, parts))
    except LabError as error:
        return [str(error)]


def _disagreements(load: LoadSummary, parts: Sequence[LoadSummary]) -> Iterator[str]:
    yield from _sums("totals", load.totals, [part.totals for part in parts], _TOTALS)
    yield from _sums("verification", load.verification, [part.verification for part in parts], _VERIFIED)
    yield from _parts(load, parts)
    yield from _times(load, parts)
    names = {name for part in parts for name in part.operations.by_name()}
    if names != set(load.operations.by_name()):
        yield f"its operations are {', '.join(sorted(load.operations.by_name()))}, but its parts have others"
        return
    for name, merged in load.operations.by_name().items():
        found = [part.operations.by_name()[name] for part in parts if name in part.operations.by_name()]
        yield from _sums(f"operation {name}", merged, found, _COUNTS)
        yield from _operation(name, merged, found)
    yield from _seconds(load, parts)


def _sums(where: str, merged: object, parts: Sequence[object], names: Sequence[str]) -> Iterator[str]:
    for name in names:
        values = [getattr(part, name) for part in parts]
        known = [value for value in values if value is not None]
        wanted, found = sum(known) if known else None, getattr(merged, name)
        # Only open loops have requests that were not sent.
        if found != wanted or (known and len(known) < len(values) and name != "unsent"):
            yield f"{where}: {name} is {found}, and {wanted} in all summaries of the load generators"


def _parts(load: LoadSummary, parts: Sequence[LoadSummary]) -> Iterator[str]:
    """Compare what the merged summary repeats of each part with that part."""
    for index, (shown, part) in enumerate(zip(load.parts, parts, strict=True)):
        sides = (to_builtins([one.measured_s, one.cpu, one.settings]) for one in (shown, part))
        if not _rounded_alike(*sides):
            yield f"its part {index + 1} is not {paths.part_of_load(index)}"
    errors: dict[str, int] = {}
    for part in parts:
        for line, count in part.errors.items():
            errors[line] = errors.get(line, 0) + count
    # Beyond a number of different lines, the load generator counts the others together.
    if sum(errors.values()) != sum(load.errors.values()):
        yield f"{sum(load.errors.values())} error replies, and {sum(errors.values())} in all parts"
    for name, found, wanted in (
        ("valid", load.valid, all(part.valid for part in parts)),
        ("partial", load.partial, any(part.partial for part in parts)),
    ):
        if found != wanted:
            yield f"{name} is {found}, and {wanted} by its parts"


def _rounded_alike(one: object, other: object) -> bool:
    """Compare two contents of JSON; the load generator reads a number and writes it again with an error of rounding."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            _rounded_alike(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_rounded_alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_SAME)
    return one == other


def _times(load: LoadSummary, parts: Sequence[LoadSummary]) -> Iterator[str]:
    """Check that the window begins with the first part and ends with the last one."""
    wanted = (min(part.window_ns[0] for part in parts), max(part.window_ns[1] for part in parts))
    if any(abs(found - clock) > _CLOCKS_NS for found, clock in zip(load.window_ns, wanted, strict=True)):
        yield "the window is not that of all its parts"
    # The first part gives both clocks; older load generators wrote no start.
    starts = [(part.started_unix_ns, part.started_clock_ns) for part in parts]
    if (load.started_unix_ns, load.started_clock_ns) not in starts:
        yield "its start time is not that of any part"
    elif None not in starts[0] and load.started_unix_ns != min(unix_ns or 0 for unix_ns, _ in starts):
        yield "it did not start with its first part"


def _operation(name: str, merged: LoadOperation, parts: Sequence[LoadOperation]) -> Iterator[str]:
    unanswered = sum(part.response.unanswered for part in parts)
    if merged.response.unanswered != unanswered:
        yield f"{merged.response.unanswered} requests of {name} have no answer, and {unanswered} of all parts"
    if not _equal(
        _decoded([merged.response.histogram]), _decoded([part.response.histogram for part in parts])
    ):
        yield f"the histogram of {name} is not the sum of its parts"


def _seconds(load: LoadSummary, parts: Sequence[LoadSummary]) -> Iterator[str]:
    """Add up the seconds by their time, as `waystage load merge` does, and compare each."""
    wanted = _by_time(parts, lambda part: _shift(parts, part))
    if [second.second for second in load.seconds] != sorted(wanted):
        yield f"its {len(load.seconds)} seconds are not those of its parts"
        return
    for second in load.seconds:
        for problem in _second(second, wanted[second.second], len(parts)):
            yield f"second {second.second}: {problem}"
            return


def _by_time(
    parts: Sequence[LoadSummary], shift: Callable[[LoadSummary], int]
) -> dict[int, list[LoadSecond]]:
    found: dict[int, list[LoadSecond]] = {}
    for part in parts:
        for second in part.seconds:
            found.setdefault(second.second + shift(part), []).append(second)
    return found


def _shift(parts: Sequence[LoadSummary], part: LoadSummary) -> int:
    """Return the number of the merged second that contains most of the part's first second."""
    starts = [_started_ns(one) for one in parts]
    return (_started_ns(part) - min(starts) + _SECOND_NS // 2) // _SECOND_NS


def _started_ns(part: LoadSummary) -> int:
    return part.started_unix_ns or part.started_clock_ns or 0


def _second(merged: LoadSecond, parts: Sequence[LoadSecond], generators: int) -> Iterator[str]:
    """Return how a second differs from the sum of the parts' seconds."""
    yield from _sums("its parts", merged, parts, _OF_SECONDS)
    measured = len(parts) == generators and all(part.measured for part in parts)
    if merged.measured != measured:
        yield f"measured is {merged.measured}, and {measured} by its parts"
    requests = sum(part.requests for part in parts)
    if merged.sum_ns is not None:
        mean_ns = sum(part.sum_ns or 0 for part in parts) / requests if requests else 0.0
        if not _same(merged.mean_ns, mean_ns, _SAME):
            yield f"its mean is {merged.mean_ns} ns, and {mean_ns} ns in its parts"
    yield from _histograms(merged, parts)


def _histograms(merged: LoadSecond, parts: Sequence[LoadSecond]) -> Iterator[str]:
    """Compare the histograms of a second with the sums of its parts, and its 99th percentile with all of them."""
    names = {name for part in parts for name, text in part.histograms.items() if text}
    if names != {name for name, text in merged.histograms.items() if text}:
        yield "it does not have the histograms of its parts"
        return
    sums = {name: _decoded([part.histograms.get(name, "") for part in parts]) for name in names}
    for name, histogram in sums.items():
        if not _equal(_decoded([merged.histograms[name]]), histogram):
            yield f"the histogram of {name} is not the sum of its parts"
    everything = histograms.merge(list(sums.values()))
    answered, failed = everything.get_total_count(), sum(part.errors or 0 for part in parts)
    if answered:
        (value_ns,) = histograms.values_at(everything, [99.0], failed)
        p99_ns = value_ns if rank(99.0, answered + failed) <= answered else None
        if not _same(merged.p99_ns, p99_ns, _BUCKETS):
            yield f"its p99 is {merged.p99_ns} ns, and {p99_ns} ns in its parts"


def _same(found: float | None, wanted: float | None, tolerance: float) -> bool:
    if found is None or wanted is None:
        return found is wanted
    return bool(np.isclose(found, wanted, rtol=tolerance))


def _decoded(texts: Sequence[str]) -> HdrHistogram:
    return histograms.merge([histograms.decode(text, "a load generator") for text in texts if text])


def _equal(one: HdrHistogram, other: HdrHistogram) -> bool:
    """Compare the counts of two histograms, which have the same buckets after merging."""
    counts, _ = histograms.matrix([[one], [other]], "a load generator")
    return bool(np.array_equal(counts[0], counts[1]))
