"""Run folders with a known truth: record files, load summaries and telemetry, written from the formats' documentation.

Shares no code with the readers, so that a common mistake cannot hide.
"""

import csv
import json
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from hdrh.histogram import HdrHistogram

FIELDS = [
    ("connection", "u4"),
    ("sequence", "u4"),
    ("request_bytes", "u4"),
    ("reply_bytes", "u4"),
    ("backend_sequence", "u4"),
    ("queue_length", "u4"),
    ("port", "u2"),
    ("backend_port", "u2"),
    ("backend", "u2"),
    ("keys", "u2"),
    ("hits", "u2"),
    ("loop", "u1"),
    ("operation", "u1"),
    ("outcome", "u1"),
    ("leg", "u1"),
    ("legs", "u1"),
    ("reserved", "u1"),
]
STAMPS = {
    "proxy": ["received", "parsed", "routed", "enqueued", "dispatched", "sent", "answered", "replied"],
    "messages": ["received", "parsed", "routed", "enqueued", "dispatched", "sent", "answered", "replied"],
    "load": ["intended", "issued", "sent", "completed"],
    "cache": ["received", "started", "served", "replied"],
}
WINDOW_S = 2.0
START_NS = 5_000_000_000_000
PROXY_STAGES_NS = {
    "parse": 100,
    "route": 200,
    "admit": 50,
    "queue": 0,
    "send": 4_000,
    "backend": 30_000,
    "reply": 5_000,
}
BEFORE_NS, AFTER_NS = 7_000, 3_000


def layout(program: str) -> np.dtype:
    return np.dtype([(n, f"<{k}") for n, k in FIELDS] + [(n, "<u8") for n in STAMPS[program]])


def rows(program: str, count: int) -> np.ndarray:
    table = np.zeros(count, dtype=layout(program))
    table["port"], table["sequence"] = 40000, np.arange(count)
    table["keys"] = table["hits"] = table["legs"] = table["operation"] = 1
    table["leg"] = 255
    return table


def record_bytes(
    program: str, table: np.ndarray, /, dropped: int = 0, lost: int = 0, version: str = "01", **header
) -> bytes:
    content = {
        "format": "waystage-records/1",
        "program": program,
        "version": "0.1.0",
        "stamps": STAMPS[program],
        "fields": [list(part) for part in FIELDS],
        "row_bytes": layout(program).itemsize,
        "sample": 1,
        "clock": "CLOCK_MONOTONIC",
        "started_unix_ns": 1,
        "started_clock_ns": 1,
    } | header
    text = json.dumps(content).encode()
    text += b" " * ((4 - len(text)) % 8)
    footer = struct.pack("<8sQQQ", b"WAYEND01", len(table), dropped, lost)
    return b"WAYREC" + version.encode() + struct.pack("<I", len(text)) + text + table.tobytes() + footer


def histogram_text(values_ns: np.ndarray, count: int | None = None) -> str:
    """The histogram of the values, each as often as it takes for `count` requests, evenly."""
    histogram = HdrHistogram(1, 3_600_000_000_000, 3)
    count = len(values_ns) if count is None else count
    ends = np.arange(1, len(values_ns) + 1) * count // max(1, len(values_ns))
    for value, times in zip(values_ns, np.diff(ends, prepend=0), strict=True):
        if times:
            histogram.record_value(int(value), int(times))
    return histogram.encode().decode()


@dataclass
class Truth:
    """The true values of a synthetic trial."""

    throughput_per_s: float = 10_000.0
    share: float = 0.5
    dropped: int = 0
    misses: int = 0
    errors: int = 0
    wrong: int = 0
    law_error: float = 0.0
    foreign_share: float = 0.0
    steal_share: float = 0.0
    cpu_s: dict = field(default_factory=lambda: {"proxy": 0.8, "backend-0": 0.2, "backend-1": 0.1})
    load_cpu_s: float = 0.4


def responses_ns(truth: Truth, clients: int, think_s: float, count: int) -> np.ndarray:
    """Exponential response times whose mean obeys the interactive law, apart from a given error."""
    mean_ns = response_mean_ns(truth, clients, think_s)
    shares = (np.arange(count) + 0.5) / count
    values = -np.log1p(-shares)
    return np.maximum(1, values * mean_ns / values.mean()).astype(np.int64)


def _times(values_ns: np.ndarray, count: int = 0) -> dict:
    return {
        "mean_ns": float(values_ns.mean()) if len(values_ns) else 0.0,
        "std_ns": float(values_ns.std()) if len(values_ns) else 0.0,
        "min_ns": 0,
        "max_ns": 0,
        "percentiles": {},
        "histogram": histogram_text(values_ns, count),
    }


