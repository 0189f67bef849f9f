"""Starts the program that emulates a link, for kernels without netem or tbf: delay, rate, queue and loss.

    link_process.py HOST_NAMESPACE INTERFACE SWITCH_NAMESPACE PORT COUNTERS UP DOWN WAYSTAGE

Creates a TAP device at both ends and becomes `waystage link`, with the devices as its standard input and output. UP and
DOWN are JSON objects with the fields of `Direction`. Imports only the standard library, so that it starts fast.
"""

import ctypes
import fcntl
import json
import os
import struct
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

# Of each direction: frames and bytes sent, frames that did not fit, frames lost on purpose, late frames, and the sum
# and the largest of all delays beyond the due time.
COUNTERS = struct.Struct("=7Q")
NAMES = ("frames", "bytes", "dropped", "lost", "late_frames", "late_sum_ns", "late_max_ns")
FILE_BYTES = 2 * COUNTERS.size

_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TAP_NO_PI = 0x400454CA, 0x1002
_PR_SET_TIMERSLACK = 29
_PRIORITY = 50


@dataclass(frozen=True)
class Direction:
    """The settings of one direction; a rate of 0 has no limit."""

    delay_ms: float = 0.0
    rate_mbit: float = 0.0
    queue_bytes: int = 4 << 20
    loss: float = 0.0
    # Frames that leave later than this after their due time are counted as late.
    late_ms: float = 0.1

    def as_json(self) -> str:
        """Return the argument of the program."""
        return json.dumps(asdict(self))


def main(arguments: list[str]) -> None:
    """Create the devices and become the program."""
    host, interface, switch, port, counters, up, down, waystage = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    ends = [_tap(libc, namespace, name) for namespace, name in ((host, interface), (switch, port))]
    _be_punctual(libc)
    Path(counters).write_bytes(bytes(FILE_BYTES))
    print(f"link ready on {interface}", flush=True)
    for standard, end in enumerate(ends):
        os.dup2(end, standard)
    os.execv(waystage, [waystage, "link", "--counters", counters, "--up", up, "--down", down])


def read_counters(path: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Return what the program has counted so far, for what the host sends and for what it receives."""
    content = path.read_bytes()
    up, down = (dict(zip(NAMES, values, strict=True)) for values in COUNTERS.iter_unpack(content))
    return up, down


def open_tap(name: str) -> int:
    """Create a TAP device in the current namespace; the kernel removes it when its descriptor is closed."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP_NO_PI))
    except OSError:
        os.close(device)
        raise
    return device


def _tap(libc: ctypes.CDLL, namespace: str, name: str) -> int:
    """Create a TAP device in a namespace."""
    descriptor = os.open(namespace, os.O_RDONLY)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"{namespace}: {os.strerror(ctypes.get_errno())}")
    os.close(descriptor)
    return open_tap(name)


def _be_punctual(libc: ctypes.CDLL) -> None:
    """Run before other programs. If that is not permitted, the count of late frames shows whether it was needed."""
    libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except OSError:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, -20)
        except OSError:
            pass


if __name__ == "__main__":
    main(sys.argv[1:])
