"""JSON Schema of the files in a run folder, generated from their types. The comment on a field is its description."""

import ast
import inspect
import json
from pathlib import Path
from typing import Any

import msgspec

from waylab.runfolder.files import FILES

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEMPLATE = "#/$defs/{name}"


def schemas() -> dict[str, str]:
    """Return the text of each schema by file name: `run.schema.json` for `run.json`."""
    return {
        known.name.replace(".json", ".schema.json"): _schema(kind, known.format)
        for kind, known in FILES.items()
    }


def descriptions(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the comment on each field of a type, those of its bases included."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            found |= _comments(base)
    return found


def types_of(file: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """Return every type that a file is made of."""
    _, parts = msgspec.json.schema_components([file], ref_template=_TEMPLATE)
    return [_type_named(name) for name in parts]


def _schema(kind: type[msgspec.Struct], version: str) -> str:
    roots, parts = msgspec.json.schema_components([kind], ref_template=_TEMPLATE)
    for name, part in parts.items():
        for field, text in descriptions(_type_named(name)).items():
            # Beside a reference there may be a description since draft 2019-09.
            part["properties"][field]["description"] = text
    content: dict[str, Any] = {"$schema": _DIALECT, "title": version, **roots[0], "$defs": parts}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _type_named(name: str) -> type[msgspec.Struct]:
    """Return the type of a name in a schema; a type with a parameter has it in its name, OperationStages_Interval_."""
    types = {
        one.__name__: one
        for one in _subclasses(msgspec.Struct)
        if one.__module__.startswith("waylab.runfolder")
    }
    return types.get(name) or types[name.split("_", maxsplit=1)[0]]


def _subclasses(kind: type) -> list[type[msgspec.Struct]]:
    direct: list[type[msgspec.Struct]] = type.__subclasses__(kind)
    return [one for part in direct for one in (part, *_subclasses(part))]


def _comments(kind: type) -> dict[str, str]:
    """Return the comment at the end of the line of each field that the class itself defines."""
    lines = Path(inspect.getsourcefile(kind) or "").read_text(encoding="utf-8").splitlines()
    tree = ast.parse("\n".join(lines))
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__.split("[", maxsplit=1)[0]:
            for part in node.body:
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    assert part.end_lineno is not None and part.end_col_offset is not None
                    rest = lines[part.end_lineno - 1].encode()[part.end_col_offset :].decode()
                    found[part.target.id] = rest.partition("# ")[2].strip()
    return found
