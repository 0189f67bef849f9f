"""The clock of a host against the lab's, from round trips over its connection.

The host reads its clock somewhere between request and reply, so half of the round trip bounds the error, even if the
two directions take different times (F. Cristian, Probabilistic clock synchronization, Distributed Computing 3, 1989).
"""

import time
from dataclasses import dataclass

from waylab.testbed.ssh.connection import KeeperConnection

_ROUND_TRIPS = 20


@dataclass(frozen=True)
class Offset:
    """CLOCK_MONOTONIC of the host minus that of the lab, a bound of the error, and the lab's time of both."""

    offset_ns: int
    error_ns: int
    at_ns: int


def measure_offset(connection: KeeperConnection) -> Offset:
    """Use the shortest of several round trips."""
    return min((_round_trip(connection) for _ in range(_ROUND_TRIPS)), key=lambda found: found.error_ns)


def _round_trip(connection: KeeperConnection) -> Offset:
    sent_ns = time.monotonic_ns()
    clock_ns = int(connection.request("clock")["clock_ns"])
    received_ns = time.monotonic_ns()
    middle_ns = (sent_ns + received_ns) // 2
    return Offset(clock_ns - middle_ns, (received_ns - sent_ns + 1) // 2, middle_ns)


def joined(before: Offset, after: Offset) -> Offset:
    """Return the offset of a trial from one measured before and one after it.

    The clocks drift apart by up to 50 ppm, 3 ms in a minute. The mean is off by at most half of the drift.
    """
    drift_ns = abs(after.offset_ns - before.offset_ns)
    return Offset(
        (before.offset_ns + after.offset_ns) // 2,
        max(before.error_ns, after.error_ns) + (drift_ns + 1) // 2,
        (before.at_ns + after.at_ns) // 2,
    )
