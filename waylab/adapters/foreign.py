"""One trial as another tool reports it, before it becomes a summary of the lab."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hdrh.histogram import HdrHistogram

from waylab.errors import LabError
from waylab.runfolder.load import LoadSecond
from waylab.runfolder.run import LoadSettings, Settings

# A percentile with fewer requests above it is left out, as everywhere in the lab.
_ABOVE_MIN = 10
# The units of an HdrHistogram log, in nanoseconds.
UNIT_NAMES = {1: "ns", 1000: "us", 1_000_000: "ms"}
HIGHEST_NS = 3_600_000_000_000
# Two numbers of one file that should be equal may differ by this share.
CONTRADICTION = 0.05


class WrongFileError(LabError):
    """A file that cannot be read; the message lacks its name, which `located` adds."""


@dataclass(frozen=True)
class ForeignTimes:
    """The response times of one operation, in nanoseconds. `count` is 0 if the tool does not report it."""

    count: int
    mean_ns: float | None
    std_ns: float | None = None
    percentiles_ns: Mapping[str, float] = field(default_factory=dict)
    histogram: HdrHistogram | None = None

    def known_percentiles(self) -> dict[str, float]:
        """Return the percentiles with at least ten requests above them; all but 0 and 100 if the count is unknown."""
        needed_share = _ABOVE_MIN * (1 - 1e-9) / self.count if self.count else 0.0
        shares = {name: min(float(name), 100 - float(name)) / 100 for name in self.percentiles_ns}
        return {
            name: value
            for name, value in self.percentiles_ns.items()
            if shares[name] > 0 and shares[name] >= needed_share
        }


@dataclass(frozen=True)
class ForeignTrial:
    """One trial of another tool. Counts and times that the tool does not report are 0 or empty."""

    tool: str
    # What its response times are, in one sentence, and whether they start when a request is due.
    latency: str
    corrected: bool | None
    throughput_per_s: float
    operations: Mapping[str, ForeignTimes]
    load: LoadSettings
    # "open", "closed", or "" if the file does not show it.
    loop: str = ""
    view: str = "client"
    measured_s: float = 0.0
    requests: int = 0
    errors: int = 0
    hits: int = 0
    misses: int = 0
    seconds: Sequence[LoadSecond] = ()
    started_unix_s: float | None = None
    partial: bool = False
    # Why the trial has no usable numbers; "" for a measured one.
    failed: str = ""
    # Why gates cannot be judged, by their names.
    unknown: Mapping[str, str] = field(default_factory=dict)
    # Levels of factors, the block and the line, if the file has them; and the row of a table as it is.
    levels: Mapping[str, str] = field(default_factory=dict)
    block: int | None = None
    line: int | None = None
    row: Mapping[str, str] = field(default_factory=dict)
    # Number of programs by role, and settings of the system that differ from the defaults.
    programs: Mapping[str, int] = field(default_factory=lambda: {"backends": 1})
    system: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class ForeignFile:
    """The content of a file that is to be imported."""

    path: Path
    text: str
    # The same as parsed JSON; None if it is none.
    json: Any = None


@dataclass(frozen=True)
class ReadOptions:
    """What a user states about files of which some do not show everything."""

    # The unit of the values of an HdrHistogram log, in nanoseconds; 0 if the log shows it.
    unit_ns: int = 0
    # The tag of an HdrHistogram log that counts; "" for all.
    tag: str = ""


def number(table: Any, *keys: str, where: str = "") -> float | None:
    """Return the number at a path of keys; None if a key is missing or its value is null.

    Raises:
        WrongFileError: for a value that is no finite number.
    """
    value = table
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    if value is None:
        return None
    name = ".".join((*([where] if where else []), *keys))
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e18:
        raise WrongFileError(f"{name} is {str(value)[:40]!r}, and should be a number")
    return float(value)


def needed(table: Any, *keys: str, where: str = "") -> float:
    """Return the number at a path of keys that must be there and not be negative.

    Raises:
        WrongFileError: when it is missing or negative.
    """
    found = number(table, *keys, where=where)
    name = ".".join((*([where] if where else []), *keys))
    if found is None:
        raise WrongFileError(f"has no {name}")
    if found < 0:
        raise WrongFileError(f"{name} is {found:g}, and cannot be negative")
    return found


def same(first: float, second: float, words: str, share: float = CONTRADICTION) -> None:
    """Raise WrongFileError with these words unless two numbers of a file agree up to this share."""
    if abs(first - second) > share * max(abs(first), abs(second)):
        raise WrongFileError(f"contradicts itself: {words}")


def check_trial(trial: ForeignTrial) -> None:
    """Raise WrongFileError for numbers that no measurement has: negative ones, and percentiles that fall."""
    where = f"line {trial.line}: " if trial.line else ""
    counts = (trial.errors, trial.requests, trial.load.clients, *(one.requests for one in trial.seconds))
    if min(counts) < 0:
        raise WrongFileError(f"{where}has the count {min(counts)}, and no count is negative")
    for times in trial.operations.values():
        known = times.known_percentiles()
        beyond = next((name for name in times.percentiles_ns if float(name) > 100), None)
        if beyond:
            raise WrongFileError(
                f"{where}has a percentile {beyond}; none is above 100, and p99.9 is p99_9 in a table"
            )
        ranked = [known[name] for name in sorted(known, key=float)]
        if ranked != sorted(ranked) or min(ranked, default=0.0) < 0:
            raise WrongFileError(f"{where}contradicts itself: its percentiles fall")


def in_nanoseconds(histogram: HdrHistogram, unit_ns: int) -> HdrHistogram:
    """Return a histogram of the lab, which has values in nanoseconds, with the counts of another one.

    Each value moves to the middle of its bucket, which changes it by at most 0.05 % with three digits.
    """
    found = HdrHistogram(1, HIGHEST_NS, 3)
    for step in histogram.get_recorded_iterator():
        lowest = histogram.get_lowest_equivalent_value(step.value_iterated_to)
        value = (lowest + histogram.get_highest_equivalent_value(lowest)) * unit_ns / 2
        if not found.record_value(min(max(1, int(value)), HIGHEST_NS), step.count_added_in_this_iter_step):
            raise WrongFileError("has a response time above an hour, so its unit is another one")
    return found
