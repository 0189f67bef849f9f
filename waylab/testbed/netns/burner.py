"""Uses as much CPU time as it gets and prints the share of one core that it got. A program by itself.

    burner.py SECONDS GAP

A throttled program stops until its period ends, which it sees as a gap in the clock of at least GAP seconds. It
measures from the end of one gap to the end of another, so that it counts whole periods. Imports only the standard
library.
"""

import sys
import time

_LONGEST_WAIT_S = 2.5


def burn(seconds: float, gap_s: float) -> float:
    """Return CPU time over elapsed time."""
    start_s, start_cpu_s = _after_gap(gap_s, 0.0)
    end_s, end_cpu_s = _after_gap(gap_s, seconds)
    return (end_cpu_s - start_cpu_s) / (end_s - start_s)


def _after_gap(gap_s: float, least_s: float) -> tuple[float, float]:
    """Poll the clock for `least_s`, then until it jumps; return the time and the CPU time at that moment."""
    first = last = time.perf_counter()
    while True:
        now = time.perf_counter()
        elapsed_s = now - first
        if elapsed_s >= least_s and (now - last >= gap_s or elapsed_s > least_s + _LONGEST_WAIT_S):
            return now, time.process_time()
        last = now


if __name__ == "__main__":
    print(burn(float(sys.argv[1]), float(sys.argv[2])))
