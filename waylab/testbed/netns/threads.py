"""CPU time and waiting time of the threads of some processes, as the kernel's scheduler counts them."""

import contextlib
from pathlib import Path


class ThreadTimes:
    """Sums over all threads that were ever seen, so that the sums never decrease."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._seen: dict[str, tuple[int, int]] = {}
        self._used_ns = 0
        self._waited_ns = 0

    def read(self, processes: list[str]) -> tuple[float, float]:
        """Return the CPU time and the time in run queues of these processes, in seconds.

        A thread also waits in a run queue while its group is throttled. A kernel without these counters returns 0.
        """
        seen: dict[str, tuple[int, int]] = {}
        for pid in processes:
            # A process may exit at any moment.
            with contextlib.suppress(OSError, ValueError):
                for thread in (self._proc / pid / "task").iterdir():
                    used, waited, _ = (thread / "schedstat").read_text(encoding="ascii").split()
                    seen[thread.name] = int(used), int(waited)
        for thread_id, (used_ns, waited_ns) in seen.items():
            before = self._seen.get(thread_id, (0, 0))
            # A smaller number is of a new thread with the identifier of an old one.
            old = before if used_ns >= before[0] and waited_ns >= before[1] else (0, 0)
            self._used_ns += used_ns - old[0]
            self._waited_ns += waited_ns - old[1]
        self._seen = seen
        return self._used_ns * 1e-9, self._waited_ns * 1e-9
