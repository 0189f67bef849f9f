"""When a run of fault_run.py ends: after its time, or as soon as a signal asks for it."""

import threading
import time


class End:
    """The end of one part of a run. All parts end when `stop` is set."""

    def __init__(self, seconds: float, stop: threading.Event):
        self.moment, self.stop = time.monotonic() + seconds, stop

    def left_s(self) -> float:
        """Return the time until the end."""
        return 0.0 if self.stop.is_set() else max(0.0, self.moment - time.monotonic())

    def is_reached(self) -> bool:
        """Whether the part has ended."""
        return self.left_s() == 0.0

    def sleep(self, seconds: float) -> None:
        """Sleep for this time, but not beyond the end."""
        self.stop.wait(min(seconds, self.left_s()))


def wait_for(
    threads: list[threading.Thread], patience_s: float, stop: threading.Event, stopped_s: float
) -> bool:
    """Wait until these threads have ended, for at most `patience_s`, or `stopped_s` after a stop.

    Returns whether they have all ended.
    """
    deadline = time.monotonic() + patience_s
    for thread in threads:
        while thread.is_alive() and not stop.is_set() and time.monotonic() < deadline:
            thread.join(timeout=0.2)
    if stop.is_set():
        deadline = time.monotonic() + stopped_s
    for thread in threads:
        thread.join(timeout=max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
