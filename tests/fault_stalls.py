"""Stalls of the machine during fault_run.py: times in which no program ran, because a virtual machine stood still.

A request that gets no reply in such a time is no evidence against the proxy. Run as a program, this file is a clock:
it prints the begin and the end of each stall, in seconds of the monotonic clock, until its standard input is closed.
"""

import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SLEEP_S = 0.02
# The clock has woken up this much too late in a stall.
LATE_S = 0.5
# A stall excuses a missing reply if it lasts for more than this share of the deadline, while the request is in flight.
SHARE = 0.5


@dataclass(frozen=True)
class Stall:
    """A time in which the machine stood still, in seconds of the monotonic clock."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """How long the machine stood still."""
        return self.ended - self.began

    def is_excuse(self, since: float, until: float, deadline_s: float) -> bool:
        """Whether this stall explains that a request which was in flight at this time got no reply."""
        return min(until, self.ended) - max(since, self.began) > SHARE * deadline_s


class StallClock:
    """Runs the clock: a process of its own at the priority of the run, whose threads wait for each other."""

    def __init__(self, folder: Path):
        self.file = folder / "stalls.txt"
        with self.file.open("w") as output:
            # It ends when this process ends, in whatever way.
            self.process = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=output, start_new_session=True
            )

    def end(self) -> list[Stall]:
        """Stop the clock; return all stalls, also one that ends now.

        If the clock has failed, there are none, so that nothing is excused.
        """
        self.process.communicate()
        if self.process.returncode != 0:
            print("the clock of stalls has failed: no missing reply is excused", file=sys.stderr)
        lines = self.file.read_text().splitlines()
        return [Stall(float(began), float(ended)) for began, ended in (line.split() for line in lines)]


def summary(stalls: Sequence[Stall], start: float) -> str:
    """Describe the stalls of a run that started at this time."""
    longest = max(stalls, key=lambda stall: stall.seconds, default=None)
    if longest is None:
        return f"machine: it never stood still for more than {LATE_S} s"
    total_s, count = sum(stall.seconds for stall in stalls), len(stalls)
    return (
        f"machine: it stood still {count} times for more than {LATE_S} s, for {total_s:.1f} s in total; "
        f"the longest stall, at {longest.began - start:.0f} s, lasted {longest.seconds:.1f} s"
    )


def main() -> None:
    """Print each stall until standard input is closed."""
    last, is_over = time.monotonic(), False
    while not is_over:
        is_over = bool(select.select([sys.stdin], [], [], SLEEP_S)[0])
        now = time.monotonic()
        if now - last > SLEEP_S + LATE_S:
            print(last, now, flush=True)
        last = now


if __name__ == "__main__":
    main()
