"""Where PostgreSQL's programs are: on the PATH, else the newest where Debian and its kin put them, out of the PATH."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from waylab.errors import LabError

DEBIAN = "/usr/lib/postgresql"
# The first version that counts what is written ahead in `pg_stat_wal`.
VERSION_MIN = 14
_MISSING = (
    "PostgreSQL: initdb and postgres not found on PATH or below {debian}; "
    "install it, say apt-get install postgresql"
)
_NO_PGBENCH = (
    'pgbench: not found on PATH or beside {folder}; install it, or take system.kind = "messages" with '
    'dispatch = "pool" and as many connections as clients'
)


@dataclass(frozen=True)
class PostgresPrograms:
    """The folder with `initdb` and `postgres`, and pgbench if it was asked for."""

    folder: Path
    version: str
    pgbench: Path | None = None


def find_postgres(pgbench: bool = False) -> PostgresPrograms:
    """Find the programs; LabError says what is missing and what to do."""
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
    for part in os.environ.get("PATH", "").split(":"):
        if part and _has_both(Path(part)):
            return Path(part)
    versions = [path for path in Path(DEBIAN).glob("*") if path.name.isdecimal()]
    newest = sorted(versions, key=lambda path: -int(path.name))
    return next((path / "bin" for path in newest if _has_both(path / "bin")), None)


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
