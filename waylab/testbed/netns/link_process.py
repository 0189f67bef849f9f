"""A link in user space, for kernels without netem or tbf: delay, rate, queue and loss. A program by itself.

    link_process.py HOST_NAMESPACE INTERFACE SWITCH_NAMESPACE PORT COUNTERS UP DOWN

Creates a TAP device at both ends and forwards frames between them until a signal. UP and DOWN are JSON objects with the
fields of `Direction`. Imports only the standard library, so that it starts fast.

A frame waits for the delay first, then for the rate, as behind netem in tbf. Every frame has a due time on
CLOCK_MONOTONIC, so that a late frame delays no later one. The program counts late frames in the file COUNTERS.
"""

import collections
import ctypes
import fcntl
import gc
import json
import mmap
import os
import random
import select
import struct
import sys
import time
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
_FRAME_BYTES_MAX = 2048
# Frames that are read before due frames are sent.
_BATCH = 32
# A timer wakes the program some microseconds late, so it sleeps until shortly before the due time, and polls then.
_POLLED_NS = 80_000
# Wake-up time without frames, to react to a signal.
_IDLE_S = 1.0


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


class Way:
    """One direction of the link: the frames on it, in the order in which they leave."""

    def __init__(self, settings: Direction, source: int, target: int, seed: int) -> None:
        self.source = source
        self._target = target
        self._delay_ns = round(settings.delay_ms * 1e6)
        self._ns_per_byte = 8e3 / settings.rate_mbit if settings.rate_mbit else 0.0
        self._queue_ns = settings.queue_bytes * self._ns_per_byte
        self._loss = settings.loss
        self._late_ns = settings.late_ms * 1e6
        self._random = random.Random(seed)
        self._free_ns = 0.0
        self.frames: collections.deque[tuple[float, bytes]] = collections.deque()
        self.counted = [0] * len(NAMES)

    def receive(self) -> bool:
        """Read a batch of frames and give each its due time; return whether there may be more."""
        for _ in range(_BATCH):
            try:
                frame = os.read(self.source, _FRAME_BYTES_MAX)
            except BlockingIOError:
                return False
            due_ns: float = time.monotonic_ns() + self._delay_ns
            if self._loss and self._random.random() < self._loss:
                self.counted[3] += 1
                continue
            if self._ns_per_byte:
                if self._free_ns - due_ns > self._queue_ns:
                    self.counted[2] += 1
                    continue
                due_ns = self._free_ns = max(due_ns, self._free_ns) + len(frame) * self._ns_per_byte
            self.frames.append((due_ns, frame))
        return True

    def send_due(self) -> None:
        """Send every frame that is due."""
        frames, counted = self.frames, self.counted
        while frames and (late_ns := time.monotonic_ns() - frames[0][0]) >= 0:
            _, frame = frames.popleft()
            try:
                os.write(self._target, frame)
            except OSError:
                # The device at the other end is down, or its queue is full.
                counted[2] += 1
                continue
            counted[0] += 1
            counted[1] += len(frame)
            counted[4] += late_ns > self._late_ns
            counted[5] += int(late_ns)
            counted[6] = max(counted[6], int(late_ns))


def forward(ways: list[Way], counters: mmap.mmap) -> None:
    """Forward frames until the process ends."""
    sources = [way.source for way in ways]
    more = False
    while True:
        now_ns = time.monotonic_ns()
        wait_ns = min([way.frames[0][0] - now_ns for way in ways if way.frames], default=_IDLE_S * 1e9)
        if not more and wait_ns > _POLLED_NS:
            select.select(sources, [], [], (wait_ns - _POLLED_NS) * 1e-9)
        more = False
        for way in ways:
            more |= way.receive()
            way.send_due()
        for index, way in enumerate(ways):
            COUNTERS.pack_into(counters, index * COUNTERS.size, *way.counted)


def main(arguments: list[str]) -> None:
    """Create the devices and forward frames."""
    host, interface, switch, port, counters_path, up, down = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    ends = [_tap(libc, namespace, name) for namespace, name in ((host, interface), (switch, port))]
    _be_punctual(libc)
    with open(counters_path, "w+b") as file:
        file.truncate(FILE_BYTES)
        counters = mmap.mmap(file.fileno(), FILE_BYTES)
    ways = [
        Way(Direction(**json.loads(up)), ends[0], ends[1], seed=1),
        Way(Direction(**json.loads(down)), ends[1], ends[0], seed=2),
    ]
    print(f"link ready on {interface}", flush=True)
    forward(ways, counters)


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
    gc.disable()


if __name__ == "__main__":
    main(sys.argv[1:])
