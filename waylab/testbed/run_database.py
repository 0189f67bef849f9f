"""The PostgreSQL of a run, which the lab starts itself, with a fresh database for every trial.

The message service creates its tables once, in a template. Knows nothing of measurements.
"""

import time
from pathlib import Path
from types import TracebackType

from msgspec import structs

from waylab.plan import Trial
from waylab.runfolder.trial import DatabaseFacts
from waylab.testbed.hosts import Host, Testbed
from waylab.testbed.postgres import Connection, PostgresServer
from waylab.testbed.processes import Process, TestbedError
from waylab.testbed.programs import Programs

# Counters of a trial's database and of the whole server, in this order; all are monotonic.
COUNTERS = (
    "commits",
    "rollbacks",
    "rows_inserted",
    "rows_deleted",
    "wal_records",
    "wal_full_pages",
    "wal_bytes",
    "wal_syncs",
    "wal_written_to_bytes",
)
_TEMPLATE, _TRIAL = "waystage_template", "waystage_trial"
# Of the lab itself, beside those of the programs of a system.
_CONNECTIONS_BESIDE = 24
# `wal_sync` has another place in some versions: null where there is none.
_COUNTED = f"""
SELECT d.xact_commit, d.xact_rollback, d.tup_inserted, d.tup_deleted, w.wal_records, w.wal_fpi, w.wal_bytes,
    to_jsonb(w) ->> 'wal_sync', pg_current_wal_insert_lsn() - '0/0'::pg_lsn
FROM pg_stat_wal AS w, pg_stat_database AS d WHERE d.datname = '{_TRIAL}'
"""
_CLIENTS = (
    f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{_TRIAL}' AND backend_type = 'client backend'"
)
# A server process ends soon after its client, but after its running statement.
_LAST_CLIENT_WITHIN_S, _POLL_S = 60.0, 0.01
_FURTHER_INDEXES = """
SELECT i.relname FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid JOIN pg_class AS t ON t.oid = x.indrelid
WHERE t.relname = 'message' AND NOT x.indisprimary AND pg_get_indexdef(x.indexrelid) LIKE '%sender%'
"""


class RunDatabase:
    """A context: the first trial that needs the server starts it; leaving the context always stops and removes it."""

    def __init__(
        self, testbed: Testbed, programs: Programs, trials: tuple[Trial, ...], directory: Path
    ) -> None:
        assert programs.postgres is not None, "a plan with a database finds its programs first"
        self._testbed = testbed
        self._programs = programs
        self._logs = directory / "postgres"
        self._server = PostgresServer(programs.postgres, self._logs)
        self._connections_max = _CONNECTIONS_BESIDE + max(
            trial.system.under_test.database_connections(trial.system, trial.load) for trial in trials
        )
        self._created = False
        self._started_with: tuple[str | None, tuple[str, ...]] | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> "RunDatabase":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._disconnect()
        finally:
            self._server.remove()

    @property
    def process(self) -> Process:
        """The postmaster; the other processes are its children."""
        return self._server.process

    def prepare(self, trial: Trial) -> str:
        """Run the server with the settings of the trial, and return the connection string of a fresh database."""
        names = trial.assignment.database
        wanted = (names[0] if names else None, trial.system.database.settings)
        if not self._server.running or wanted != self._started_with:
            self._start_server(self._testbed.host(wanted[0]), wanted[1])
            self._started_with = wanted
        assert self._connection is not None, "the server is running"
        self._connection.query(f"DROP DATABASE IF EXISTS {_TRIAL} WITH (FORCE)")
        self._connection.query(f"CREATE DATABASE {_TRIAL} TEMPLATE {_TEMPLATE}")
        if not trial.system.database.further_index:
            self._drop_further_index()
        # The checkpoint writes the new database to disk before the trial starts. PostgreSQL updates its counters late,
        # at the latest when a connection ends, so closing the connection makes the counters complete.
        self._connection.query("CHECKPOINT")
        self._disconnect()
        self._connection = self._server.connect()
        return self._server.connection_string(_TRIAL)

    def query(self, text: str) -> list[list[str | None]]:
        """Run one statement in the trial's database and return its rows."""
        with self._server.connect(_TRIAL) as connection:
            return connection.query(text)

    def counters(self) -> dict[str, int | None]:
        """Return the current `COUNTERS`; None for a counter that this version of PostgreSQL does not have."""
        assert self._connection is not None, "the server is running"
        rows = self._connection.query(_COUNTED)
        if not rows:
            raise TestbedError("database: the database of the trial no longer exists")
        values = (None if value is None else int(float(value)) for value in rows[0])
        return dict(zip(COUNTERS, values, strict=True))

    def final_counters(self) -> dict[str, int | None]:
        """Return the counters after the server process of every client has ended.

        A server process adds its last transactions to the counters when it ends, which is after its client has ended.
        """
        assert self._connection is not None, "the server is running"
        end = time.monotonic() + _LAST_CLIENT_WITHIN_S
        while (open_connections := self._connection.query(_CLIENTS)[0][0]) != "0":
            if time.monotonic() > end:
                raise TestbedError(
                    f"database: {open_connections} connections are open {_LAST_CLIENT_WITHIN_S:g} s after all programs "
                    "have ended, so its counters are not complete"
                )
            time.sleep(_POLL_S)
        return self.counters()

    def facts(self) -> DatabaseFacts:
        """Return the facts for `trial.json`; none if the server did not start."""
        if not self._server.running:
            return DatabaseFacts()
        return structs.replace(self._server.facts(), command=self._server.process.command)

    def _start_server(self, host: Host, settings: tuple[str, ...]) -> None:
        self._disconnect()
        if self._created:
            self._server.stop()
        else:
            self._server.remove()
            self._server.create()
        self._server.start(host, settings, self._connections_max)
        self._connection = self._server.connect()
        if not self._created:
            self._connection.query(f"CREATE DATABASE {_TEMPLATE}")
            self._make_tables(host)
            self._created = True

    def _make_tables(self, host: Host) -> None:
        """Run the service once to create its tables. A template can only be used without open connections."""
        command = [
            str(self._programs.waystage),
            "messages",
            "--insecure",
            "--database",
            self._server.connection_string(_TEMPLATE),
        ]
        service = host.start("messages-template", [*command, "--listen", f"{host.address}:0"], self._logs)
        try:
            service.wait_until_ready()
        finally:
            service.stop()

    def _drop_further_index(self) -> None:
        names = [str(row[0]) for row in self.query(_FURTHER_INDEXES)]
        if not names:
            raise TestbedError(
                "database: system.database.further_index = false, but the service creates no further index"
            )
        for name in names:
            self.query(f'DROP INDEX "{name}"')

    def _disconnect(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None