def summary(planned: dict, truth: Truth) -> dict:
    load = planned.load
    requests = round(truth.throughput_per_s * WINDOW_S)
    values = responses_ns(truth, load.clients, load.think_mean_s, min(requests, 2000))
    read = {"hits": requests - truth.misses, "misses": truth.misses}
    operation = {"count": requests, **read, "errors": 0}
    operation |= {"response": _times(values, requests), "service": _times(values, requests)}
    operation |= {"slip": _times(values[:0])}
    nothing = {"count": 0, "hits": 0, "misses": 0, "errors": 0}
    nothing |= {name: _times(values[:0]) for name in ("response", "service", "slip")}
    return {
        "format": "waystage-load/1",
        "version": "0.1.0",
        "arguments": [],
        "settings": {"clients": load.clients, "seed": planned.seed},
        "started_unix_ns": 1,
        "measure_from_clock_ns": START_NS,
        "measure_to_clock_ns": START_NS + round(WINDOW_S * 1e9),
        "measured_s": WINDOW_S,
        "totals": {
            "requests": requests,
            "keys": requests,
            "hits": requests - truth.misses,
            "misses": truth.misses,
            "errors": truth.errors,
        },
        "throughput_per_s": truth.throughput_per_s,
        "operations": {"all": operation, "get": operation, "set": nothing},
        "seconds": [
            {"second": 0, "measured": False, "requests": 10**9},
            {"second": 1, "measured": True, "requests": round(1.1 * truth.throughput_per_s)},
            {"second": 2, "measured": True, "requests": round(0.9 * truth.throughput_per_s)},
        ],
        "cpu": {"user_s": truth.load_cpu_s, "system_s": 0.0, "share": truth.share},
        "verification": {
            "checked": requests,
            "wrong": truth.wrong,
            "torn": 0,
            "stale": 0,
            "unexpected_reply": 0,
        },
        "errors": {"SERVER_ERROR out of memory": truth.errors} if truth.errors else {},
        "valid": True,
        "reasons": [],
    }


def response_mean_ns(truth: Truth, clients: int, think_s: float) -> float:
    """The mean response time by the interactive law, apart from a given error."""
    return 1e9 * (clients / truth.throughput_per_s - think_s) * (1 + truth.law_error)


def joined_records(truth: Truth, response_ns: float, count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """The load's and the proxy's rows of the same requests; every stage has a known duration.

    The client's requests were due earlier than they were issued, so that their response time is `response_ns`.
    """
    client, proxy = rows("load", count), rows("proxy", count)
    start = START_NS + 3_000_000 + np.arange(count) * round(0.99 * WINDOW_S * 1e9 / count)
    client["intended"] = client["issued"] = client["sent"] = start
    clock = start + BEFORE_NS
    proxy["received"] = clock
    for stamp, length in zip(STAMPS["proxy"][1:], PROXY_STAGES_NS.values(), strict=True):
        clock = clock + length
        proxy[stamp] = clock
    client["completed"] = clock + AFTER_NS
    client["intended"] = np.minimum(client["issued"], client["completed"] - np.uint64(round(response_ns)))
    return client, proxy[::-1].copy()


def write_telemetry(directory: Path, truth: Truth) -> None:
    """Counters that rise evenly, sampled every quarter second, not at the window's edges."""
    capacity_s = 2 * WINDOW_S
    spent_s = sum(truth.cpu_s.values()) + truth.load_cpu_s
    busy_s = spent_s + truth.foreign_share * capacity_s
    steal_s = truth.steal_share * capacity_s
    idle_s = capacity_s - busy_s - steal_s
    with (directory / "processes.csv").open("w") as file, (directory / "machine.csv").open("w") as machine:
        processes = csv.writer(file)
        processes.writerow(["clock_ns", "process", "pid", "user_s", "system_s", "resident_bytes", "threads"])
        host = csv.writer(machine)
        names = (
            "clock_ns capacity_s user_s system_s interrupt_s idle_s steal_s load_1m memory_available_bytes"
        )
        host.writerow([*names.split(), "network_sent_bytes"])
        for step in range(-3, 13):
            time_s = 0.25 * step + 0.1
            clock_ns, done = START_NS + round(1e9 * time_s), (time_s + 5) / WINDOW_S
            for name, cpu_s in truth.cpu_s.items():
                processes.writerow([clock_ns, name, 1, cpu_s * done * 0.5, cpu_s * done * 0.5, 1000, 1])
            if time_s < WINDOW_S - 0.3:
                processes.writerow([clock_ns, "load", 2, 0, 0, 1000, 1])
            spent = [capacity_s * done, busy_s * done, 0, 0, idle_s * done, steal_s * done]
            host.writerow([clock_ns, *spent, 0.5, 1, 100 * done])


def write_trial(
    directory: Path, planned: dict, truth: Truth, status: str = "measured", reason: str | None = None
) -> Path:
    trial = directory / "trials" / planned.id
    (trial / "records").mkdir(parents=True, exist_ok=True)
    result = {
        "format": "waylab-trial/1",
        "id": planned.id,
        "order": planned.order,
        "status": status,
        "reason": reason,
        "server": "embedded",
        "started_unix_s": 1.0,
        "took_s": 3.25,
        "processes": [
            {"name": "proxy", "command": ["waystage", "proxy", "--loops", "1"], "pid": 1, "exit_code": 0}
        ],
    }
    (trial / "trial.json").write_text(json.dumps(result))
    if status == "measured":
        (trial / "load.json").write_text(json.dumps(summary(planned, truth)))
        write_telemetry(trial, truth)
        client, proxy = joined_records(
            truth, response_mean_ns(truth, planned.load.clients, planned.load.think_mean_s)
        )
        # One record for so many requests that their number is the summary's.
        sample = max(1, round(truth.throughput_per_s * WINDOW_S / len(client)))
        (trial / "records" / "load-2.way").write_bytes(record_bytes("load", client, sample=sample))
        if planned.system["kind"] == "proxy" and planned.system["proxy"]["stamps"] != "off":
            (trial / "records" / "proxy-1.way").write_bytes(
                record_bytes("proxy", proxy, dropped=truth.dropped, sample=sample)
            )
    return trial
