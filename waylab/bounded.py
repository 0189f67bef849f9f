"""Reads files from untrusted sources, with limits on size, nesting depth and the length of keys.

Python's JSON and TOML parsers recurse with every bracket, and the TOML parser takes quadratic time for a key of many
parts. This module does not depend on the lab, so that every part can use it.
"""

import csv
import json
import re
import tomllib
from pathlib import Path
from typing import Any

TOML_BYTES_MAX = 1 << 20
JSON_BYTES_MAX = 1 << 26
RUN_FILE_BYTES_MAX = 1 << 28
CSV_BYTES_MAX = 1 << 26
CSV_VALUES_MAX = 1 << 23
KEY_PARTS_MAX = 32
_PART = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{KEY_PARTS_MAX}}}")
_TOO_DEEP = "is nested too deeply"


class UnreadableError(ValueError):
    """A file cannot be read; the message is the reason in one line, without the file's name."""


def read_bytes(path: Path, limit: int) -> bytes:
    """Read a file of at most `limit` bytes.

    Raises:
        FileNotFoundError: when there is no such file.
        UnreadableError: when it cannot be read or is larger.
    """
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UnreadableError(f"cannot be read: {error}") from None
    if len(content) > limit:
        raise UnreadableError(f"is larger than {limit:,} bytes".replace(",", " "))
    return content


def read_text(path: Path, limit: int) -> str:
    """Read a text in UTF-8 of at most `limit` bytes.

    Raises:
        FileNotFoundError: when there is no such file.
        UnreadableError: when it cannot be read, is larger or is no text.
    """
    try:
        return read_bytes(path, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"is not a text in UTF-8: {error.reason} at byte {error.start}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        FileNotFoundError: when there is no such file.
        UnreadableError: when it cannot be read, is no TOML, too large, too deep, or a key has too many parts.
    """
    return parse_toml(read_text(path, TOML_BYTES_MAX))


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text as `read_toml` does, with the same errors."""
    long = _LONG_KEY.search(text)
    if long is not None:
        line = text.count("\n", 0, long.start()) + 1
        raise UnreadableError(f"line {line}: a key has more than {KEY_PARTS_MAX} parts")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UnreadableError(f"not TOML: {error}") from None
    except RecursionError:
        raise UnreadableError(_TOO_DEEP) from None
    except ValueError as error:
        # An integer of thousands of digits, or a date that does not exist.
        raise UnreadableError(f"not TOML: {_reason(error)}") from None


def read_json(path: Path) -> Any:
    """Read a JSON file; NaN and infinity are no JSON, although Python's parser takes them.

    Raises:
        FileNotFoundError: when there is no such file.
        UnreadableError: when it cannot be read, is no JSON, too large or too deep.
    """
    return parse_json(read_text(path, JSON_BYTES_MAX))


def parse_json(text: str) -> Any:
    """Parse a JSON text as `read_json` does, with the same errors."""
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_distinct)
    except RecursionError:
        raise UnreadableError(_TOO_DEEP) from None
    except UnreadableError:
        raise
    except ValueError as error:
        raise UnreadableError(f"is not JSON: {_reason(error)}") from None


def _reason(error: ValueError) -> str:
    """Return the parser's reason. For a long integer, it is advice for programmers of Python."""
    text = str(error)
    return "a number has thousands of digits" if "integer string conversion" in text else text


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read a CSV file with a heading; every row has a value for each column.

    Raises:
        FileNotFoundError: when there is no such file.
        UnreadableError: when it cannot be read, is not CSV or is too large, or when a row has not one value per column.
    """
    lines = csv.reader(read_text(path, CSV_BYTES_MAX).splitlines(keepends=True))
    rows: list[dict[str, str]] = []
    try:
        columns = next(lines, [])
        for row in lines:
            if len(row) != len(columns):
                raise UnreadableError(
                    f"line {lines.line_num}: has {len(row)} columns, but the heading has {len(columns)}"
                )
            if len(rows) * len(columns) >= CSV_VALUES_MAX:
                raise UnreadableError(f"has more than {CSV_VALUES_MAX:,} values".replace(",", " "))
            rows.append(dict(zip(columns, row, strict=True)))
    except csv.Error as error:
        raise UnreadableError(f"line {lines.line_num}: is not CSV: {error}") from None
    return rows


def refuse_repeated_keys(text: str | bytes) -> None:
    """Raise UnreadableError for a JSON text with an object that has a key twice.

    RFC 8259 leaves open which of the two values counts, so two readers could see two files.
    """
    try:
        # Numbers stay texts: an integer of thousands of digits would take long, and another check refuses it.
        json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=_distinct)
    except UnreadableError:
        raise
    except ValueError as error:
        raise UnreadableError(f"is not JSON: {error}") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise UnreadableError(f"has the key {repeated[:80]!r} twice in one object")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")
