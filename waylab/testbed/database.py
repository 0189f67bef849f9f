"""The database of a run: one PostgreSQL of the lab's own, and in it a fresh database for every trial.

The service makes its tables itself, once, in a template. Knows nothing of what is measured.
"""

from pathlib import Path
from types import TracebackType

from msgspec import structs

from waylab.plan import Trial
from waylab.runfolder.trial import DatabaseFacts
from waylab.testbed.hosts import Host, Testbed
from waylab.testbed.postgres import Connection, PostgresServer
from waylab.testbed.processes import Process, TestbedError
from waylab.testbed.programs import Programs

# Counters of a trial's database and of the whole server, in this order; all of them only ever rise.
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
_FURTHER_INDEXES = """
SELECT i.relname FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid JOIN pg_class AS t ON t.oid = x.indrelid
WHERE t.relname = 'message' AND NOT x.indisprimary AND pg_get_indexdef(x.indexrelid) LIKE '%sender%'
"""


class Database:
    """A context; the server comes up with the first trial that wants it, and is gone afterwards whatever happens."""

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
        self._made = False
        self._told: tuple[str | None, tuple[str, ...]] | None = None
        self._asking: Connection | None = None

    def __enter__(self) -> "Database":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._hang_up()
        finally:
            self._server.remove()

    @property
    def process(self) -> Process:
        """The server's first process; the others are its children."""
        return self._server.process

    def prepare(self, trial: Trial) -> str:
        """See that the server runs as the trial wants it, and return where its fresh database is, in libpq's words."""
        names = trial.assignment.database
        told = (names[0] if names else None, trial.system.database.settings)
        if not self._server.running or told != self._told:
            self._bring_up(self._testbed.host(told[0]), told[1])
            self._told = told
        assert self._asking is not None, "it was brought up"
        self._asking.query(f"DROP DATABASE IF EXISTS {_TRIAL} WITH (FORCE)")
        self._asking.query(f"CREATE DATABASE {_TRIAL} TEMPLATE {_TEMPLATE}")
        if not trial.system.database.further_index:
            self._drop_further_index()
        # Nothing of what was just made is left to be written while the trial runs, and all of it is counted: a server
        # counts late, but at the latest when a connection ends.
        self._asking.query("CHECKPOINT")
        self._hang_up()
        self._asking = self._server.connect()
        return self._server.words(_TRIAL)

    def ask(self, text: str) -> list[list[str | None]]:
        """Ask something of the trial's database."""
        with self._server.connect(_TRIAL) as connection:
            return connection.query(text)

    def counters(self) -> dict[str, int | None]:
        """Return `COUNTERS` as they are now; what this version of the server does not count is None."""
        assert self._asking is not None, "it was brought up"
        rows = self._asking.query(_COUNTED)
        if not rows:
            raise TestbedError("database: it does not know the trial's database any more")
        values = (None if value is None else int(float(value)) for value in rows[0])
        return dict(zip(COUNTERS, values, strict=True))

    def facts(self) -> DatabaseFacts:
        """Return what is kept with every trial; nothing when the server did not start."""
        if not self._server.running:
            return DatabaseFacts()
        return structs.replace(self._server.facts(), command=self._server.process.command)

    def _bring_up(self, host: Host, settings: tuple[str, ...]) -> None:
        self._hang_up()
        if self._made:
            self._server.stop()
        else:
            self._server.remove()
            self._server.make()
        self._server.start(host, settings, self._connections_max)
        self._asking = self._server.connect()
        if not self._made:
            self._asking.query(f"CREATE DATABASE {_TEMPLATE}")
            self._make_tables(host)
            self._made = True

    def _make_tables(self, host: Host) -> None:
        """Let the service make its tables; its last connection must be gone before one can copy them."""
        command = [str(self._programs.waystage), "messages", "--database", self._server.words(_TEMPLATE)]
        service = host.start("messages-template", [*command, "--listen", f"{host.address}:0"], self._logs)
        try:
            service.wait_until_ready()
        finally:
            service.stop()

    def _drop_further_index(self) -> None:
        names = [str(row[0]) for row in self.ask(_FURTHER_INDEXES)]
        if not names:
            raise TestbedError(
                "database: the service makes no further index any more; there is none to leave out"
            )
        for name in names:
            self.ask(f'DROP INDEX "{name}"')

    def _hang_up(self) -> None:
        if self._asking:
            self._asking.close()
            self._asking = None
