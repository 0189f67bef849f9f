"""Converts the log of pgbench to the summary of a load (docs/load-summary.md), so that the analysis can read it.

The log has wall-clock times in microseconds; the summary has times of the monotonic clock of this machine.
Clients have no think time, so the response time of a request begins at the end of the client's previous request.
"""

import time
from pathlib import Path

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from waylab import bounded
from waylab.plan import Trial
from waylab.runfolder import paths
from waylab.runfolder.files import write
from waylab.testbed.pgbench import LOG_PREFIX, SCRIPTS
from waylab.testbed.processes import TestbedError

_HIGHEST_NS = 3_600_000_000_000
_DIGITS = 3
# Columns of the log: client, latency in us, number of the script, end in s and us. A failure has no number as latency.
_CLIENT, _LATENCY, _SCRIPT, _END_S, _END_US = 0, 2, 3, 4, 5
# Columns of the arrays in this file.
_CLIENT_OF, _SERVICE_NS, _END_NS, _SCRIPT_OF = range(4)
_PERCENTILES = (50.0, 90.0, 95.0, 99.0)

Rows = NDArray[np.int64]
# A part of the summary as JSON has it.
Table = dict[str, object]


def summarise(trial: Trial, directory: Path, scripts: Path, process: str) -> None:
    """Write the summary of a trial from pgbench's log; TestbedError if the log has no request in the window."""
    rows, failed = _read(scripts)
    if not len(rows):
        raise TestbedError(f"pgbench: logged nothing in {scripts}")
    offset_ns = time.time_ns() - time.monotonic_ns()
    ends = rows[:, _END_NS] - offset_ns
    started_ns = int((ends - rows[:, _SERVICE_NS]).min())
    responses = _responses(rows)
    begins_ns = started_ns + round(1e9 * trial.load.warm_up_s)
    window = begins_ns, begins_ns + round(1e9 * trial.load.test_time_s)
    inside = (ends >= window[0]) & (ends <= window[1])
    if not inside.any():
        raise TestbedError(f"pgbench: ended nothing within the window; its log is in {scripts}")
    everything = _operation(responses[inside], rows[inside, _SERVICE_NS])
    named = np.array([name for _, name, _, _ in SCRIPTS])[rows[:, _SCRIPT_OF]]
    of_messages = {}
    for name in dict.fromkeys(name for _, name, _, _ in SCRIPTS):
        mine = inside & (named == name)
        of_messages[name] = _operation(responses[mine], rows[mine, _SERVICE_NS])
    requests = int(inside.sum())
    cpu_s = _cpu_s(directory / paths.PROCESSES, process, window)
    window_s = (window[1] - window[0]) * 1e-9
    verification = dict.fromkeys(("checked", "wrong", "torn", "stale", "unexpected_reply"), 0)
    content = {
        "format": paths.LOAD_FORMAT,
        "settings": {"loop": "closed", "clients": trial.load.clients, "generator": "pgbench"},
        "started_clock_ns": started_ns,
        "measure_from_clock_ns": window[0],
        "measure_to_clock_ns": window[1],
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
        "operations": {"all": everything, "messages": of_messages},
        "seconds": _seconds(responses, ends, started_ns, window),
        "cpu": {"user_s": cpu_s, "system_s": 0.0, "share": cpu_s / window_s / trial.load.threads},
        "verification": verification,
        "errors": {"pgbench: failed": failed} if failed else {},
        "valid": True,
        "reasons": [],
    }
    write(directory / paths.LOAD, content)


def _read(scripts: Path) -> tuple[Rows, int]:
    """Return client, latency in ns, end in ns of unix time and number of the script of each request; and failures."""
    rows, failed = [], 0
    for path in sorted(scripts.glob(f"{LOG_PREFIX}.*")):
        for line in path.read_text(encoding="ascii").splitlines():
            parts = line.split()
            if not parts[_LATENCY].isdecimal():
                failed += 1
                continue
            end_ns = int(parts[_END_S]) * 1_000_000_000 + int(parts[_END_US]) * 1000
            rows.append((int(parts[_CLIENT]), int(parts[_LATENCY]) * 1000, end_ns, int(parts[_SCRIPT])))
    return np.array(rows, dtype=np.int64).reshape(-1, 4), failed


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


def _cpu_s(path: Path, process: str, window_ns: tuple[int, int]) -> float:
    """Return the CPU seconds of a process within the window, interpolated from its samples."""
    points = [
        (int(row["clock_ns"]), float(row["user_s"]) + float(row["system_s"]))
        for row in bounded.read_csv(path)
        if row["process"] == process
    ]
    if len(points) < 2:
        raise TestbedError(f"pgbench: {path} has no samples of {process}")
    clocks, values = zip(*points, strict=True)
    at_start, at_end = np.interp(window_ns, clocks, values)
    return float(at_end - at_start)
