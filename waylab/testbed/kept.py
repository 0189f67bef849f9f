"""Programs that the lab does not know, each below a keeper that ends it with all its descendants (`keeper.py`)."""

import json
import os
import pwd
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from waylab.testbed import keeper
from waylab.testbed.hosts import Host
from waylab.testbed.processes import Process, TestbedError

# What a program may print before the lab ends it, and what is kept of that.
OUTPUT_BYTES, _KEPT_BYTES = 64 << 20, 1 << 20
# For the keeper to kill what its program left.
_KEEPER_S = 8.0


@dataclass(frozen=True)
class Kept:
    """A program: its command, and how it is stopped."""

    name: str
    command: list[str]
    # The folder in which it runs, and which its keeper removes if the lab dies.
    directory: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)
    user: tuple[int, int] | None = None
    # The number of the signal that stops it, and the seconds after which it is killed.
    signal: int = 15
    within_s: float = 10.0

    def as_json(self) -> str:
        """Return the program as JSON, which is the argument of the process that keeps it."""
        content = asdict(self) | {"directory": str(self.directory) if self.directory else None}
        limits = {"parent": os.getpid(), "output_bytes": OUTPUT_BYTES, "kept_bytes": _KEPT_BYTES}
        return json.dumps(content | limits)


def start_kept(host: Host, kept: Kept, logs: Path) -> Process:
    """Start a program below its keeper. The process is the keeper; its CPU time includes its descendants."""
    command = [sys.executable, "-I", "-S", str(Path(keeper.__file__)), kept.as_json()]
    process = host.start(kept.name, command, logs)
    process.command = kept.command
    process.stop_within_s = kept.within_s + _KEEPER_S
    process.has_descendants = True
    return process


def account_of(name: str, where: str) -> tuple[int, int] | None:
    """Return user and group of an account; None for the account of the lab itself.

    Only root can change the account. The lab of another user runs every program as itself, because servers that refuse
    to run as root need no other account then.

    Raises:
        TestbedError: for an unknown account.
    """
    if not name or os.geteuid() != 0:
        return None
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise TestbedError(f"{where} = {name!r}: there is no such user") from None
    return (found.pw_uid, found.pw_gid) if found.pw_uid else None
