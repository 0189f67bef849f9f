"""What the builders of packages share: versions, the time of the commit, and what a binary needs from the system."""

import gzip
import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION: str = PROJECT["version"]


def source_date() -> int:
    """Return the time of the latest commit in Unix seconds. Files in packages have it, so that builds are equal.

    In an unpacked source archive there are no commits; `git archive` has written the time into a file there.
    """
    written = (ROOT / "packaging/commit-time").read_text().strip()
    if written.isdigit():
        return int(written)
    done = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def glibc(binary: Path) -> str:
    """Return the oldest glibc that has every symbol of a binary, for example "2.34"."""
    done = subprocess.run(["objdump", "-T", str(binary)], capture_output=True, text=True, check=True)
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_(2\.\d+)", done.stdout)}
    return ".".join(map(str, max(versions)))


def stripped(binary: Path, target: Path) -> Path:
    """Copy a binary without its debug information."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["strip", "--strip-debug", "-o", str(target), str(binary)], check=True)
    return target


def compressed(content: bytes) -> bytes:
    """Return the gzip form, without a time in it."""
    return gzip.compress(content, 9, mtime=0)
