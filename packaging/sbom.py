"""Writes the software bill of materials of the binary, in the format CycloneDX 1.5: `python packaging/sbom.py FILE`.

The packages are those that Cargo resolves for this system without development dependencies.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from artefact import ROOT, VERSION


def resolved() -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return the packages of the binary by their Cargo identifier, and the identifiers that each depends on."""
    host = next(line for line in _run("rustc", "-vV").splitlines() if line.startswith("host: ")).removeprefix(
        "host: "
    )
    found = json.loads(
        _run("cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", host)
    )
    nodes = {
        node["id"]: [
            edge["pkg"] for edge in node["deps"] if any(kind["kind"] is None for kind in edge["dep_kinds"])
        ]
        for node in found["resolve"]["nodes"]
    }
    packages = {package["id"]: package for package in found["packages"]}
    (start,) = (key for key, one in packages.items() if one["name"] == "waystage" and one["source"] is None)
    reached, waiting = set(), [start]
    while waiting:
        if (key := waiting.pop()) not in reached:
            reached.add(key)
            waiting += nodes[key]
    return {key: packages[key] for key in sorted(reached)}, {key: nodes[key] for key in sorted(reached)}


def component(package: dict[str, Any], checksums: dict[tuple[str, str], str]) -> dict[str, Any]:
    """Return the entry of one package."""
    name, version = package["name"], package["version"]
    entry = {"type": "library", "bom-ref": _reference(package), "name": name, "version": version}
    if package["source"]:
        entry["purl"] = f"pkg:cargo/{name}@{version}"
    if package["license"]:
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if (name, version) in checksums:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksums[name, version]}]
    return entry


def bill() -> dict[str, Any]:
    """Return the whole document. It has no time and no random serial number, so that two builds can be compared."""
    packages, edges = resolved()
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {(one["name"], one["version"]): one["checksum"] for one in lock if "checksum" in one}
    entries = {key: component(package, checksums) for key, package in packages.items()}
    (main,) = (entry for entry in entries.values() if entry["name"] == "waystage")
    others = [entry for entry in entries.values() if entry is not main]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": main | {"type": "application", "version": VERSION}},
        "components": others,
        "dependencies": [
            {"ref": entries[key]["bom-ref"], "dependsOn": sorted(entries[one]["bom-ref"] for one in needed)}
            for key, needed in edges.items()
        ],
    }


def _reference(package: dict[str, Any]) -> str:
    return f"{package['name']}@{package['version']}"


def _run(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(bill(), indent=1) + "\n")
