"""Where the programs are: `waystage` and, if wanted, `memcached` and `nutcracker`. An error lists where it looked."""

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from waylab.errors import LabError
from waylab.plan import Trial
from waylab.spec import System
from waylab.testbed.postgres.programs import PostgresPrograms, find_postgres

# Where Debian puts twemproxy, and only root looks.
SYSTEM_PROGRAMS = "/usr/sbin"


@dataclass(frozen=True)
class Programs:
    """The programs of a run, found once so that every trial uses the same."""

    waystage: Path
    memcached: Path | None
    nutcracker: Path | None = None
    postgres: PostgresPrograms | None = None

    def server_of(self, system: System) -> str:
        """Name what is behind everything else in a system."""
        if system.kind in ("messages", "database"):
            return "postgres" if system.databases else "none"
        return self.server_for(system.backends.server, system.backends.service_time)

    def server_for(self, wanted: str, service_time: str) -> str:
        """Resolve `auto`: memcached where there is one, unless the service time is dictated."""
        if wanted != "auto":
            return wanted
        return "memcached" if self.memcached and service_time == "none" else "embedded"


def programs_of(trials: tuple[Trial, ...]) -> Programs:
    """Find everything that the trials of a plan need."""
    systems = [trial.system for trial in trials]
    servers = {system.backends.server for system in systems if system.kind not in ("messages", "database")}
    found = find_programs(servers, any(system.kind == "nutcracker" for system in systems))
    if not any(system.databases for system in systems):
        return found
    pgbench = any(system.kind == "database" for system in systems)
    return replace(found, postgres=find_postgres(pgbench))


def find_programs(wanted_servers: set[str], nutcracker: bool = False) -> Programs:
    """Find what the trials need: servers by the names that specifications use, and nutcracker if one has it."""
    memcached = shutil.which("memcached")
    if "memcached" in wanted_servers and not memcached:
        raise LabError('memcached: not found on PATH; install it, or set system.backends.server = "embedded"')
    twemproxy = (
        shutil.which("nutcracker", path=f"{os.environ.get('PATH', '')}:{SYSTEM_PROGRAMS}")
        if nutcracker
        else None
    )
    if nutcracker and not twemproxy:
        raise LabError(
            'nutcracker: not found on PATH; install twemproxy, or set system.kind = "proxy" or "direct"'
        )
    return Programs(
        find_waystage(), Path(memcached) if memcached else None, Path(twemproxy) if twemproxy else None
    )


def find_waystage() -> Path:
    """Look for the program `waystage`: the variable WAYSTAGE_BIN, then the build folder, then PATH."""
    given = os.environ.get("WAYSTAGE_BIN")
    if given:
        if not _is_program(Path(given)):
            raise LabError(
                f"WAYSTAGE_BIN={given}: not a program; build it with `make build` or correct the variable"
            )
        return Path(given).resolve()
    looked = []
    for root in dict.fromkeys([Path.cwd(), *Path(__file__).resolve().parents[2:3]]):
        candidate = root / "target" / "release" / "waystage"
        if _is_program(candidate):
            return candidate
        looked.append(str(candidate))
    on_path = shutil.which("waystage")
    if on_path:
        return Path(on_path)
    raise LabError(
        f"waystage: not found; run `make build` or set WAYSTAGE_BIN (looked at {', '.join(looked)}, PATH)"
    )


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
