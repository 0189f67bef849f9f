"""Reads the stage times of a trial's proxies or message services from their metrics, once a second.

Keeps only sums and counts: their increase is the mean time of each stage. docs/metrics.md describes the metric.
"""

import http.client
import math
import re
from collections.abc import Mapping
from typing import TypedDict
from urllib.parse import urlsplit

from waylab.runfolder.trial_numbers import STAGES, TOTAL

_ANSWERED_WITHIN_S = 1.0
_PAGE_BYTES_MAX = 4 << 20
_SAMPLE = re.compile(r"waystage_stage_seconds_(sum|count)\{([^}]*)\} (\S+)")
_STAGE = re.compile(r'\bstage="(\w+)"')


class StageTime(TypedDict):
    """The mean time of the requests in one stage, in nanoseconds; None if no request finished."""

    stage: str
    last_ns: float | None
    window_ns: float | None


# Sum in seconds and count, by process and stage.
_Totals = dict[tuple[str, str], tuple[float, float]]


class TrialStages:
    """The stage times of one trial: of the last reading, and of the measured window so far."""

    def __init__(self) -> None:
        self._last: _Totals = {}
        self._begin: _Totals | None = None

    def poll(self, addresses: Mapping[str, str], measuring: bool) -> list[StageTime]:
        """Read every address; `measuring` is whether the measured window has begun. Empty without stage times."""
        now: _Totals = {}
        for process, address in addresses.items():
            for stage, totals in stage_totals(page(address)).items():
                now[process, stage] = totals
        before, self._last = self._last, now or self._last
        if not now or not before:
            return []
        if measuring and self._begin is None:
            self._begin = before
        begin = self._begin
        return [
            StageTime(
                stage=stage,
                last_ns=_mean_ns(before, now, stage),
                window_ns=None if begin is None else _mean_ns(begin, now, stage),
            )
            for stage in (*STAGES, TOTAL)
        ]


def stage_totals(text: str) -> dict[str, tuple[float, float]]:
    """Return the sum in seconds and the count of each stage over all operations."""
    found: dict[str, list[float]] = {}
    for kind, labels, value in _SAMPLE.findall(text):
        stage = _STAGE.search(labels)
        try:
            number = float(value)
        except ValueError:
            continue
        if stage and math.isfinite(number):
            found.setdefault(stage[1], [0.0, 0.0])[kind == "count"] += number
    return {stage: (total_s, count) for stage, (total_s, count) in found.items()}


def _mean_ns(before: _Totals, now: _Totals, stage: str) -> float | None:
    """Return the mean of the requests between two readings over the processes that both readings have."""
    total_s = count = 0.0
    for key, (sum_s, requests) in now.items():
        if key[1] == stage and key in before:
            total_s += sum_s - before[key][0]
            count += requests - before[key][1]
    return round(1e9 * total_s / count, 1) if count > 0 and total_s >= 0 else None


def page(address: str) -> str:
    """Return the page of metrics; an empty text if the program does not answer in time, or with too much."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port or 80, timeout=_ANSWERED_WITHIN_S
    )
    try:
        connection.request("GET", parts.path or "/")
        answer = connection.getresponse()
        content = answer.read(_PAGE_BYTES_MAX + 1)
    except (OSError, ValueError, http.client.HTTPException):
        return ""
    finally:
        connection.close()
    if answer.status != 200 or len(content) > _PAGE_BYTES_MAX:
        return ""
    return content.decode(errors="replace")
