"""Builds the wheel `waystage`: the binary, and the lab with its command. `python packaging/wheel.py BINARY FOLDER`.

The wheel is written here, and not by setuptools or maturin: it is a zip file with two kinds of content that neither of
them combines without a configuration that is longer than this file.
"""

import base64
import hashlib
import platform
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from artefact import PROJECT, ROOT, VERSION, glibc, source_date, stripped

INFO = f"waystage-{VERSION}.dist-info"
# The package data of pyproject.toml.
SUFFIXES = {".py", ".typed", ".css", ".js", ".html"}
# `waylab.cli.shipped` finds them by name.
EXPERIMENTS = ("demo", "smoke")


def tag(binary: Path) -> str:
    """Return the platform of a binary in the notation of wheels."""
    return f"py3-none-manylinux_{glibc(binary).replace('.', '_')}_{platform.machine()}"


def metadata() -> str:
    """Return the description of the distribution."""
    lines = ["Metadata-Version: 2.1", "Name: waystage", f"Version: {VERSION}"]
    lines += [
        "Summary: A memcached proxy that times every stage of every request, and a lab that predicts",
        f"Requires-Python: {PROJECT['requires-python']}",
        f"License: {PROJECT['license']['text']}",
        *(f"Requires-Dist: {one}" for one in PROJECT["dependencies"]),
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + (ROOT / "README.md").read_text()


def contents(binary: Path) -> dict[str, bytes]:
    """Return every file of the wheel except the list of files."""
    files = {
        str(path.relative_to(ROOT)): path.read_bytes()
        for path in sorted((ROOT / "waylab").rglob("*"))
        if path.is_file() and (path.suffix in SUFFIXES)
    }
    kind = f"Wheel-Version: 1.0\nGenerator: waystage\nRoot-Is-Purelib: false\nTag: {tag(binary)}\n"
    scripts = "".join(f"{name} = {target}\n" for name, target in PROJECT["scripts"].items())
    for name in EXPERIMENTS:
        files[f"waylab/experiments/{name}.toml"] = (ROOT / f"experiments/{name}.toml").read_bytes()
    return files | {
        f"waystage-{VERSION}.data/scripts/waystage": binary.read_bytes(),
        f"{INFO}/METADATA": metadata().encode(),
        f"{INFO}/WHEEL": kind.encode(),
        f"{INFO}/entry_points.txt": f"[console_scripts]\n{scripts}".encode(),
        f"{INFO}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
    }


def build(binary: Path, folder: Path) -> Path:
    """Write the wheel of a release binary into a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        small = stripped(binary, Path(scratch) / "waystage")
        files, wheel = contents(small), folder / f"waystage-{VERSION}-{tag(small)}.whl"
    records = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        records.append(f"{name},sha256={digest},{len(content)}\n")
    files[f"{INFO}/RECORD"] = "".join([*records, f"{INFO}/RECORD,,\n"]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    date = time.gmtime(source_date())[:6]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            archive.writestr(entry, content)
    return wheel


if __name__ == "__main__":
    print(build(Path(sys.argv[1]), Path(sys.argv[2])))
