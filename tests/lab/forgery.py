"""Forges a run folder: every JSON value of a file in every way, one at a time, as bytes that the file is given.

Numbers are scaled or become NaN or 1e400, words change, keys are removed or stand there twice, lists lose their end.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

# Words that no JSON file of a run folder has. They are replaced by what Python's encoder does not write.
_NAN, _HUGE, _TWICE = "@NaN@", "@1e400@", "@twice@"
# A change that a rounded number or a wide tolerance does not hide.
_SCALE = 3


@dataclass(frozen=True)
class Forgery:
    """One value of a file and what was done to it."""

    place: str  # keys and places from the top, for example operations.get.count or seconds[1].mean_ns
    kind: str  # what was done
    changed: object  # the whole value of the file

    @property
    def content(self) -> bytes:
        """The file with the forged value; made on demand, because a file has thousands of values."""
        return _encoded(self.changed)

    @property
    def pattern(self) -> str:
        """The place without numbers of places in lists: seconds[].mean_ns."""
        return re.sub(r"\[\d+\]", "[]", self.place)


def forgeries(content: object) -> Iterator[Forgery]:
    """Return every forgery of a JSON value."""
    for keys in _places(content):
        for kind, changed in _changes(content, keys):
            yield Forgery(_text(keys), kind, changed)


def _places(content: object, keys: tuple = ()) -> Iterator[tuple]:
    if keys:
        yield keys
    parts = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in parts:
        if isinstance(value, dict | list):
            yield from _places(value, (*keys, key))
        else:
            yield (*keys, key)


def _changes(content: object, keys: tuple) -> Iterator[tuple[str, object]]:
    value = _at(content, keys)
    if isinstance(value, bool):
        yield "flipped", _with(content, keys, not value)
    elif value is None:
        yield "number instead of null", _with(content, keys, _SCALE)
    elif isinstance(value, int | float):
        yield "scaled", _with(content, keys, value * _SCALE or 1)
        yield "negative", _with(content, keys, -value or -1)
        yield "NaN", _with(content, keys, _NAN)
        yield "1e400", _with(content, keys, _HUGE)
    elif isinstance(value, str):
        yield "other word", _with(content, keys, value + "x")
    elif isinstance(value, list) and value:
        yield "shortened", _with(content, keys, value[:-1])
    if isinstance(keys[-1], str):
        yield "removed", _with(content, keys, None, remove=True)
        yield "twice", _with(content, keys, _with_other(value), twice=True)


def _with_other(value: object) -> object:
    """Return another value of the same type for the second of two equal keys."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value * _SCALE or 1
    if isinstance(value, str):
        return value + "x"
    return value


def _at(content: object, keys: tuple) -> object:
    for key in keys:
        content = content[key]
    return content


def _with(content: object, keys: tuple, new: object, remove: bool = False, twice: bool = False) -> object:
    """Return a copy with another value in one place, or without that key, or with that key twice."""
    key, *rest = keys
    changed = content.copy()
    if rest:
        changed[key] = _with(content[key], tuple(rest), new, remove, twice)
    elif remove:
        del changed[key]
    else:
        changed[f"{key}{_TWICE}" if twice else key] = new
    return changed


def _encoded(content: object) -> bytes:
    text = json.dumps(content, indent=1, ensure_ascii=False)
    for word, sign in ((f'"{_NAN}"', "NaN"), (f'"{_HUGE}"', "1e400"), (_TWICE, "")):
        text = text.replace(word, sign)
    return text.encode() + b"\n"


def _text(keys: tuple) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")
