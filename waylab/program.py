"""Finds the program `waystage`, and refuses one that an untrusted user could have put there.

Both the testbed and the models start it. This module does not depend on the lab, so that every part can use it.
"""

import os
import shutil
import stat
import sysconfig
from pathlib import Path

from waylab.errors import LabError

_PACKAGE = Path(__file__).resolve().parent
_BUILT = Path("target") / "release" / "waystage"


def find_waystage() -> Path:
    """Find `waystage`: named by WAYSTAGE_BIN, built beside this package, installed with it, on PATH, built here.

    The current folder comes last, because an untrusted user may have prepared it.
    """
    given = os.environ.get("WAYSTAGE_BIN")
    if given:
        if not is_program(Path(given)):
            raise LabError(
                f"WAYSTAGE_BIN={given}: not a program; build it with `make build` or correct the variable"
            )
        return Path(given).resolve()
    beside = _PACKAGE.parent / _BUILT
    # The wheel installs it there; an environment that is not activated is not on PATH.
    installed = Path(sysconfig.get_path("scripts")) / "waystage"
    on_path = shutil.which("waystage")
    here = Path.cwd() / _BUILT
    for candidate in (beside, installed, Path(on_path) if on_path else None, here):
        if candidate and is_program(candidate):
            require_trusted(candidate)
            return candidate.resolve()
    raise LabError(
        "waystage: not found; run `make build` or set WAYSTAGE_BIN "
        f"(searched: {beside}, {installed.parent}, PATH, {here})"
    )


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


def is_program(path: Path) -> bool:
    """Return whether this is a file that may be executed."""
    return path.is_file() and os.access(path, os.X_OK)
