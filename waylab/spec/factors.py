"""Factors and their levels, and how a level changes the settings of a trial."""

import difflib
from collections.abc import Callable
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

_Settings = TypeVar("_Settings")

# The value of one setting, after its check.
Value = bool | int | float | str | tuple[str, ...]


@dataclass(frozen=True)
class Level:
    """One level: its label, and the settings (dotted key, value) of its trials."""

    label: str
    settings: tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Factor:
    """A factor under its short name, with its levels."""

    name: str
    levels: tuple[Level, ...]
    # Whether the levels are values of one setting; otherwise each level has a name.
    listed: bool = False

    @property
    def key(self) -> str | None:
        """The dotted key, when each level sets just that one."""
        keys = {key for level in self.levels for key, _ in level.settings}
        return (
            keys.pop() if len(keys) == 1 and all(len(level.settings) == 1 for level in self.levels) else None
        )


GENERATOR = "system.generator."
# Stands for a name that the user chose, in keys such as `system.roles.*.program`.
ANY = "*"


def setting_keys(settings: type, prefix: str = "") -> list[str]:
    """List the dotted keys of all settings below a dataclass."""
    found: list[str] = []
    for part in fields(settings):
        named = part.metadata.get("named")
        if part.metadata.get("derived"):
            continue
        if named:
            place = f"{prefix}{part.name}.{ANY}"
            found += setting_keys(named, f"{place}.") if isinstance(named, type) else [place]
            continue
        inner = part_type(part)
        found += setting_keys(inner, f"{prefix}{part.name}.") if inner else [f"{prefix}{part.name}"]
    return found


def part_type(part: "Field[Any]") -> type | None:
    """Return the dataclass that a field is filled with; None for a field with a single value."""
    made = part.default_factory
    return made if isinstance(made, type) and is_dataclass(made) else None


def is_short(name: str, key: str) -> bool:
    """Return whether a key may be shortened to this name: keys of roles and of the generator need more."""
    return ANY not in key and (
        not key.startswith(GENERATOR) or name.startswith(GENERATOR.removeprefix("system."))
    )


def resolve_key(name: str, keys: list[str]) -> str:
    """Turn a dotted key or a short name into the dotted key; ValueError suggests the nearest key."""
    aliases = {"system": "system.kind", "think": "load.think_time", "dispatch": "system.proxy.dispatch"}
    name = aliases.get(name, name)
    matches = [key for key in keys if key == name or (key.endswith(f".{name}") and is_short(name, key))]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        matches = [key for key in (_with_names(name, key) for key in keys if ANY in key) if key]
        if matches:
            return matches[0]
    if matches:
        raise ValueError(f"is ambiguous: {' or '.join(matches)}")
    short = {key.rsplit(".", 1)[1]: key for key in keys}
    near = difflib.get_close_matches(name, [*keys, *short], n=1, cutoff=0.5)
    raise ValueError(
        f"is not a setting; did you mean {near[0]}?"
        if near
        else f"is not a setting; known: {', '.join(keys)}"
    )


def _with_names(name: str, key: str) -> str | None:
    """Return a key with the names that the user chose, if `name` is this key or ends like it.

    A name begins at the latest with the part before the first chosen name, such as `roles.cache.program`.
    """
    parts, given = key.split("."), name.split(".")
    least = len(parts) - parts.index(ANY) + 1
    if not least <= len(given) <= len(parts):
        return None
    tail = parts[len(parts) - len(given) :]
    if not all(part in (ANY, one) for part, one in zip(tail, given, strict=True)) or "" in given:
        return None
    return ".".join([*parts[: len(parts) - len(given)], *given])


def apply_level(settings: _Settings, level: Level) -> _Settings:
    """Return settings with those of one level in their place; ValueError for a name that the system does not have."""
    for key, value in level.settings:
        try:
            settings = _replaced(settings, key.split("."), value)
        except ValueError as error:
            raise ValueError(f"factors: {key}: {error}") from None
    return settings


def _replaced(part: Any, path: list[str], value: Value) -> Any:
    head, *rest = path
    if isinstance(part, dict):
        if head not in part:
            raise ValueError(f"has no {head!r}; known: {', '.join(part) or 'none'}")
        return part | {head: _replaced(part[head], rest, value) if rest else value}
    return replace(part, **{head: _replaced(getattr(part, head), rest, value) if rest else value})


def check_of(settings: type, path: list[str]) -> Callable[[object], Value]:
    """Find the check of the setting at a path below a dataclass."""
    head, *rest = path
    part = next(part for part in fields(settings) if part.name == head)
    named = part.metadata.get("named")
    if isinstance(named, type):
        return check_of(named, rest[1:])
    inner = part_type(part)
    if inner and rest:
        return check_of(inner, rest)
    check: Callable[[object], Value] = named or part.metadata["check"]
    return check
