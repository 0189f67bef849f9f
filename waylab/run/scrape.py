"""Reads the metrics of the programs of a trial once a second, in the text format of Prometheus, and keeps every series.

A thread of its own waits for the programs, because one that does not answer must not delay the telemetry.
Interprets nothing. Source of the format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import contextlib
import csv
import http.client
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from waylab.runfolder import paths
from waylab.testbed import Host

INTERVAL_S = 1.0
COLUMNS = ["clock_ns", "process", "series", "value"]
_ANSWERED_WITHIN_S = 1.0
_PAGE_BYTES_MAX = 1 << 20
_SERIES_MAX = 5000
# A series with its labels, whose texts may contain spaces and escaped quotation marks; its value; perhaps a time.
_SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?)\s+(\S+)(?:\s+-?\d+)?')


class Scraper:
    """A context that writes `metrics.csv` while it is open; it does nothing if no program has metrics."""

    def __init__(self, directory: Path, metrics: dict[str, tuple[Host, str]]) -> None:
        self._path = directory / paths.METRICS
        self._metrics = metrics
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Scraper":
        if self._metrics:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._metrics:
            self._thread.join()

    def _run(self) -> None:
        # A full disk must not end the trial here; the telemetry fails for the same reason and says so.
        with contextlib.suppress(OSError), self._path.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(COLUMNS)
            next_s = time.monotonic()
            while True:
                for process, (host, address) in self._metrics.items():
                    rows.writerows(_rows(process, host.inside, address))
                next_s = max(next_s + INTERVAL_S, time.monotonic())
                if self._ended.wait(next_s - time.monotonic()):
                    return


def _rows(
    process: str, inside: Callable[[Callable[[], str | None]], str | None], address: str
) -> Iterator[list[object]]:
    """Return the samples of one program; like Prometheus, `up` is 1 if it answered and 0 if not."""
    page = inside(lambda: _page(address))
    clock_ns = time.monotonic_ns()
    yield [clock_ns, process, "up", 0 if page is None else 1]
    for number, (series, value) in enumerate(samples(page or "")):
        if number == _SERIES_MAX:
            return
        yield [clock_ns, process, series, value]


def samples(page: str) -> Iterator[tuple[str, float]]:
    """Return series and value of each line of a page; comments and other lines are left out."""
    for line in page.splitlines():
        found = _SAMPLE.fullmatch(line.strip())
        if not found:
            continue
        with contextlib.suppress(ValueError):
            value = float(found[2])
            if not math.isnan(value):
                yield found[1], value


def _page(address: str) -> str | None:
    """Return the page; None if the program does not answer with 200 in time, or with too much."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port or 80, timeout=_ANSWERED_WITHIN_S
    )
    try:
        connection.request("GET", parts.path + (f"?{parts.query}" if parts.query else "") or "/")
        answer = connection.getresponse()
        content = answer.read(_PAGE_BYTES_MAX + 1)
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    if answer.status != 200 or len(content) > _PAGE_BYTES_MAX:
        return None
    return content.decode(errors="replace")
