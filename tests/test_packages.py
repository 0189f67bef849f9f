"""The wheel is installed into an empty environment, and does its main job there; the files of all packages are right.

The packages are those in WAYSTAGE_DIST, as `make release` sets it, or are built here from the release binary.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import artefact
import pytest
import sbom
import source
import wheel
from programs import ROOT, WAYSTAGE, missing

from waylab.cli.shipped import SHIPPED

UNITS = sorted((ROOT / "packaging/systemd").glob("*.service"))


def run(*command, **more) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **more
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """Return a folder with the packages, of which the Debian ones are tested in `test_debian_packages.py`."""
    given = os.environ.get("WAYSTAGE_DIST")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("dist")
    wheel.build(WAYSTAGE, folder)
    source.build(folder)
    return folder


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


@pytest.fixture(scope="module")
def environment(packages, tmp_path_factory) -> Path:
    """Return the programs of an environment in which the wheel is installed, and nothing else of ours."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder)
    programs = folder / "bin"
    whl = only(packages, "*.whl")
    run(programs / "python", "-m", "pip", "install", "--no-index", "--no-deps", whl)
    # The wheels of others are those of this environment, so that the test needs no network.
    inside = only(folder, "lib/python*/site-packages")
    (inside / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return programs


def test_the_wheel_has_both_commands_and_measures(environment, tmp_path):
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    where = run(
        environment / "python", "-c", "import waylab; print(waylab.__file__)", cwd=tmp_path, env=variables
    )
    assert Path(where.strip()).is_relative_to(environment.parent)
    assert run(environment / "waystage", "--version") == f"waystage {artefact.VERSION}\n"
    assert "trials, about" in run(environment / "waylab", "plan", "demo", cwd=tmp_path, env=variables)
    shown = run(environment / "waylab", "demo", "--help", cwd=tmp_path, env=variables)
    assert "waylab run demo" in " ".join(shown.split())
    # Without the variable and without `waystage` on the path: the lab finds the one of its own wheel.
    out = run(environment / "waylab", "run", "smoke", cwd=tmp_path, env=variables)
    report = only(tmp_path, "results/*/report.html")
    assert "report:" in out and "smoke" in report.read_text()
    described = json.loads(only(tmp_path, "results/*/environment.json").read_text())
    assert described["programs"]["waystage"]["path"] == str((environment / "waystage").resolve())


def test_the_wheel_is_complete_and_the_same_each_time(packages, tmp_path):
    names = zipfile.ZipFile(only(packages, "*.whl")).namelist()
    tracked = run("git", "ls-files", "waylab", cwd=ROOT).split()
    shipped = {f"waylab/experiments/{name}.toml" for name in SHIPPED}
    assert {name for name in names if name.startswith("waylab/")} == set(tracked) | shipped
    first, second = (wheel.build(WAYSTAGE, tmp_path / name) for name in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_the_source_archive_has_every_file_and_builds_the_same_wheel_without_git(packages, tmp_path):
    first, second = (source.build(tmp_path / name) for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    tarfile.open(only(packages, "waystage-*.tar.gz")).extractall(tmp_path, filter="data")
    tree = tmp_path / source.NAME
    found = {str(path.relative_to(tree)) for path in tree.rglob("*") if not path.is_dir()}
    assert found == set(run("git", "ls-tree", "-r", "--name-only", "-z", "HEAD", cwd=ROOT).split("\0")) - {""}
    # The folder is outside the clone, so nothing in it can ask git for the time of the commit.
    run(sys.executable, tree / "packaging/wheel.py", WAYSTAGE, tmp_path, cwd=tmp_path)
    ours, theirs = wheel.build(WAYSTAGE, tmp_path / "c"), only(tmp_path, "*.whl")
    # Changes without a commit are in our wheel only.
    if run("git", "status", "--porcelain", "waylab", "experiments", "README.md", cwd=ROOT) == "":
        assert ours.read_bytes() == theirs.read_bytes()
    assert {one.date_time for one in zipfile.ZipFile(ours).infolist()} == {
        one.date_time for one in zipfile.ZipFile(theirs).infolist()
    }


@pytest.mark.skipif(
    "WAYSTAGE_DIST" not in os.environ, reason="only packages of `make dist` are built for others"
)
def test_no_package_names_a_folder_of_the_machine_that_built_it(packages, tmp_path):
    checked = 0
    for package in packages.glob("*.deb"):
        run("dpkg-deb", "--extract", package, tmp_path / package.stem)
        checked += 1
        binary = (tmp_path / package.stem / "usr/bin/waystage").read_bytes()
        assert str(ROOT).encode() not in binary and str(Path.home()).encode() + b"/.cargo" not in binary
    assert checked == 2


def test_the_completion_of_bash_knows_the_flags(tmp_path):
    script = tmp_path / "waystage.bash"
    script.write_text(run(WAYSTAGE, "completions", "bash"))
    ask = (
        f"source {script}; COMP_WORDS=(waystage proxy --repl); COMP_CWORD=2; _waystage waystage --repl proxy"
    )
    assert run("bash", "-c", ask + '; echo "$COMPREPLY"') == "--replicas\n"


def test_the_manual_is_valid(tmp_path):
    run(WAYSTAGE, "manual", tmp_path)
    assert ".TH waystage-proxy 1" in (tmp_path / "waystage-proxy.1").read_text()
    assert "--replicas" in (tmp_path / "waystage-proxy.1").read_text().replace("\\-", "-")
    refused = subprocess.run(
        [WAYSTAGE, "manual", tmp_path / "no"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_sandboxed(unit, tmp_path):
    if missing("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    out = run("systemd-analyze", "security", "--offline=yes", "--no-pager", unit)
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", out)
    # systemd's scale from 0 to 10; below 2 is "OK".
    assert float(exposure) < 2
    for setting in (
        "DynamicUser=yes",
        "ProtectSystem=strict",
        "CapabilityBoundingSet=\n",
        "NoNewPrivileges=yes",
    ):
        assert setting in unit.read_text()


def test_the_configurations_of_the_packages_are_valid():
    for service in ("proxy", "messages"):
        run(WAYSTAGE, service, "--check", "--config", ROOT / f"packaging/{service}.toml")
    socket = (ROOT / "packaging/systemd/waystage-proxy.socket").read_text()
    (address,) = re.findall(r"^ListenStream=(.*)", socket, re.MULTILINE)
    assert f'listen = "{address}"' in (ROOT / "packaging/proxy.toml").read_text()


def test_the_container_has_no_shell_no_root_and_a_health_check():
    lines = (ROOT / "packaging/Containerfile").read_text().splitlines()
    images = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert all(re.search(r":[\w.-]+$", image) and not image.endswith(":latest") for image in images)
    assert "distroless" in images[-1] and "USER 65532:65532" in lines
    assert any(line.startswith("HEALTHCHECK ") and '"health"' in line for line in lines)
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            assert all((ROOT / name).exists() for name in line.split()[1:-1])


def test_the_container_builds_from_what_it_copies(tmp_path):
    lines = (ROOT / "packaging/Containerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    for name in (name for names in copied for name in names):
        source_path, target = ROOT / name, tmp_path / Path(name).name
        if source_path.is_dir():
            shutil.copytree(source_path, target, ignore=shutil.ignore_patterns("target"))
        else:
            shutil.copyfile(source_path, target)
    # All crates of the workspace are there, and none includes a file from outside of what was copied.
    run("cargo", "metadata", "--locked", "--offline", "--format-version", "1", cwd=tmp_path)
    for path in tmp_path.glob("crates/*/src/**/*.rs"):
        text = path.read_text().split("#[cfg(test)]")[0]
        for name in [] if path.name == "tests.rs" else re.findall(r'include_(?:str|bytes)!\("([^"]+)"', text):
            assert (path.parent / name).is_file(), f"{path}: {name}"


def test_the_bill_of_materials_names_every_package_of_the_binary():
    bill = sbom.bill()
    names = {one["name"] for one in bill["components"]}
    tree = run(
        "cargo",
        "tree",
        "--locked",
        "--offline",
        "-p",
        "waystage",
        "-e",
        "normal",
        "--prefix",
        "none",
        cwd=ROOT,
    )
    assert {line.split()[0] for line in tree.splitlines() if line} - {"waystage"} <= names
    assert not names & {"proptest", "tempfile", "testkit"}
    known = {one["bom-ref"] for one in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert all(one["ref"] in known and set(one["dependsOn"]) <= known for one in bill["dependencies"])
    assert all("hashes" in one and "licenses" in one for one in bill["components"] if "purl" in one)
