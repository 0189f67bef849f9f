"""The message service and its database as parts of a system, and what no single value of theirs can show.

Knows nothing of how either is started.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from waylab.spec import checks

_SETTING = re.compile(r"[a-z_][a-z0-9_.]*=.*")


def _setting(check: checks.Check, default: Any) -> Any:
    return field(default=default, metadata={"check": check})


def server_settings(value: Any) -> tuple[str, ...]:
    """A list of PostgreSQL's settings, each `name=value`."""
    found = checks.texts(value)
    for one in found:
        if not _SETTING.fullmatch(one):
            raise ValueError(f"{one!r} should read like synchronous_commit=on")
    return found


def operations(value: Any) -> str:
    """Which requests to a message service are made; the load generator knows their names."""
    if not re.fullmatch(r"[a-z0-9:.,=_-]*", checks.text(value)):
        raise ValueError("should name operations as `waystage load --operations` does, such as d15")
    return str(value)


@dataclass(frozen=True)
class Messages:
    """The message services over one database: all alike, clients take them in turn."""

    services: int = _setting(checks.whole(1, 64), 1)
    dispatch: str = _setting(checks.one_of("fused", "pool", "none", "canned"), "fused")
    lanes: int = _setting(checks.whole(1, 256), 2)
    connections: int = _setting(checks.whole(1, 1024), 40)

    def connections_of_each(self) -> int:
        """Connections of one service: those of the pool are shared out, rounded up; lanes each service has itself."""
        return -(-self.connections // self.services) if self.dispatch == "pool" else self.lanes

    @property
    def servers(self) -> int:
        """How many statements can be in the database at a time, over all services."""
        return self.connections_of_each() * self.services if self.has_database else 0

    @property
    def has_database(self) -> bool:
        """Whether there is a database behind: `none` loses what is sent, `canned` does not even look at it."""
        return self.dispatch in ("fused", "pool")


@dataclass(frozen=True)
class Database:
    """The one PostgreSQL of a run, which the lab starts and stops; every trial has a fresh database in it."""

    further_index: bool = _setting(checks.flag, True)
    settings: tuple[str, ...] = _setting(server_settings, ())


def check_messages(system: Any, load: Any, generators: int) -> None:
    """Check one combination of a system of kind `messages` or `database`; ValueError says what cannot be."""
    if system.kind not in ("messages", "database"):
        for name in ("operations", "prefill"):
            if getattr(load, name):
                raise ValueError(f'load.{name}: needs system.kind = "messages" or "database"')
        return
    for name, wanted in (("pipeline", 1), ("multi_key_get", 1)):
        if getattr(load, name) != wanted:
            raise ValueError(f'load.{name}: system.kind = "{system.kind}" knows one request at a time only')
    if system.kind == "messages":
        if system.messages.services > load.clients:
            raise ValueError(
                f"system.messages.services = {system.messages.services}: more than the {load.clients} clients; "
                "each goes to one service"
            )
        if system.messages.dispatch == "pool" and system.messages.connections < system.messages.services:
            raise ValueError(
                f"system.messages.connections = {system.messages.connections}: fewer than the "
                f"{system.messages.services} services; each needs one"
            )
        return
    if load.operations not in ("", "d15"):
        raise ValueError(f'load.operations = {load.operations!r}: system.kind = "database" knows "d15" only')
    if generators > 1:
        raise ValueError('assignment.load: system.kind = "database" has one load generator, pgbench')
    if load.rate or load.think_time != "none":
        raise ValueError(
            'load.rate, load.think_time: system.kind = "database" is a closed loop that never thinks'
        )
