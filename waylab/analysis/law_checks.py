"""The operational laws of one trial, from what its programs measured independently of each other.

The laws themselves are in `statistics.laws`; this file knows where the numbers come from.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waylab.analysis.stages import window_rows
from waylab.analysis.statistics import laws
from waylab.analysis.statistics.laws import Law
from waylab.records import OUTCOMES, Records

# A sum over sampled records is uncertain by itself; a law is broken when it is off by more than three deviations.
_DEVIATIONS = 3.0


def interactive_law(
    clients: int, throughput_per_s: float, response_ns: float | None, think_s: float, limit: float
) -> Law | None:
    """Interactive law of a closed loop; None when nothing was answered."""
    if response_ns is None or not throughput_per_s:
        return None
    return laws.interactive(clients, throughput_per_s, response_ns * 1e-9, think_s, limit)


def record_laws(
    load: dict[str, Any], records: dict[str, Records], window_ns: tuple[int, int], throughput_per_s: float
) -> list[Law]:
    """Little's law from the load's records; flow and bytes between the load and the server it talks to."""
    found = []
    response_ns = load["operations"]["all"]["response"].get("mean_ns")
    if "load" in records and response_ns:
        found.append(_little(records["load"], window_ns, throughput_per_s, response_ns))
    server = next((records[name] for name in ("proxy", "messages", "cache") if name in records), None)
    if server is None:
        return found
    rows = window_rows(server, window_ns)
    rows = rows[rows["outcome"] == OUTCOMES.index("answered")]
    sample, window_s = _sample(server), (window_ns[1] - window_ns[0]) * 1e-9
    name = f"forced flow, {server.program}"
    flow = laws.forced_flow(throughput_per_s, 1.0, len(rows) * sample / window_s, name=name)
    found.append(_widened(flow, np.ones(len(rows)), sample))
    totals = load["totals"]
    for key, field, text in (
        ("sent_bytes", "request_bytes", f"bytes to the {server.program}"),
        ("received_bytes", "reply_bytes", f"bytes from the {server.program}"),
    ):
        if totals.get(key):
            sizes = rows[field].astype(float)
            law = laws.bytes_balance(totals[key], float(sizes.sum()) * sample, name=text)
            found.append(_widened(law, sizes, sample))
    return found


def worst_laws(contents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of every law the trial in which it is furthest off, and in how many it is broken."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for content in contents:
        for law in content.get("laws", []):
            by_name.setdefault(law["name"], []).append(law)
    return [
        {
            **max(members, key=lambda law: math.inf if law["residual"] is None else abs(law["residual"])),
            "trials": len(members),
            "broken": sum(law["holds"] is False for law in members),
        }
        for members in by_name.values()
    ]


def _little(load: Records, window_ns: tuple[int, int], throughput_per_s: float, response_ns: float) -> Law:
    """Jobs inside, as the time that requests spent within the window over its length."""
    rows = load.parents
    rows = rows[rows["outcome"] == OUTCOMES.index("answered")]
    inside = np.minimum(rows["completed"], np.uint64(window_ns[1])).astype(np.int64)
    inside = inside - np.maximum(rows["intended"], np.uint64(window_ns[0])).astype(np.int64)
    inside_ns = np.maximum(inside, 0).astype(float)
    jobs = float(inside_ns.sum()) * _sample(load) / (window_ns[1] - window_ns[0])
    return _widened(laws.little(throughput_per_s, response_ns * 1e-9, jobs), inside_ns, _sample(load))


def _sample(records: Records) -> int:
    return int(records.header.get("sample", 1))


def _widened(law: Law, parts: NDArray[np.float64], sample: int) -> Law:
    """Widen the limit by what a sum over one in `sample` records is uncertain (Horvitz and Thompson 1952)."""
    total = float(parts.sum())
    if law.residual is None or total <= 0 or sample <= 1:
        return law
    deviation = math.sqrt((1 - 1 / sample) * float((parts**2).sum())) / total
    limit = max(law.limit, _DEVIATIONS * deviation)
    text = law.text.rsplit(", limit", 1)[0] + f", limit {100 * limit:.3g} %"
    if limit > law.limit:
        text += f", for one record in {sample} is kept"
    return replace(law, limit=limit, holds=abs(law.residual) <= limit, text=text)
