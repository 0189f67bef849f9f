"""Each package is installed into an empty environment, and does its main job there.

The packages are those in WAYSTAGE_DIST, as `make release` sets it, or are built here from the release binary.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

import artefact
import debian
import pytest
import sbom
import wheel
from programs import ROOT, WAYSTAGE, free_ports, missing

from waylab.cli.shipped import SHIPPED

UNITS = sorted((ROOT / "packaging/systemd").glob("*.service"))
PATIENCE_S = 60.0


def run(*command, **more) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **more
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """Return a folder with all packages."""
    given = os.environ.get("WAYSTAGE_DIST")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("dist")
    wheel.build(WAYSTAGE, folder)
    # Here the proxy's package has the whole binary: only `make dist` builds the proxy alone.
    for package in ("waystage", "waystage-proxy"):
        debian.build(package, WAYSTAGE, folder)
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


def unpacked(package: Path, root: Path) -> Path:
    """Install a package with dpkg into an empty system, and return its root."""
    for name in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "usr/bin"):
        (root / name).mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text("")
    run("dpkg", f"--root={root}", "--force-not-root", "--force-depends", "--install", package)
    # What the package depends on: the C library and its loader, from this system.
    for line in run("ldd", root / "usr/bin/waystage").splitlines():
        for library in re.findall(r"(/\S+)", line):
            target = root / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(os.path.realpath(library), target)
            target.chmod(0o755)
    return root


@pytest.mark.parametrize("package", ["waystage", "waystage-proxy"])
def test_a_debian_package_serves_in_an_empty_system(packages, package, tmp_path):
    if missing("dpkg", "dpkg-deb") or os.geteuid() != 0:
        pytest.skip("needs dpkg, and root for chroot")
    root = unpacked(only(packages, f"{package}_*.deb"), tmp_path / "root")
    inside = ["chroot", str(root), "/usr/bin/waystage"]
    assert "listen   127.0.0.1:11311" in run(
        *inside, "proxy", "--check", "--config", "/etc/waystage/proxy.toml"
    )
    server, proxy, metrics = free_ports(3)
    addresses = ["--listen", f"127.0.0.1:{proxy}", "--metrics", f"127.0.0.1:{metrics}"]
    commands = [
        [str(WAYSTAGE), "cache", "--listen", f"127.0.0.1:{server}"],
        [*inside, "proxy", "--server", f"127.0.0.1:{server}", *addresses],
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [subprocess.Popen(command, **quiet) for command in commands]
    try:
        deadline = time.monotonic() + PATIENCE_S
        health = [*inside, "health", f"127.0.0.1:{metrics}"]
        while subprocess.run(health, capture_output=True, check=False).returncode != 0:
            assert time.monotonic() < deadline, "the proxy does not become ready"
            time.sleep(0.1)
        load = [
            "load",
            "--server",
            f"127.0.0.1:{proxy}",
            "--requests",
            "1000",
            "--key-maximum",
            "100",
            "--quiet",
        ]
        assert "VALID" in run(WAYSTAGE, *load)
    finally:
        for process in started:
            process.terminate()
            process.wait()
    assert subprocess.run(health, capture_output=True, check=False).returncode == 1, "nothing serves any more"
    pages = {path.name for path in (root / "usr/share/man/man1").iterdir()}
    assert {"waystage.1.gz", "waystage-proxy.1.gz", "waystage-proxy-route.1.gz"} <= pages
    for name in debian.SHELLS.values():
        assert "proxy" in (root / name).read_text()


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
