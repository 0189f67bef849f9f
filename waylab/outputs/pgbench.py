"""Reads the log of pgbench, one line for each transaction (`pgbench --log`), as the summary of a load.

The log has wall-clock times in microseconds; a summary has times of the monotonic clock of this machine.
Clients have no think time, so the response time of a request begins at the end of the client's previous request.
Source: PostgreSQL's manual, pgbench, "Per-Transaction Logging".
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram
from msgspec import convert
from numpy.typing import NDArray

from waylab.errors import LabError
from waylab.runfolder import paths
from waylab.runfolder.load import LoadSummary

# A log of more than this is another file, or of a run that no memory holds.
LOG_BYTES_MAX = 2 << 30
# Of one damaged line, a time could be any number of digits. No run lasts for eleven days, which is 10^6 seconds.
_DIGITS_MAX, _SECONDS_MAX = 15, 1_000_000
_UNIX_S_MAX = 4_102_444_800
_HIGHEST_NS = 3_600_000_000_000
_DIGITS = 3
# Columns of the log: client, latency in us, number of the script, end in s and us. A failure has no number as latency.
_CLIENT, _LATENCY, _SCRIPT, _END_S, _END_US = 0, 2, 3, 4, 5
_COLUMNS = 6
# Columns of the arrays in this file.
_CLIENT_OF, _SERVICE_NS, _END_NS, _SCRIPT_OF = range(4)
_PERCENTILES = (50.0, 90.0, 95.0, 99.0)

Rows = NDArray[np.int64]
# A part of the summary as JSON has it.
Table = dict[str, Any]


@dataclass(frozen=True)
class Window:
    """The part of a log that counts, in seconds after the first request began; None is up to its end."""

    warm_up_s: float = 0.0
    test_time_s: float | None = None


def read(path: Path, window: Window = Window(), offset_ns: int | None = None) -> LoadSummary:
    """Read a log, with those of further threads, or all logs with this prefix; CPU times are 0, because a log has none.

    `offset_ns` is Unix time minus CLOCK_MONOTONIC of the machine that wrote the log; None: of this machine now.

    Raises:
        LabError: in one line, for a file that is no log of pgbench or has no request in the window.
    """
    return convert(content(path, window, offset_ns), LoadSummary)


def content(
    path: Path, window: Window, offset_ns: int | None = None, operations: Sequence[str] = ()
) -> Table:
    """Return the summary as docs/load-summary.md has it; `operations` are the names of the scripts in order."""
    rows, failed = _rows(path)
    if not len(rows):
        raise LabError(f"pgbench: logged nothing in {path}")
    if offset_ns is None:
        offset_ns = time.time_ns() - time.monotonic_ns()
    ends = rows[:, _END_NS] - offset_ns
    started_ns = int((ends - rows[:, _SERVICE_NS]).min())
    length_s = (int(ends.max()) - started_ns) // 1_000_000_000
    if length_s > _SECONDS_MAX:
        raise LabError(
            f"{path}: its requests lie {length_s} s apart, so one of its times is wrong; measure again"
        )
    responses = _responses(rows)
    from_ns = started_ns + round(1e9 * window.warm_up_s)
    to_ns = int(ends.max()) if window.test_time_s is None else from_ns + round(1e9 * window.test_time_s)
    inside = (ends >= from_ns) & (ends <= to_ns)
    if not inside.any():
        raise LabError(f"pgbench: ended nothing within the window; its log is in {path}")
    of_scripts = {}
    named = np.array(operations)[rows[:, _SCRIPT_OF]] if operations else np.empty(0)
    for name in dict.fromkeys(operations):
        mine = inside & (named == name)
        of_scripts[name] = _operation(responses[mine], rows[mine, _SERVICE_NS])
    requests, window_s = int(inside.sum()), (to_ns - from_ns) * 1e-9
    return {
        "format": paths.LOAD_FORMAT,
        "settings": {"loop": "closed", "clients": int(rows[:, _CLIENT_OF].max()) + 1, "generator": "pgbench"},
        "started_clock_ns": started_ns,
        "measure_from_clock_ns": from_ns,
        "measure_to_clock_ns": to_ns,
        "measured_s": window_s,
        "totals": {
            "requests": requests,
            "completed": requests,
            "hits": 0,
            "misses": 0,
            "errors": failed,
            "requests_answered": len(rows),
        },
        "throughput_per_s": requests / window_s,
        "operations": {
            "all": _operation(responses[inside], rows[inside, _SERVICE_NS]),
            "messages": of_scripts,
        },
        "seconds": _seconds(responses, ends, started_ns, (from_ns, to_ns)),
        "cpu": {"user_s": 0.0, "system_s": 0.0, "share": 0.0},
        "verification": dict.fromkeys(("checked", "wrong", "torn", "stale", "unexpected_reply"), 0),
        "errors": {"pgbench: failed": failed} if failed else {},
        "valid": True,
        "reasons": [],
    }


def _rows(path: Path) -> tuple[Rows, int]:
    """Return client, latency in ns, end in ns of unix time and number of the script of each request; and failures."""
    # Every thread of pgbench writes a log of its own: PREFIX.PID, PREFIX.PID.1 and so on.
    files = [path] if path.is_file() else []
    files += sorted(path.parent.glob(f"{escape(path.name)}.*"))
    if not files:
        raise LabError(f"{path}: there is no log of pgbench of that name; pgbench writes it with --log")
    if sum(file.stat().st_size for file in files) > LOG_BYTES_MAX:
        raise LabError(
            f"{path}: the log has more than {LOG_BYTES_MAX >> 20} MiB; log a part with --sampling-rate"
        )
    rows, failed = [], 0
    for file in files:
        with file.open(encoding="ascii", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                parts = line.split()
                if len(parts) < _COLUMNS or not all(
                    part.isdecimal() and len(part) <= _DIGITS_MAX for part in _checked(parts)
                ):
                    raise LabError(f"{file}:{number}: is no line of a log of pgbench: {line.strip()[:80]!r}")
                if not parts[_LATENCY].isdecimal():
                    failed += 1
                    continue
                if int(parts[_END_S]) >= _UNIX_S_MAX:
                    raise LabError(f"{file}:{number}: ends after the year 2100: {line.strip()[:80]!r}")
                end_ns = int(parts[_END_S]) * 1_000_000_000 + int(parts[_END_US]) * 1000
                rows.append((int(parts[_CLIENT]), int(parts[_LATENCY]) * 1000, end_ns, int(parts[_SCRIPT])))
    return np.array(rows, dtype=np.int64).reshape(-1, 4), failed


def _checked(parts: list[str]) -> list[str]:
    """Return the columns that are numbers in every line; a failure has a word as latency."""
    latency = (
        [] if parts[_LATENCY] in ("failed", "skipped", "serialization", "deadlock") else [parts[_LATENCY]]
    )
    return [parts[_CLIENT], *latency, *parts[_SCRIPT : _END_US + 1]]


def _responses(rows: Rows) -> Rows:
    """Return the time since the same client's request before; of its first, the latency."""
    order = np.lexsort((rows[:, _END_NS], rows[:, _CLIENT_OF]))
    ends, clients = rows[order, _END_NS], rows[order, _CLIENT_OF]
    found = rows[order, _SERVICE_NS].copy()
    again = np.flatnonzero(clients[1:] == clients[:-1]) + 1
    found[again] = np.maximum(found[again], ends[again] - ends[again - 1])
    responses: Rows = np.empty_like(found)
    responses[order] = found
    return responses


