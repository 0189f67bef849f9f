"""Finds files that import each other in a circle, in Rust and in Python, from their text."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

Graph = dict[Path, set[Path]]


def rust_imports(source: Path) -> Graph:
    """For each file of a crate's `src`, the files that it names with `crate::`, `self::` or `super::`.

    Test modules do not count, nor does `pub use`, by which a module only hands a name on.
    """
    modules = {module_path(file, source): file for file in source.rglob("*.rs") if "tests" not in file.parts}
    modules = {path: file for path, file in modules.items() if not file.name.endswith("tests.rs")}
    graph: Graph = {}
    for module, file in modules.items():
        targets = set()
        for name in named_paths(file.read_text()):
            full = absolute(name.split("::"), module)
            longest = max((n for n in range(len(full) + 1) if full[:n] in modules), default=0)
            targets.add(modules[full[:longest]])
        graph[file] = targets - {file}
    return graph


def module_path(file: Path, source: Path) -> tuple[str, ...]:
    """The path of a file's module from the crate's root: () for `lib.rs`, ("path", "session") for `path/session.rs`."""
    parts = file.relative_to(source).with_suffix("").parts
    return parts[:-1] if parts[-1] in {"lib", "main", "mod"} else parts


def named_paths(text: str) -> Iterator[str]:
    """Every `crate::`, `self::` or `super::` path in a Rust file, outside comments and test modules."""
    text = re.sub(r"//.*", "", re.split(r"#\[cfg\(test\)\]\s*mod \w+ \{", text)[0])
    text = re.sub(r"\bpub(?:\([^)]*\))? use [^;]+;", "", text)
    for tree in re.findall(r"\buse ((?:crate|super|self)::[^;]+);", text):
        yield from expanded("".join(tree.split()))
    yield from re.findall(r"\b(?:crate|super)(?:::\w+)+", re.sub(r"\buse [^;]+;", "", text))


def expanded(tree: str) -> Iterator[str]:
    """The single paths of a tree of imports such as `crate::a::{b, c::{d, e}}`, without blanks."""
    opening = tree.find("{")
    if opening < 0:
        yield tree.split(" as ", maxsplit=1)[0]
        return
    head, part, depth = tree[:opening], "", 0
    for letter in tree[opening + 1 : tree.rindex("}")] + ",":
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            if part:
                yield from expanded(head + part)
            part = ""
        else:
            part += letter


def absolute(segments: list[str], module: tuple[str, ...]) -> tuple[str, ...]:
    """A path counted from the crate's root, if `module` is where it is named."""
    if segments[0] == "crate":
        return tuple(segments[1:])
    here = module
    while segments and segments[0] in {"self", "super"}:
        here = here[:-1] if segments[0] == "super" else here
        segments = segments[1:]
    return here + tuple(segments)


def python_imports(package: Path) -> Graph:
    """For each file of a Python package, the files of it that it imports when it is loaded or when a function runs."""
    files = {file_module(file, package): file for file in package.rglob("*.py")}
    graph: Graph = {}
    for file in files.values():
        names = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found = {f"{node.module}.{alias.name}" for alias in node.names}
                names |= {name if name in files else str(node.module) for name in found}
        graph[file] = {files[name] for name in names if name in files} - {file}
    return graph


def file_module(file: Path, package: Path) -> str:
    """The full name of a file's module: `waylab.run.folder`."""
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def circles(graph: Graph) -> list[set[Path]]:
    """The groups of two or more files of which each reaches every other one by imports."""
    reach = {file: reachable(graph, file) for file in graph}
    groups = []
    for file in graph:
        group = {other for other in reach[file] if file in reach[other]}
        if group and group not in groups:
            groups.append(group)
    return groups


def reachable(graph: Graph, start: Path) -> set[Path]:
    """Every file that `start` reaches by imports; `start` itself only if it is in a circle."""
    seen: set[Path] = set()
    waiting = list(graph.get(start, ()))
    while waiting:
        file = waiting.pop()
        if file not in seen:
            seen.add(file)
            waiting.extend(graph.get(file, ()))
    return seen
