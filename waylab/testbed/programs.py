"""Finds the programs of a run: `waystage` in its versions, and `memcached`, `nutcracker` and PostgreSQL if needed."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from waylab.errors import LabError
from waylab.program import find_waystage, is_program, require_trusted
from waylab.testbed.postgres.programs import PostgresPrograms, find_postgres

# Debian installs twemproxy here; only root has it in PATH.
SYSTEM_PROGRAMS = "/usr/sbin"
# For a program to report its version, on a busy machine.
_VERSION_S = 20.0


@dataclass(frozen=True)
class Programs:
    """The programs of a run, found once so that every trial uses the same."""

    waystage: Path
    memcached: Path | None
    nutcracker: Path | None = None
    postgres: PostgresPrograms | None = None
    # Other versions of `waystage` that specifications name, by their path.
    versions: Mapping[str, Path] = field(default_factory=dict)
    # Programs of roles and generators that specifications describe, by their names there.
    commands: Mapping[str, Path] = field(default_factory=dict)
    # The arguments that make some of them print their versions.
    version_arguments: Mapping[str, list[str]] = field(default_factory=dict)

    def stamps(self) -> dict[Path, tuple[int, int, int]]:
        """Return inode, length and time of change of each program, which differ once a program is replaced.

        Raises:
            LabError: for a program that was removed.
        """
        found = {}
        for path in (
            self.waystage,
            self.memcached,
            self.nutcracker,
            *self.versions.values(),
            *self.commands.values(),
        ):
            if path is None:
                continue
            try:
                state = path.stat()
            except OSError as error:
                raise LabError(f"{path}: cannot be found during the run: {error.strerror}") from None
            found[path] = (state.st_ino, state.st_size, state.st_mtime_ns)
        return found

    def server_for(self, wanted: str, service_time: str) -> str:
        """Resolve `auto`: memcached where there is one, unless the service time is dictated."""
        if wanted != "auto":
            return wanted
        return "memcached" if self.memcached and service_time == "none" else "embedded"


def find_programs(servers: set[str], needs: frozenset[str] = frozenset()) -> Programs:
    """Find the programs of a run: servers by their names in specifications, `nutcracker`, `postgres`, `pgbench`."""
    memcached = shutil.which("memcached")
    if "memcached" in servers and not memcached:
        raise LabError('memcached: not found on PATH; install it, or set system.backends.server = "embedded"')
    nutcracker = _find_nutcracker() if "nutcracker" in needs else None
    waystage = find_waystage()
    postgres = find_postgres("pgbench" in needs) if {"postgres", "pgbench"} & needs else None
    return Programs(waystage, Path(memcached) if memcached else None, nutcracker, postgres)


def _find_nutcracker() -> Path:
    found = shutil.which("nutcracker", path=f"{os.environ.get('PATH', '')}:{SYSTEM_PROGRAMS}")
    if not found:
        raise LabError(
            'nutcracker: not found on PATH; install twemproxy, or set system.kind = "proxy" or "direct"'
        )
    return Path(found)


def find_command(program: str, key: str) -> Path:
    """Find a program that a specification names by its path or its name on PATH; `key` is for the error."""
    if "/" in program:
        path = Path(program).absolute()
        if not is_program(path):
            problem = "cannot be executed" if path.exists() else "is not there"
            raise LabError(
                f"{key} = {program!r}: {path} {problem}; give the path of a program, or its name on PATH"
            )
        return path
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PROGRAMS}")
    if not found:
        raise LabError(f"{key} = {program!r}: not found on PATH; install it, or give its path")
    return Path(found).absolute()


def require_version(path: Path) -> Path:
    """Return another version of `waystage` that a specification names; LabError unless it may be run."""
    if not is_program(path):
        raise LabError(f"system.program = {str(path)!r}: not a program that can be run")
    require_trusted(path)
    if not _version_of(path).startswith("waystage "):
        raise LabError(
            f"system.program = {str(path)!r}: is not waystage, because --version gives no version of it"
        )
    return path


def _version_of(path: Path) -> str:
    command = [str(path), "--version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_VERSION_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return str(done.stdout)
