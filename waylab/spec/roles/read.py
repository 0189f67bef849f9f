"""Reads the tables of the roles and of the generator, which contain tables with names that the user chose."""

import dataclasses
import re
from typing import Any, TypeVar

from waylab.spec import checks
from waylab.spec.naming import checked
from waylab.spec.roles.settings import GeneratorSettings, Role, plain
from waylab.spec.tables import Table, section, table

_Section = TypeVar("_Section")

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
# The lab uses these names for its own processes, for parts of CPU times, or for the roles of its own systems.
_RESERVED = (
    "load",
    "fill",
    "backend",
    "link",
    "waylab",
    "proxy",
    "messages",
    "database",
    "total",
    "interrupts",
)


def read_roles(content: object) -> dict[str, Role]:
    """Read `[system.roles]`, a table with a table for each role; ValueError names the key that is wrong."""
    return {
        name: _with_tables(
            Role, described, f"system.roles.{_checked_name(name)}", ("environment", "files", "set")
        )
        for name, described in table(content, "system.roles").items()
    }


def read_generator(content: object) -> GeneratorSettings:
    """Read `[system.generator]`; ValueError names the key that is wrong."""
    return _with_tables(GeneratorSettings, content, "system.generator", ("environment", "set"))


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"system.roles: {name!r} should be small letters, digits and _, and begin with a letter"
        )
    if name in _RESERVED or name.startswith(("load", "fill", "backend")):
        raise ValueError(f"system.roles.{name}: is a name that the lab uses itself; choose another one")
    return name


def _with_tables(kind: type[_Section], content: object, where: str, names: tuple[str, ...]) -> _Section:
    """Fill a dataclass, some of whose keys are tables with names that the user chose."""
    rest = dict(table(content, where))
    tables: Table = {name: _read_table(rest.pop(name, {}), f"{where}.{name}") for name in names}
    plain_part: Any = section(kind, rest, where)
    made: _Section = dataclasses.replace(plain_part, **tables)
    return made


def _read_table(content: object, where: str) -> Table:
    of_texts = not where.endswith(".set")
    found: Table = {}
    for name, value in table(content, where).items():
        if where.endswith(".set") and not _NAME.fullmatch(name):
            raise ValueError(
                f"{where}: {name!r} should be small letters, digits and _, and begin with a letter"
            )
        if where.endswith(".files") and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", name):
            raise ValueError(f"{where}: {name!r} should be a name of a file, without a folder")
        if where.endswith(".environment") and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{where}: {name!r} should be the name of a variable")
        found[name] = checked(checks.text if of_texts else plain, value, f"{where}.{name}")
    return found
