"""Fills the dataclasses of a specification from tables as TOML has them; ValueError names the key that is wrong."""

import dataclasses
from typing import Any, TypeVar

from waylab.spec.factors import part_type
from waylab.spec.naming import checked, nearest, nearest_here

_Section = TypeVar("_Section")

# A table as TOML has it, before anything is checked.
Table = dict[str, Any]

# Other functions read these keys, because their tables contain names that the user chose.
_NAMED = (
    "factors",
    "compare",
    "hosts",
    "exclude",
    "trials",
    "calibrate",
    "held_out",
    "scales",
    "published",
    "refuted_by",
    "of",
    "to",
    "roles",
    "generator",
    "environment",
    "files",
    "set",
)
# Names in a file that differ from those of the dataclasses.
_AS_WRITTEN = {"scales": "scale"}


def section(settings: type[_Section], content: object, prefix: str) -> _Section:
    """Fill one dataclass from one table."""
    if not isinstance(content, dict):
        raise ValueError(f"{prefix}: should be a table")
    assert dataclasses.is_dataclass(settings), "sections are dataclasses"
    every = {part.name: part for part in dataclasses.fields(settings)}
    parts = {name: part for name, part in every.items() if name not in _NAMED or "check" in part.metadata}
    values: Table = {}
    for name, value in content.items():
        key = f"{prefix}.{name}" if prefix else name
        if name not in parts:
            named = [_AS_WRITTEN.get(name, name) for name in every if name not in parts]
            raise ValueError(f"{key} is not a key; {nearest(name, [*parts, *named], prefix)}")
        inner = part_type(parts[name])
        if inner:
            values[name] = section(inner, value, key)
        else:
            values[name] = checked(parts[name].metadata["check"], value, key)
    return settings(**values)


def table(content: object, where: str) -> Table:
    """Return the content as a table; ValueError if it is not one."""
    if not isinstance(content, dict):
        raise ValueError(f"{where}: should be a table")
    return content


def check_keys(content: Table, known: tuple[str, ...], where: str) -> None:
    """Refuse a table with a key that is not known; `where` is its name with a dot, or empty."""
    for key in content:
        if key not in known:
            raise ValueError(f"{where}{key} is not a key; {nearest_here(key, list(known), '')}")


def text(content: Table, key: str, where: str) -> str:
    """Return a text of a table that must not be missing or empty."""
    value = content.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where}{key}: is missing; it is a text")
    return value
