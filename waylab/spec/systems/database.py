"""The system `database`: pgbench and PostgreSQL, with the statements of a message service and no service."""

from waylab.spec.settings import Load
from waylab.spec.systems.messages import DATABASE_SHOWN, MessageLoadSystem
from waylab.spec.systems.under_test import Shown, System


class DatabaseSystem(MessageLoadSystem):
    """PostgreSQL alone, under the load that message services would make."""

    name = "database"

    def programs(self, system: System, generators: int) -> dict[str, int]:
        """The database."""
        return {"database": 1}

    def check(self, system: System, load: Load, generators: int) -> None:
        """Refuse loads that pgbench cannot generate."""
        super().check(system, load, generators)
        if load.operations not in ("", "d15"):
            raise ValueError(
                f'load.operations = {load.operations!r}: system.kind = "database" knows "d15" only'
            )
        if generators > 1:
            raise ValueError('assignment.load: system.kind = "database" has one load generator, pgbench')
        if load.rate or load.think_time != "none":
            raise ValueError(
                'load.rate, load.think_time: system.kind = "database" is a closed loop without think time'
            )

    def database_connections(self, system: System, load: Load) -> int:
        """One for each client."""
        return load.clients

    def record_files(self, system: System, generators: int) -> dict[str, int]:
        """None: pgbench writes its own log."""
        return {}

    def titles(self) -> dict[str, str]:
        """The role is called as the program."""
        return {"database": "postgres"}

    def shown(self, system: System) -> Shown:
        """Whether the further index is there."""
        return {"database": DATABASE_SHOWN}
