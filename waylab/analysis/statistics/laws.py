"""The operational laws as checks: what must hold of every run, whatever the system (Denning and Buzen 1978).

Each takes numbers that were measured independently of each other, and returns how far they disagree.
"""

import math
from dataclasses import dataclass

from waylab.errors import LabError

# How far measured numbers may disagree before the law is taken to be broken; a share.
LIMIT = 0.03


@dataclass(frozen=True)
class LawCheck:
    """One law: `expected` by the law, `found` by measurement, `residual` = found / expected - 1.

    `holds` is None where the law cannot be checked, and `text` says why.
    """

    name: str
    expected: float | None
    found: float | None
    residual: float | None
    limit: float
    holds: bool | None
    text: str


def interactive(
    clients: float, throughput_per_s: float, response_s: float, think_s: float, limit: float = LIMIT
) -> LawCheck:
    """Interactive response time law of a closed loop: N = X (R + Z), N clients who think for Z (Jain 33.5)."""
    found = throughput_per_s * (response_s + think_s)
    return _law("interactive", clients, found, limit, "X(R+Z)", "N")


def little(throughput_per_s: float, time_s: float, jobs: float, limit: float = LIMIT) -> LawCheck:
    """Little's law: L = X R (Little 1961); `jobs` is the mean number inside, counted without the times of requests."""
    return _law("little", throughput_per_s * time_s, jobs, limit, "jobs counted", "X R")


def forced_flow(
    throughput_per_s: float,
    visits: float,
    station_per_s: float,
    limit: float = LIMIT,
    name: str = "forced flow",
) -> LawCheck:
    """Forced flow law: X_k = V_k X; every request makes `visits` to the station (Jain 33.2)."""
    return _law(name, throughput_per_s * visits, station_per_s, limit, "seen there", "V X")


def bytes_balance(
    sent_bytes: float, received_bytes: float, limit: float = LIMIT, name: str = "bytes"
) -> LawCheck:
    """What one side says it sent, the other must have received: flow balance of bytes."""
    return _law(name, sent_bytes, received_bytes, limit, "bytes received", "bytes sent")


def _law(name: str, expected: float, found: float, limit: float, left: str, right: str) -> LawCheck:
    if not limit > 0:
        raise LabError(f"law {name}: the limit must be above 0, not {limit}")
    if not (math.isfinite(expected) and math.isfinite(found)) or expected < 0 or found < 0:
        raise LabError(
            f"law {name}: {left} = {found} and {right} = {expected} must be finite and not negative"
        )
    if expected == 0:
        holds = None if found == 0 else False
        text = "nothing happened" if found == 0 else f"{left} is {found:.4g}, but {right} is 0"
        return LawCheck(name, expected, found, None, limit, holds, text)
    residual = found / expected - 1
    holds = abs(residual) <= limit
    text = f"{left} differs from {right} by {100 * residual:+.2f} %, limit {100 * limit:g} %"
    return LawCheck(name, expected, found, residual, limit, holds, text)
