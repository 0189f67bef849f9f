"""The system `database`: PostgreSQL alone, under pgbench with the statements of a message service."""

from pathlib import Path

from waylab.testbed import pgbench_log
from waylab.testbed.generators import Generator
from waylab.testbed.pgbench import pgbench_command, preparation
from waylab.testbed.processes import Process
from waylab.testbed.systems.running import RunningSystem


class RunningDatabaseSystem(RunningSystem):
    """The trial's database, and pgbench as its load generator."""

    needs = frozenset({"pgbench"})
    _connection = ""

    @property
    def server(self) -> str:
        """PostgreSQL."""
        return "postgres"

    @property
    def _scripts(self) -> Path:
        return self.directory / "pgbench"

    def start_servers(self) -> list[str]:
        """Prepare the trial's database, which pgbench does not reach by an address."""
        assert self.database, "a plan with a database has one"
        self._connection = self.database.prepare(self.trial)
        return []

    def start_load(self, addresses: list[str]) -> list[Process]:
        """Make the queues and the messages in them, and start pgbench."""
        programs = self.programs.postgres
        assert programs and programs.pgbench and self.database, "a plan with pgbench finds it first"
        for statement in preparation(self.trial):
            self.database.query(statement)
        command = pgbench_command(programs.pgbench, self.trial, self._connection, self._scripts)
        return [self.start(self.host_of("load"), self.generators[0].name, command)]

    def write_summary(self) -> None:
        """Turn pgbench's log into the summary of a load."""
        pgbench_log.summarise(self.trial, self.directory, self._scripts, self.generators[0].name)

    def target_options(self, index: int, generator: Generator, addresses: list[str]) -> list[str]:
        """None: `waystage load` is not used."""
        return []

    def request_options(self, generator: Generator) -> list[str]:
        """None: `waystage load` is not used."""
        return []
