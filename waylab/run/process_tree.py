"""CPU time, memory and number of processes of a process together with all its descendants, from /proc.

The CPU time of a process includes that of children that have ended and were waited for, so the sum does not decrease.
"""

import contextlib
from pathlib import Path

import psutil

from waylab.testbed import Process

# Whether the kernel lists children (CONFIG_PROC_CHILDREN).
_LISTED = any(Path("/proc/self/task").glob("*/children"))
_GONE = (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied)


def tree_row(process: Process, clock_ns: int) -> list[object]:
    """Return the row of `processes.csv` for a process and its descendants.

    Raises:
        psutil.NoSuchProcess: if the process itself has ended.
    """
    parent = psutil.Process(process.pid)
    user_s = system_s = 0.0
    memory, threads = 0, 0
    for pid in [process.pid, *_descendants(process.pid)]:
        try:
            one = parent if pid == process.pid else psutil.Process(pid)
            with one.oneshot():
                times, resident, count = one.cpu_times(), one.memory_info(), one.num_threads()
        except _GONE:
            if pid == process.pid:
                raise
            continue
        user_s, system_s = (
            user_s + times.user + times.children_user,
            system_s + times.system + times.children_system,
        )
        # Shared memory is counted once, with the parent.
        shared = getattr(resident, "shared", 0) if pid != process.pid else 0
        memory, threads = memory + max(0, resident.rss - shared), threads + count
    return [clock_ns, process.name, process.pid, round(user_s, 2), round(system_s, 2), memory, threads]


def _descendants(pid: int) -> list[int]:
    """Return the processes below one, each after its parent; any thread of a process may have children."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    if not _LISTED:
        with contextlib.suppress(*_GONE):
            return [child.pid for child in psutil.Process(pid).children()]
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError, ValueError):
            found += [int(one) for one in path.read_text(encoding="ascii").split()]
    return found
