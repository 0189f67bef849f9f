"""The operational laws of one trial, from what its programs measured independently of each other.

The laws themselves are in `statistics.laws`; this file knows where the numbers come from.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray

from waylab.analysis.statistics import laws
from waylab.analysis.statistics.laws import LawCheck
from waylab.analysis.trial.stages import window_rows
from waylab.records import OUTCOMES, Records
from waylab.runfolder.load import LoadSummary
from waylab.runfolder.numbers import Law, WorstLaw
from waylab.runfolder.trial_numbers import TrialNumbers

# A sum over sampled records is uncertain by itself; a law is broken when it is off by more than three deviations.
_DEVIATIONS = 3.0


def interactive_law(
    clients: int, throughput_per_s: float, response_ns: float | None, think_s: float, limit: float
) -> LawCheck | None:
    """Interactive law of a closed loop; None when nothing was answered."""
    if response_ns is None or not throughput_per_s:
        return None
    return laws.interactive(clients, throughput_per_s, response_ns * 1e-9, think_s, limit)


def record_laws(
    load: LoadSummary, records: dict[str, Records], window_ns: tuple[int, int], throughput_per_s: float
) -> list[LawCheck]:
    """Little's law from the load's records; flow and bytes between the load and the server it talks to."""
    found = []
    response_ns = load.operations.all.response.mean_ns
    if "load" in records and response_ns:
        found.append(_little(records["load"], window_ns, throughput_per_s, response_ns))
    server = next((records[name] for name in ("proxy", "messages", "cache") if name in records), None)
    if server is None:
        return found
    rows = window_rows(server, window_ns)
    rows = rows[rows["outcome"] == OUTCOMES.index("answered")]
    sample, window_s = server.sample, (window_ns[1] - window_ns[0]) * 1e-9
    name = f"forced flow, {server.program}"
    flow = laws.forced_flow(throughput_per_s, 1.0, len(rows) * sample / window_s, name=name)
    found.append(_widened(flow, np.ones(len(rows)), sample))
    for count, field, text in (
        (load.totals.sent_bytes, "request_bytes", f"bytes to the {server.program}"),
        (load.totals.received_bytes, "reply_bytes", f"bytes from the {server.program}"),
    ):
        if count:
            sizes = rows[field].astype(float)
            law = laws.bytes_balance(count, float(sizes.sum()) * sample, name=text)
            found.append(_widened(law, sizes, sample))
    return found


def worst_laws(many: Sequence[TrialNumbers]) -> list[WorstLaw]:
    """Of every law the trial in which it is furthest off, and in how many it is broken."""
    by_name: dict[str, list[Law]] = {}
    for numbers in many:
        for law in numbers.laws:
            by_name.setdefault(law.name, []).append(law)
    found = []
    for members in by_name.values():
        worst = max(members, key=lambda law: math.inf if law.residual is None else abs(law.residual))
        broken = sum(law.holds is False for law in members)
        found.append(WorstLaw(**asdict(worst), trials=len(members), broken=broken))
    return found


def _little(
    load: Records, window_ns: tuple[int, int], throughput_per_s: float, response_ns: float
) -> LawCheck:
    """Jobs inside, as the time that requests spent within the window over its length."""
    rows = load.parents
    rows = rows[rows["outcome"] == OUTCOMES.index("answered")]
    inside = np.minimum(rows["completed"], np.uint64(window_ns[1])).astype(np.int64)
    inside = inside - np.maximum(rows["intended"], np.uint64(window_ns[0])).astype(np.int64)
    inside_ns = np.maximum(inside, 0).astype(float)
    jobs = float(inside_ns.sum()) * load.sample / (window_ns[1] - window_ns[0])
    return _widened(laws.little(throughput_per_s, response_ns * 1e-9, jobs), inside_ns, load.sample)


def _widened(law: LawCheck, parts: NDArray[np.float64], sample: int) -> LawCheck:
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
