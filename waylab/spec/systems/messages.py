"""The system `messages`: load, message services, and PostgreSQL unless the services work without it."""

from waylab.spec.settings import Load
from waylab.spec.systems.under_test import Shown, System, SystemUnderTest

DATABASE_SHOWN = [["further index", "system.database.further_index"]]
# A service opens these beside the connections that answer requests.
_CONNECTIONS_BESIDE = 8


class MessageLoadSystem(SystemUnderTest):
    """The common part of all systems whose load sends and receives messages."""

    protocol = "messages"
    operations = ("send", "pop", "peek", "waiting_queues")
    # A queue may be empty.
    hit_ratio = False

    def check(self, system: System, load: Load, generators: int) -> None:
        """Refuse several requests at a time."""
        for name in ("pipeline", "multi_key_get"):
            if getattr(load, name) != 1:
                raise ValueError(f'load.{name}: system.kind = "{self.name}" sends one request at a time only')


class MessagesSystem(MessageLoadSystem):
    """Message services with the database that all of them use."""

    name = "messages"
    middle = "service"
    stage_program = "messages"

    def programs(self, system: System, generators: int) -> dict[str, int]:
        """Services, and the database unless they work without one."""
        database = {"database": 1} if system.messages.has_database else {}
        return {"messages": system.messages.services, **database}

    def check(self, system: System, load: Load, generators: int) -> None:
        """Refuse services without clients or without a connection."""
        super().check(system, load, generators)
        messages = system.messages
        if messages.services > load.clients:
            raise ValueError(
                f"system.messages.services = {messages.services}: more than the {load.clients} clients; "
                "each goes to one service"
            )
        if messages.dispatch == "pool" and messages.connections < messages.services:
            raise ValueError(
                f"system.messages.connections = {messages.connections}: fewer than the "
                f"{messages.services} services; each needs one"
            )

    def database_connections(self, system: System, load: Load) -> int:
        """The connections of requests, and those that each service opens for its own tasks."""
        return system.messages.servers + system.messages.services * _CONNECTIONS_BESIDE

    def record_files(self, system: System, generators: int) -> dict[str, int]:
        """Each service leaves a file; the canned one is no program of ours."""
        services = {} if system.messages.dispatch == "canned" else {"messages": system.messages.services}
        return {"load": generators, **services}

    def keeps_order(self, system: System) -> bool:
        """A pool does not promise order (docs/messages.md)."""
        return system.messages.dispatch != "pool"

    def titles(self) -> dict[str, str]:
        """The roles are called as the programs."""
        return {"messages": "messages", "database": "postgres"}

    def shown(self, system: System) -> Shown:
        """The dispatch, and the limit of statements in the database."""
        limits = {
            "pool": [["connections", "system.messages.connections"]],
            "fused": [["lanes", "system.messages.lanes"]],
        }
        services = [["", "system.messages.dispatch"], *limits.get(system.messages.dispatch, [])]
        return {"messages": services, "database": DATABASE_SHOWN}
