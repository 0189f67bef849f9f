"""Names in a specification: short and dotted keys, labels of levels, suggestions for unknown names."""

import difflib
import re
from collections.abc import Callable
from typing import TypeVar

from waylab.spec.factors import is_short, resolve_key, setting_keys
from waylab.spec.schema import TrialSettings

_Checked = TypeVar("_Checked")

# The dotted keys that factors can vary.
KEYS = setting_keys(TrialSettings)
_OF_ROLE = re.compile(r"(?:system\.)?(?:roles\.(?P<role>\w+)|(?P<generator>generator))\..+")


def nearest(name: str, known: list[str], prefix: str) -> str:
    """Suggest the same name in another section, or else a similar name in this one."""
    places = [*dict.fromkeys(key.rpartition(".")[0] for key in KEYS), *KEYS]
    elsewhere = [key for key in places if key.rpartition(".")[2] == name]
    if elsewhere:
        return f"did you mean {elsewhere[0]}?"
    return nearest_here(name, known, prefix)


def nearest_here(name: str, known: list[str], prefix: str) -> str:
    """Suggest the most similar of the names that are valid here."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return (
        f"did you mean {f'{prefix}.' if prefix else ''}{near[0]}?"
        if near
        else f"known here: {', '.join(known) or 'none'}"
    )


def checked(check: Callable[[object], _Checked], value: object, key: str) -> _Checked:
    """Apply a check; ValueError names the key."""
    try:
        return check(value)
    except ValueError as error:
        raise ValueError(f"{key} = {value!r}: {error}") from None


def resolved(name: str, where: str) -> str:
    """Turn a dotted key or a short name into the dotted key; ValueError names its place in the specification."""
    try:
        return resolve_key(name, KEYS)
    except ValueError as error:
        raise ValueError(f"{where} {error}") from None


def short(name: str) -> str:
    """Return the name used in tables: the last part, unless it is ambiguous; after a role or `generator`, with that."""
    last = name.rsplit(".", 1)[-1]
    of_role = _OF_ROLE.fullmatch(name)
    if of_role:
        return f"{of_role['role'] or of_role['generator']}.{last}"
    return last if sum(key.endswith(f".{last}") and is_short(last, key) for key in KEYS) == 1 else name


def label_of(value: object) -> str:
    """Return the label of a level that is written as a value."""
    return f"{value:g}" if isinstance(value, float) else str(value)
