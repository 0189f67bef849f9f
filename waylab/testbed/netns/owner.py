"""The owner of namespaces and control groups: a name that identifies the process, and whether it still runs.

The lab removes only objects with such a name whose process has ended.
"""

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "waylab"
_NAME = re.compile(rf"{_PREFIX}-(\d+)-(\d+)-(\d+)-([0-9a-f]+)(?:-(.+))?")


@dataclass(frozen=True)
class Owner:
    """A process, identified by its PID namespace, its PID and the tick in which it started."""

    pid_namespace: int
    pid: int
    started_ticks: int
    token: str

    def __str__(self) -> str:
        """Return the name that everything of this owner begins with."""
        return f"{_PREFIX}-{self.pid_namespace}-{self.pid}-{self.started_ticks}-{self.token}"

    def name(self, part: str) -> str:
        """Name one thing of this owner."""
        return f"{self}-{part}"

    def gone(self) -> bool:
        """Return whether the process has ended; a process in another PID namespace counts as running."""
        if self.pid_namespace != _pid_namespace():
            return False
        return _started_ticks(self.pid) != self.started_ticks


def this_process() -> Owner:
    """Return a new owner for objects of this process."""
    ticks = _started_ticks(os.getpid())
    assert ticks is not None
    return Owner(_pid_namespace(), os.getpid(), ticks, secrets.token_hex(3))


def owner_of(name: str) -> Owner | None:
    """Read the owner from a name; None when the name is not one of ours."""
    found = _NAME.fullmatch(name)
    return Owner(int(found[1]), int(found[2]), int(found[3]), found[4]) if found else None


def _pid_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _started_ticks(pid: int) -> int | None:
    """Return field 22 of /proc/PID/stat (man proc_pid_stat), or None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets, and may contain anything.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])
