"""Measures how fast the machine is while a trial runs, by the CPU time of a fixed computation.

On a machine that is shared with others the same work takes more or less CPU time from one minute to the next. The
computation is a mixture of what the measured programs do: system calls on a socket and arithmetic.
"""

import hashlib
import socket
import time

# Less than a millisecond in total, so that a probe every quarter of a second uses less than a hundredth of a core.
_MESSAGES = 100
_HASHED = b"\x5a" * (1 << 18)
_MESSAGE = b"x" * 128


class SpeedProbe:
    """A fixed computation; `count` and `cpu_s` are its runs and their CPU time in seconds, since the start."""

    def __init__(self) -> None:
        self.count = 0
        self.cpu_s = 0.0
        self._ends = socket.socketpair()

    def run(self) -> None:
        """Compute once."""
        sender, receiver = self._ends
        start_ns = time.thread_time_ns()
        for _ in range(_MESSAGES):
            sender.send(_MESSAGE)
            receiver.recv(len(_MESSAGE))
        hashlib.sha256(_HASHED).digest()
        self.cpu_s += 1e-9 * (time.thread_time_ns() - start_ns)
        self.count += 1

    def close(self) -> None:
        """Close the socket."""
        for end in self._ends:
            end.close()
