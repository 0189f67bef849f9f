"""Follows the files in which load generators write each second (`--seconds-file`), and adds up several generators."""

import contextlib
import json
import math
from pathlib import Path
from typing import TypedDict

from waylab.runfolder import paths

# One reading of a file. A line has a few kilobytes, so a file is never behind for long.
_READ_BYTES_MAX = 1 << 20
# Seconds of one generator that wait for those of another.
_WAITING_MAX = 600


class Second(TypedDict):
    """One second of the load. Times are response times in nanoseconds; a percentile is None if its request failed."""

    second: int
    requests: int
    errors: int
    mean_ns: float
    p50_ns: float | None
    p99_ns: float | None


class _Followed:
    """One file, how much of it was read, and its seconds that were not passed on yet, by number."""

    def __init__(self, path: Path, began_ns: int) -> None:
        self._path = path
        self._began_ns = began_ns
        self._offset = 0
        self.lines: dict[int, dict[str, object]] = {}

    def read(self) -> None:
        """Read the lines that are complete."""
        try:
            # The file of an earlier measurement of the same trial stays until the lab empties the folder.
            if self._path.stat().st_mtime_ns < self._began_ns:
                return
            with self._path.open("rb") as file:
                file.seek(self._offset)
                content = file.read(_READ_BYTES_MAX)
        except OSError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                found = json.loads(line)
                self.lines[int(found["second"])] = found
        while len(self.lines) > _WAITING_MAX:
            del self.lines[min(self.lines)]


class TrialSeconds:
    """The seconds of one trial, as its load generators write them."""

    def __init__(self, trial_directory: Path, generators: int, began_ns: int) -> None:
        names = [paths.LOAD] if generators == 1 else [paths.part_of_load(n) for n in range(generators)]
        self._files = [_Followed(trial_directory / paths.seconds_of(name), began_ns) for name in names]

    def poll(self) -> list[Second]:
        """Return the seconds that every generator has passed since the last call."""
        for file in self._files:
            file.read()
        common = set(self._files[0].lines).intersection(*(file.lines for file in self._files[1:]))
        found = []
        for number in sorted(common):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                found.append(_second([file.lines.pop(number) for file in self._files]))
        return found


def _second(parts: list[dict[str, object]]) -> Second:
    if len(parts) == 1:
        one = parts[0]
        return Second(
            second=_count(one["second"]),
            requests=_count(one["requests"]),
            errors=_count(one["errors"]),
            mean_ns=_number(one["mean_ns"]) or 0.0,
            p50_ns=_number(one["p50_ns"]),
            p99_ns=_number(one["p99_ns"]),
        )
    requests, errors = (sum(_count(part[key]) for part in parts) for key in ("requests", "errors"))
    p50_ns, p99_ns = _percentiles(parts, requests + errors, (50.0, 99.0))
    return Second(
        second=_count(parts[0]["second"]),
        requests=requests,
        errors=errors,
        mean_ns=sum(_count(part["sum_ns"]) for part in parts) / requests if requests else 0.0,
        p50_ns=p50_ns,
        p99_ns=p99_ns,
    )


def _percentiles(
    parts: list[dict[str, object]], count: int, percents: tuple[float, ...]
) -> list[float | None]:
    """Return percentiles of all generators, as the load generator defines them: failed requests are the slowest."""
    # Only several generators need the package, and a page that starts late shows nothing of a short trial.
    from hdrh.histogram import HdrHistogram  # noqa: PLC0415

    merged = HdrHistogram(1, 3_600_000_000_000, 3)
    for part in parts:
        histograms = part["histograms"]
        for text in histograms.values() if isinstance(histograms, dict) else ():
            if text:
                merged.add(HdrHistogram.decode(text))
    answered, largest_ns = merged.get_total_count(), max(_count(part["max_ns"]) for part in parts)
    found: list[float | None] = []
    for percent in percents:
        rank = max(1, math.ceil(percent / 100 * count))
        value = merged.get_value_at_percentile(100 * rank / answered) if 0 < rank <= answered else None
        found.append(None if value is None else float(min(value, largest_ns)))
    return found


def _count(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} is no count")


def _number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    raise TypeError(f"{value!r} is no number")
