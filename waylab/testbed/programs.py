"""Finds the programs: `waystage`, and `memcached`, `nutcracker` and PostgreSQL if needed."""

import os
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from waylab.errors import LabError
from waylab.testbed.postgres.programs import PostgresPrograms, find_postgres

# Debian installs twemproxy here; only root has it in PATH.
SYSTEM_PROGRAMS = "/usr/sbin"
_PACKAGE = Path(__file__).resolve().parents[1]
_BUILT = Path("target") / "release" / "waystage"
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

    def stamps(self) -> dict[Path, tuple[int, int, int]]:
        """Return inode, length and time of change of each program, which differ once a program is replaced.

        Raises:
            LabError: for a program that was removed.
        """
        found = {}
        for path in (self.waystage, self.memcached, self.nutcracker, *self.versions.values()):
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


def find_waystage() -> Path:
    """Find `waystage`: in the variable WAYSTAGE_BIN, then built beside this package, on PATH, built in this folder.

    The current folder comes last, because an untrusted user may have prepared it.
    """
    given = os.environ.get("WAYSTAGE_BIN")
    if given:
        if not _is_program(Path(given)):
            raise LabError(
                f"WAYSTAGE_BIN={given}: not a program; build it with `make build` or correct the variable"
            )
        return Path(given).resolve()
    beside = _PACKAGE.parent / _BUILT
    on_path = shutil.which("waystage")
    here = Path.cwd() / _BUILT
    for candidate in (beside, Path(on_path) if on_path else None, here):
        if candidate and _is_program(candidate):
            require_trusted(candidate)
            return candidate.resolve()
    raise LabError(
        f"waystage: not found; run `make build` or set WAYSTAGE_BIN (searched: {beside}, PATH, {here})"
    )


def require_version(path: Path) -> Path:
    """Return another version of `waystage` that a specification names; LabError unless it may be run."""
    if not _is_program(path):
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


def require_trusted(program: Path) -> None:
    """Raise LabError if an untrusted user owns this program, or could replace it.

    Trusted owners are this user, root, and the owner of this package, whose code runs already.
    """
    trusted = {os.geteuid(), 0, _PACKAGE.stat().st_uid}
    program = program.resolve()
    for path in (program, *program.parents):
        found = path.stat()
        if found.st_uid not in trusted:
            problem = f"{path} belongs to user {found.st_uid}"
        elif _writable_by_others(found):
            problem = f"{path} can be changed by other users"
        else:
            continue
        raise LabError(f"{program}: is not run, because {problem}; name it in WAYSTAGE_BIN if you trust it")


def _writable_by_others(found: os.stat_result) -> bool:
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return False  # as in /tmp, others cannot replace what is not theirs
    by_group = found.st_mode & stat.S_IWGRP and found.st_gid not in (0, os.getegid())
    return bool(by_group or found.st_mode & stat.S_IWOTH)


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
