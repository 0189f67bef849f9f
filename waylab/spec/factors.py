"""Factors and their levels: what is varied, and how a level changes the settings of a trial."""

import difflib
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Level:
    """One level: its label, and the settings (dotted key, value) it stands for."""

    label: str
    settings: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Factor:
    """What is varied, under its short name."""

    name: str
    levels: tuple[Level, ...]
    # Whether its levels are values of one setting; otherwise they have names.
    listed: bool = False

    @property
    def key(self) -> str | None:
        """The dotted key, when each level sets just that one."""
        keys = {key for level in self.levels for key, _ in level.settings}
        return (
            keys.pop() if len(keys) == 1 and all(len(level.settings) == 1 for level in self.levels) else None
        )


def setting_keys(*roots: tuple[str, type]) -> list[str]:
    """List the dotted keys of all settings below the given dataclasses."""
    found: list[str] = []
    for prefix, kind in roots:
        for part in fields(kind):
            inner = part.default_factory if callable(part.default_factory) else None
            if inner is not None and is_dataclass(inner):
                found += setting_keys((f"{prefix}.{part.name}", inner))
            else:
                found.append(f"{prefix}.{part.name}")
    return found


def resolve_key(name: str, keys: list[str]) -> str:
    """Turn a dotted key or a short name into the dotted key; ValueError says what was meant perhaps."""
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


def apply_level(roots: dict[str, Any], level: Level) -> dict[str, Any]:
    """Return the settings (by root name) with those of one level put in their place."""
    changed = dict(roots)
    for key, value in level.settings:
        root, *path = key.split(".")
        changed[root] = _replaced(changed[root], path, value)
    return changed


def _replaced(part: Any, path: list[str], value: Any) -> Any:
    head, *rest = path
    return replace(part, **{head: _replaced(getattr(part, head), rest, value) if rest else value})


def check_of(kind: type, path: list[str]) -> Any:
    """Find the check of the setting at a path below a dataclass."""
    head, *rest = path
    part = next(part for part in fields(kind) if part.name == head)
    return check_of(part.default_factory, rest) if rest else part.metadata["check"]
