"""One private PostgreSQL, with data and socket in a temporary folder.

PostgreSQL refuses to run as root; then it and its folder belong to another user. It is as durable as any other.
"""

import os
import pwd
import shutil
import tempfile
from pathlib import Path

from waylab.runfolder.trial import DatabaseFacts
from waylab.testbed.hosts import Host
from waylab.testbed.netns.owner import owner_of, this_process
from waylab.testbed.postgres.connection import Connection
from waylab.testbed.postgres.programs import PostgresPrograms
from waylab.testbed.processes import Process, TestbedError

USER = "waystage"
PORT = 5432
_SOCKET = f".s.PGSQL.{PORT}"
# The longest path of a unix socket.
_SOCKET_PATH_BYTES = 107
_MADE_WITHIN_S = 60.0
_OTHER_USERS = ("postgres", "nobody")
_INITDB = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions", f"--username={USER}"]


class PostgresServer:
    """A server: `create` makes its data, `start` and `stop` may be called repeatedly, `remove` deletes everything."""

    def __init__(self, programs: PostgresPrograms, logs: Path) -> None:
        self._programs = programs
        self._logs = logs
        self._account = _other_account()
        self._folder: Path | None = None
        self._process: Process | None = None
        self._host = Host()

    @property
    def process(self) -> Process:
        """The postmaster."""
        assert self._process is not None, "it was started before"
        return self._process

    @property
    def running(self) -> bool:
        """Whether it was started and still runs."""
        return self._process is not None and self._process.running()

    def create(self) -> None:
        """Create folder and data, after removing those of killed runs. The caller must call `remove`."""
        _remove_leftovers()
        self._logs.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.gettempdir()) / this_process().name("postgres")
        if len(str(folder / _SOCKET)) > _SOCKET_PATH_BYTES:
            raise TestbedError(f"{folder}: too long for a unix socket; set TMPDIR to a shorter path")
        try:
            folder.mkdir(mode=0o700)
            self._folder = folder
            if self._account:
                os.chown(folder, *self._account)
        except OSError as error:
            raise TestbedError(f"{folder}: cannot be created: {error.strerror}") from None
        command = [str(self._programs.folder / "initdb"), *_INITDB, "--no-sync", "-D", str(folder / "data")]
        making = Host().start("initdb", command, self._logs, user=self._account)
        try:
            if not making.wait(_MADE_WITHIN_S) or making.exit_code != 0:
                raise TestbedError(f"initdb: did not make a database{making.last_error_line()}")
        finally:
            making.stop()
        # Only the hosts of this run can reach the server over the network of its namespace.
        hba = f"local all {USER} trust\nhost all {USER} samenet trust\n"
        (folder / "data" / "pg_hba.conf").write_text(hba, encoding="ascii")

    def start(self, host: Host, settings: tuple[str, ...], connections_max: int) -> None:
        """Start it on a host; on this machine without emulation it listens on its socket only."""
        assert self._folder is not None, "it was made before"
        network = host.address if host.own_network else ""
        options = [
            f"listen_addresses={network}",
            f"port={PORT}",
            f"unix_socket_directories={self._folder}",
            f"max_connections={connections_max}",
            *settings,
        ]
        command = [str(self._programs.folder / "postgres"), "-D", str(self._folder / "data")]
        for option in options:
            command += ["-c", option]
        self._host = host
        self._process = host.start("database", command, self._logs, user=self._account)
        self._process.wait_until_serving(str(self._folder), self._is_ready)

    def stop(self) -> None:
        """Stop it with a fast shutdown, which writes all data."""
        if self._process:
            self._process.interrupt()
            self._process.wait(_MADE_WITHIN_S)
            self._process.stop()
            self._process = None

    def remove(self) -> None:
        """Stop it and remove everything."""
        try:
            self.stop()
        finally:
            if self._folder:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def connect(self, database: str = "postgres") -> Connection:
        """Open a connection over the socket, which bypasses emulated links."""
        assert self._folder is not None, "it was made before"
        return Connection(self._folder / _SOCKET, USER, database)

    def connection_string(self, database: str) -> str:
        """Return the connection string of libpq for programs on any host of the run."""
        where = f"host={self._host.address} port={PORT}" if self._host.own_network else f"host={self._folder}"
        return f"{where} user={USER} dbname={database}"

    def facts(self) -> DatabaseFacts:
        """Return its version and the kind of file system of its data: in a file system in memory nothing is durable."""
        assert self._folder is not None, "it was made before"
        return DatabaseFacts(version=self._programs.version, file_system=_file_system(self._folder))

    def _is_ready(self) -> bool:
        try:
            with self.connect():
                return True
        except TestbedError:
            return False


def _other_account() -> tuple[int, int] | None:
    """Return user and group of the server if this process is root."""
    if os.geteuid() != 0:
        return None
    for name in _OTHER_USERS:
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        return account.pw_uid, account.pw_gid
    raise TestbedError(
        f"PostgreSQL does not run as root, and there is none of the users {', '.join(_OTHER_USERS)}; "
        "run the lab as another user"
    )


def _remove_leftovers() -> None:
    """Remove the folders of killed runs; the kernel has killed their servers."""
    for path in Path(tempfile.gettempdir()).glob("waylab-*-postgres"):
        owner = owner_of(path.name)
        if owner and owner.gone():
            shutil.rmtree(path, ignore_errors=True)


def _file_system(folder: Path) -> str | None:
    """Name the kind of file system that a folder is on, from the kernel's list of mounts."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    resolved = folder.resolve()
    mounts = [line.split()[1:3] for line in lines]
    fitting = [(len(place), kind) for place, kind in mounts if resolved.is_relative_to(place)]
    return max(fitting)[1] if fitting else None
