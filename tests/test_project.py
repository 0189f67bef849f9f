"""What a project states in several places is the same everywhere: versions, the oldest tools, the changelog."""

import json
import re
import subprocess
import sys
import tomllib

import pytest
from programs import ROOT

CARGO = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
PYTHON = tomllib.loads((ROOT / "pyproject.toml").read_text())
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
# In these sections of the changelog, behaviour that users rely on is different.
USERS_MUST_ACT = {"Changed", "Deprecated", "Removed"}
TEXTS = [ROOT / "Makefile", *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def wrong_versions(text: str) -> list[str]:
    """Return the oldest versions of Rust and Python that a text states, and that are not those of the project."""
    stated = re.findall(r"\b(Rust|Python) (\d+\.\d+)(?: or newer|\+)", text)
    oldest = {
        "Rust": CARGO["rust-version"],
        "Python": PYTHON["project"]["requires-python"].removeprefix(">="),
    }
    return [f"{name} {number}" for name, number in stated if number != oldest[name]]


def test_every_page_states_the_same_oldest_versions():
    assert [(path.name, wrong) for path in TEXTS if (wrong := wrong_versions(path.read_text()))] == []
    assert wrong_versions("needs Rust 1.2 or newer and Python 3.11 or newer") == ["Rust 1.2"]
    # The page for new users must state both.
    stated = (ROOT / "docs/start/README.md").read_text()
    assert f"Rust {CARGO['rust-version']} or newer" in stated and "Python 3.11 or newer" in stated


def test_the_checkers_use_the_oldest_python():
    oldest = PYTHON["project"]["requires-python"].removeprefix(">=")
    assert PYTHON["tool"]["mypy"]["python_version"] == oldest
    assert PYTHON["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    major, minor = version(oldest)
    assert f"sys.version_info < ({major}, {minor})" in (ROOT / "Makefile").read_text()
    assert sys.version_info >= (major, minor)


def test_every_locked_package_builds_with_the_oldest_rust():
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cargo cannot list the packages: {done.stderr.strip().splitlines()[-1]}")
    packages = json.loads(done.stdout)["packages"]
    oldest = version(CARGO["rust-version"])
    newer = [
        f"{package['name']} {package['version']} needs Rust {package['rust_version']}"
        for package in packages
        if package["rust_version"] and version(package["rust_version"])[:2] > oldest[:2]
    ]
    assert len(packages) > 100 and newer == []
    ours = [package for package in packages if package["source"] is None]
    assert all(package["publish"] == [] for package in ours), "decision 0021: no crate is published"


def test_both_halves_have_the_version_of_the_changelog():
    assert PYTHON["project"]["version"] == CARGO["version"]
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    assert {one["version"] for one in lock if one["name"] == "waystage"} == {CARGO["version"]}
    released = re.findall(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert not released or released[0] == CARGO["version"]


def mistakes(changelog: str) -> list[str]:
    """Return what a changelog has that Keep a Changelog does not allow, and changes without what users must do."""
    found = []
    if not re.search(r"^## \[Unreleased\]$", changelog, re.MULTILINE):
        found.append("no [Unreleased]")
    kind = ""
    for line in changelog.splitlines():
        if line.startswith("## ") and not re.fullmatch(
            r"## \[(Unreleased|\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d)\]?", line
        ):
            found.append(line)
        if line.startswith("### "):
            kind = line.removeprefix("### ")
            found += [line] if kind not in KINDS else []
        if line.startswith("- ") and kind in USERS_MUST_ACT and "**Do:**" not in line:
            found.append(line)
    return found


def test_the_changelog_says_what_users_must_do():
    assert mistakes((ROOT / "CHANGELOG.md").read_text()) == []
    head = "## [Unreleased]\n"
    assert mistakes("# Changelog\n") == ["no [Unreleased]"]
    assert mistakes(head + "## 1.0\n### New\n") == ["## 1.0", "### New"]
    assert mistakes(head + "## [1.0.0] - 2026-01-02\n### Added\n- a\n### Changed\n- b\n- c. **Do:** d\n") == [
        "- b"
    ]
