"""Placeholders in the texts of a system's roles: `{port}` is replaced by a value, `{{port}}` stays as `{port}`.

Other braces are ordinary characters, so that configuration files of nginx or in JSON need no escapes.
"""

import re
import shlex
from collections.abc import Mapping

_PLACEHOLDER = re.compile(r"\{(\{[a-z][a-z0-9_.]*\})\}|\{([a-z][a-z0-9_.]*)\}")


def placeholders(text: str) -> list[str]:
    """Return the names of the placeholders of a text, in order."""
    return [found[2] for found in _PLACEHOLDER.finditer(text) if found[2]]


def filled(text: str, values: Mapping[str, object]) -> str:
    """Return the text with every placeholder replaced; the check of the specification has refused unknown ones."""
    return _PLACEHOLDER.sub(lambda found: found[1] or str(values[found[2]]), text)


def words(text: str) -> list[str]:
    """Split a command line into words as a shell does, without any other feature of shells.

    Raises:
        ValueError: for a quotation mark without its partner.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(f"cannot be split into words: {error}") from None


def filled_words(text: str, values: Mapping[str, object]) -> list[str]:
    """Return the words of a command line with placeholders replaced; a value with spaces stays one word.

    A word with `{ROLE.each}` is repeated for every instance of that role.
    """
    made = []
    for word in words(text):
        each = [name for name in placeholders(word) if name.endswith(".each")]
        choices = values[each[0]] if each else ""
        for choice in choices if isinstance(choices, list) else [choices]:
            made.append(filled(word, {**values, **dict.fromkeys(each, choice)}))
    return made
