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


def setting_keys(settings: type, prefix: str = "") -> list[str]:
    """List the dotted keys of all settings below a dataclass."""
    found: list[str] = []
    for part in fields(settings):
        inner = part_type(part)
        found += setting_keys(inner, f"{prefix}{part.name}.") if inner else [f"{prefix}{part.name}"]
    return found


def part_type(part: "Field[Any]") -> type | None:
    """Return the dataclass that a field is filled with; None for a field with a single value."""
    made = part.default_factory
    return made if isinstance(made, type) and is_dataclass(made) else None


def resolve_key(name: str, keys: list[str]) -> str:
    """Turn a dotted key or a short name into the dotted key; ValueError suggests the nearest key."""
    aliases = {"system": "system.kind", "think": "load.think_time", "dispatch": "system.proxy.dispatch"}
    name = aliases.get(name, name)
    matches = [key for key in keys if key == name or key.endswith(f".{name}")]
    if len(matches) == 1:
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


def apply_level(settings: _Settings, level: Level) -> _Settings:
    """Return settings with those of one level in their place."""
    for key, value in level.settings:
        settings = _replaced(settings, key.split("."), value)
    return settings


def _replaced(part: Any, path: list[str], value: Value) -> Any:
    head, *rest = path
    return replace(part, **{head: _replaced(getattr(part, head), rest, value) if rest else value})


def check_of(settings: type, path: list[str]) -> Callable[[object], Value]:
    """Find the check of the setting at a path below a dataclass."""
    head, *rest = path
    part = next(part for part in fields(settings) if part.name == head)
    inner = part_type(part)
    if inner and rest:
        return check_of(inner, rest)
    check: Callable[[object], Value] = part.metadata["check"]
    return check
