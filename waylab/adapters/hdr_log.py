"""HdrHistogram logs (`.hlog`): one line for each interval, with a histogram (V2, deflated, base64).

The format is that of HistogramLogWriter (https://github.com/HdrHistogram/HdrHistogram): `Tag=NAME,` may stand first,
then start and length of the interval in seconds, its largest value, and the histogram. The unit of the values is
not in the log. Writers divide the largest value so that it reads in milliseconds, and the quotient shows the unit.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from hdrh.histogram import HdrHistogram

from waylab.adapters.foreign import (
    UNIT_NAMES,
    ForeignFile,
    ForeignTimes,
    ForeignTrial,
    ReadOptions,
    WrongFileError,
    in_nanoseconds,
)
from waylab.analysis.trial import histograms
from waylab.runfolder.load import LoadSecond
from waylab.runfolder.run import LoadSettings

NAME = "HdrHistogram log"
_LATENCY = (
    "an HdrHistogram log does not show whether response times start when a request is sent or when it is due; "
    "see the tool that wrote it"
)
_LINE = re.compile(r"(?:Tag=([^,]*),)?([0-9.]+),([0-9.]+),([0-9.]+),(HIST[A-Za-z0-9+/]+=*)")
_START = re.compile(r"#\[StartTime: ([0-9.]+)")
# Tags that write the operations of the lab. Others may overlap, such as response and service times of one request.
_OPERATIONS = {"get": "get", "read": "get", "set": "set", "write": "set", "put": "set", "update": "set"}
_UNITS = {1e6: 1, 1e3: 1000, 1.0: 1_000_000}
_INTERVALS_MAX = 1_000_000


@dataclass(frozen=True)
class _Interval:
    tag: str
    start_s: float
    length_s: float
    largest_ms: float
    histogram: HdrHistogram


def detect(file: ForeignFile) -> bool:
    """Return whether this is a log of histograms."""
    return (
        file.text.startswith("#[")
        or '"Interval_Compressed_Histogram"' in file.text[:4096]
        or "HIST" in file.text[:256]
    )


def read(file: ForeignFile, options: ReadOptions) -> list[ForeignTrial]:
    """Return the trial of a log: all its intervals together, with each interval of a second as one."""
    intervals = list(_intervals(file.text))
    if options.tag:
        known = sorted({one.tag for one in intervals})
        intervals = [one for one in intervals if one.tag == options.tag]
        if not intervals:
            raise WrongFileError(f"has no tag {options.tag!r}; its tags: {', '.join(known) or 'none'}")
    if not any(one.histogram.get_total_count() for one in intervals):
        raise WrongFileError("has no interval with a value; measure again")
    seen = {(one.tag, one.start_s) for one in intervals}
    if len(seen) < len(intervals):
        raise WrongFileError("has two intervals with the same start; give a file for each run")
    shown = _units_ns(intervals)
    if options.unit_ns and len(shown) == 1 and shown != {options.unit_ns}:
        written, given = UNIT_NAMES[shown.pop()], UNIT_NAMES[options.unit_ns]
        raise WrongFileError(f"shows the unit {written}, and --unit {given} is given; leave --unit out")
    if not options.unit_ns and len(shown) != 1:
        raise WrongFileError("does not show the unit of its values; give --unit ns, us or ms")
    unit_ns = options.unit_ns or shown.pop()
    parts = _by_operation(intervals)
    whole = {name: in_nanoseconds(_sum(many), unit_ns) for name, many in parts.items()}
    everything = histograms.merge(list(whole.values()))
    times = {"all": everything, **(whole if set(whole) <= {"get", "set"} else {})}
    first, last = min(one.start_s for one in intervals), max(one.start_s + one.length_s for one in intervals)
    count, measured_s = int(everything.get_total_count()), last - first
    if not measured_s > 0:
        raise WrongFileError("its intervals have no length; measure again")
    start = _START.search(file.text)
    return [
        ForeignTrial(
            tool=NAME,
            latency=_LATENCY,
            corrected=None,
            throughput_per_s=count / measured_s,
            operations={name: _times(one) for name, one in times.items()},
            load=LoadSettings(clients=0),
            measured_s=measured_s,
            requests=count,
            seconds=list(_seconds(intervals, first, unit_ns)),
            started_unix_s=float(start[1]) if start and start[1].count(".") < 2 else None,
            unknown={"errors": "the log has no errors", "hit_ratio": "the log has no hits"},
        )
    ]


def _intervals(text: str) -> Iterator[_Interval]:
    count = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not line or line.startswith(("#", '"')):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise WrongFileError(
                f"line {number} is no interval of a log: {line[:40]!r}; the file is truncated or of another kind"
            )
        count += 1
        if count > _INTERVALS_MAX:
            raise WrongFileError(f"has more than {_INTERVALS_MAX} intervals")
        tag, start, length, largest, encoded = match.groups()
        try:
            start_s, length_s, largest_ms = float(start), float(length), float(largest)
        except ValueError:
            raise WrongFileError(f"line {number}: has a time that is no number") from None
        histogram = histograms.decode(encoded, f"line {number}")
        yield _Interval(tag or "", start_s, length_s, largest_ms, histogram)


def _units_ns(intervals: list[_Interval]) -> set[int]:
    """Return the possible units of values: the largest of an interval is beside its histogram as well."""
    ratios = [
        one.histogram.get_max_value() / one.largest_ms
        for one in intervals
        if one.largest_ms >= 0.01 and one.histogram.get_total_count()
    ]
    # The written maximum has three decimals.
    return {unit for ratio in ratios for scale, unit in _UNITS.items() if abs(math.log(ratio / scale)) < 0.1}


def _by_operation(intervals: list[_Interval]) -> dict[str, list[_Interval]]:
    tags = sorted({one.tag for one in intervals})
    if len(tags) == 1:
        return {"all": intervals}
    names = {tag: _OPERATIONS.get(tag.lower()) for tag in tags}
    if None in names.values() or len(set(names.values())) < len(tags):
        shown = ", ".join(tag or "(no tag)" for tag in tags)
        raise WrongFileError(
            f"has the tags {shown}, which may count a request twice; choose one with --tag NAME"
        )
    return {str(names[tag]): [one for one in intervals if one.tag == tag] for tag in tags}


def _sum(intervals: list[_Interval]) -> HdrHistogram:
    first, *others = (one.histogram for one in intervals)
    found = HdrHistogram(
        first.lowest_trackable_value, first.highest_trackable_value, first.significant_figures
    )
    for one in (first, *others):
        if one.get_total_count():
            found.add(one)
    return found


def _times(histogram: HdrHistogram) -> ForeignTimes:
    mean_ns, std_ns = histograms.moments(histogram)
    return ForeignTimes(int(histogram.get_total_count()), mean_ns, std_ns, histogram=histogram)


def _seconds(intervals: list[_Interval], first_s: float, unit_ns: int) -> Iterator[LoadSecond]:
    """Yield the seconds of a log whose intervals are about a second long; none for others."""
    if not all(abs(one.length_s - 1) < 0.1 for one in intervals[:-1]):
        return
    rows: dict[int, list[_Interval]] = {}
    for one in intervals:
        rows.setdefault(round(one.start_s - first_s), []).append(one)
    for second in range(max(rows) + 1 if max(rows) <= 2 * len(intervals) + 10 else 0):
        many = rows.get(second, [])
        counts = [int(one.histogram.get_total_count()) for one in many]
        mean_ns = None
        if sum(counts):
            total = sum(
                unit_ns * histograms.mean(one.histogram) * count
                for one, count in zip(many, counts, strict=True)
            )
            mean_ns = total / sum(counts)
        whole = bool(many) and all(one.length_s > 0.9 for one in many)
        yield LoadSecond(second=second, measured=whole, requests=sum(counts), mean_ns=mean_ns)
