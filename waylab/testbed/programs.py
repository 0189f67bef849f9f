"""Finds the programs: `waystage`, and `memcached`, `nutcracker` and PostgreSQL if needed."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from waylab.errors import LabError
from waylab.testbed.postgres.programs import PostgresPrograms, find_postgres

# Debian installs twemproxy here; only root has it in PATH.
SYSTEM_PROGRAMS = "/usr/sbin"


@dataclass(frozen=True)
class Programs:
    """The programs of a run, found once so that every trial uses the same."""

    waystage: Path
    memcached: Path | None
    nutcracker: Path | None = None
    postgres: PostgresPrograms | None = None

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
    """Find `waystage`: in the variable WAYSTAGE_BIN, then in the build folder, then on PATH."""
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