def _operation(responses_ns: Rows, services_ns: Rows) -> Table:
    """Return count and times; slip is the difference between response and service, the delay of pgbench itself."""
    counts = {"count": len(responses_ns), "hits": 0, "misses": 0, "errors": 0}
    times = {"response": responses_ns, "service": services_ns, "slip": responses_ns - services_ns}
    return counts | {name: _times(values) for name, values in times.items()}


def _times(values_ns: Rows) -> Table:
    some = len(values_ns) > 0
    shown = [percent for percent in _PERCENTILES if len(values_ns) * (1 - percent / 100) >= 10]
    return {
        "mean_ns": float(values_ns.mean()) if some else None,
        "std_ns": float(values_ns.std()) if some else None,
        "min_ns": int(values_ns.min()) if some else None,
        "max_ns": int(values_ns.max()) if some else None,
        "percentiles": {f"{percent:g}": _percentile(values_ns, percent) for percent in shown},
        "histogram": _histogram(values_ns),
    }


def _percentile(values_ns: Rows, percent: float) -> float:
    """Return the value of the nearest rank, as the load generator does (docs/load-summary.md)."""
    return float(np.percentile(values_ns, percent, method="inverted_cdf"))


def _histogram(values_ns: Rows) -> str:
    if not len(values_ns):
        return ""
    histogram = HdrHistogram(1, _HIGHEST_NS, _DIGITS)
    for value, count in zip(*np.unique(values_ns, return_counts=True), strict=True):
        histogram.record_value(int(max(1, value)), int(count))
    return str(histogram.encode().decode())


def _seconds(values_ns: Rows, ends_ns: Rows, started_ns: int, window_ns: tuple[int, int]) -> list[Table]:
    """Return one object for each second of the run, by the end of the requests."""
    number = (ends_ns - started_ns) // 1_000_000_000
    found: list[Table] = []
    for second in range(int(number.max()) + 1):
        mine = values_ns[number == second]
        begins_ns = started_ns + second * 1_000_000_000
        measured = begins_ns >= window_ns[0] and begins_ns + 1_000_000_000 <= window_ns[1]
        found.append(
            {
                "second": second,
                "measured": bool(measured),
                "requests": len(mine),
                "errors": 0,
                "sum_ns": int(mine.sum()),
                "mean_ns": float(mine.mean()) if len(mine) else None,
                "p99_ns": _percentile(mine, 99) if len(mine) >= 1000 else None,
                "histograms": {"all": _histogram(mine)},
            }
        )
    return found
