"""The Debian packages are installed into empty systems with dpkg, serve there, and tell systemd what it must know.

The packages are those in WAYSTAGE_DIST, as `make release` sets it, or are built here from the release binary.
"""

import gzip
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import artefact
import debian
import pytest
from programs import WAYSTAGE, find, free_ports, missing
from test_packages import only, run

PATIENCE_S = 60.0
PACKAGES = ("waystage", "waystage-proxy")
SCRIPTS = {"postinst", "prerm", "postrm"}
# Every service and every unit of a package, in the order in which its scripts name them.
SERVICES = {
    "waystage": "waystage-proxy.service waystage-messages.service",
    "waystage-proxy": "waystage-proxy.service",
}
UNITS = {
    "waystage": "waystage-proxy.service waystage-proxy.socket waystage-messages.service",
    "waystage-proxy": "waystage-proxy.service waystage-proxy.socket",
}
# The tools of systemd and of Debian, in systems without them. No unit has been installed before.
TOOL = """#!/bin/sh
echo "${0##*/} $*" >> /calls
[ "$1" != debian-installed ]
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="dpkg runs scripts in a chroot, which needs root")


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """Return a folder with both Debian packages."""
    if missing("dpkg", "dpkg-deb"):
        pytest.skip("needs dpkg and dpkg-deb")
    given = os.environ.get("WAYSTAGE_DIST")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("dist")
    # Here the proxy's package has the whole binary: only `make dist` builds the proxy alone.
    for package in PACKAGES:
        debian.build(package, WAYSTAGE, folder)
    return folder


def with_libraries(root: Path, program: Path) -> None:
    """Copy the libraries of a program, and its loader, from this system."""
    for line in run("ldd", program).splitlines():
        for library in re.findall(r"(/\S+)", line):
            target = root / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(os.path.realpath(library), target)
            target.chmod(0o755)


@pytest.fixture
def root(tmp_path) -> Path:
    """Return a system that has nothing but a shell, as every Debian system has one."""
    root = tmp_path / "root"
    for name in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "usr/bin", "bin", "dev"):
        (root / name).mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text("")
    # A file, because a device needs a further privilege. Scripts only write to it.
    (root / "dev/null").touch()
    shutil.copyfile(os.path.realpath("/bin/sh"), root / "bin/sh")
    (root / "bin/sh").chmod(0o755)
    with_libraries(root, root / "bin/sh")
    return root


def files(root: Path) -> set[Path]:
    """Return the files and links of a system, without the lists that dpkg keeps."""
    return {path for path in root.rglob("*") if not path.is_dir() and "var/lib/dpkg" not in str(path)}


def dpkg(root: Path, *arguments: str | Path) -> str:
    """Run dpkg on a system; its dependencies are not installed there. A script that fails is an error."""
    return run("dpkg", f"--root={root}", "--force-not-root", "--force-depends", *arguments)


def simulate_tools(root: Path, *, systemd: bool) -> None:
    """Install tools that write their calls into a file, as `calls` returns them."""
    # dpkg removes a folder that is empty after a package.
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    for name in ("systemctl", "deb-systemd-invoke", "deb-systemd-helper"):
        (root / "usr/bin" / name).write_text(TOOL)
        (root / "usr/bin" / name).chmod(0o755)
    if systemd:
        (root / "run/systemd/system").mkdir(parents=True)


def calls(root: Path) -> list[str]:
    """Return the calls of the tools since the last time, but not those that only keep the list of links."""
    file = root / "calls"
    found = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return [call for call in found if "debian-installed" not in call and "update-state" not in call]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_debian_package_serves_in_an_empty_system(packages, package, root):
    dpkg(root, "--install", only(packages, f"{package}_*.deb"))
    with_libraries(root, root / "usr/bin/waystage")
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


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_a_script_for_each_step(packages, package, tmp_path):
    run("dpkg-deb", "--control", only(packages, f"{package}_*.deb"), tmp_path)
    found = {path.name for path in tmp_path.iterdir()} - {"control", "conffiles", "md5sums"}
    assert found == SCRIPTS
    for name in SCRIPTS:
        text = (tmp_path / name).read_text()
        assert os.access(tmp_path / name, os.X_OK) and text.startswith("#!/bin/sh\n")
        # Debian's shell checks the syntax: bash accepts more.
        run("dash" if find("dash") else "sh", "-n", tmp_path / name)
        assert "@" not in text and UNITS[package] in text


@pytest.mark.parametrize("package", PACKAGES)
def test_the_documents_have_the_form_of_debian(packages, package, tmp_path):
    run("dpkg-deb", "--extract", only(packages, f"{package}_*.deb"), tmp_path)
    documents = tmp_path / "usr/share/doc" / package
    lines = gzip.decompress((documents / "changelog.gz").read_bytes()).decode().splitlines()
    assert lines[0] == f"{package} ({artefact.VERSION}) unstable; urgency=medium"
    assert re.fullmatch(r" -- .+ <\S+@\S+>  \w{3}, \d\d \w{3} \d{4} [\d:]{8} \+0000", lines[-1])
    assert "/usr/share/common-licenses/Apache-2.0" in (documents / "copyright").read_text()
    assert b"# Changelog" in gzip.decompress((documents / "CHANGELOG.md.gz").read_bytes())


@pytest.mark.parametrize("package", PACKAGES)
def test_a_system_without_systemd_is_left_as_it_was(packages, package, root):
    deb = only(packages, f"{package}_*.deb")
    for helper in (False, True):
        if helper:
            simulate_tools(root, systemd=False)
        before = files(root)
        dpkg(root, "--install", deb)
        # The same version again: dpkg runs the scripts of an upgrade.
        assert "Unpacking" in dpkg(root, "--install", deb)
        dpkg(root, "--remove", package)
        assert (root / "etc/waystage/proxy.toml").exists()
        dpkg(root, "--purge", package)
        # Only the tool that keeps the list of links is called, and nothing that speaks to systemd.
        purged = [f"deb-systemd-helper purge {unit}" for unit in UNITS[package].split()]
        assert calls(root) == (purged if helper else [])
        assert files(root) == before


@pytest.mark.parametrize("package", PACKAGES)
def test_systemd_learns_of_every_step_and_only_running_services_restart(packages, package, root):
    simulate_tools(root, systemd=True)
    deb = only(packages, f"{package}_*.deb")
    # `try-restart` starts nothing that does not run, so that it is harmless in the first installation.
    configured = ["systemctl --system daemon-reload", f"deb-systemd-invoke try-restart {SERVICES[package]}"]
    dpkg(root, "--install", deb)
    assert calls(root) == configured
    dpkg(root, "--install", deb)
    assert calls(root) == configured
    dpkg(root, "--remove", package)
    assert calls(root) == [f"deb-systemd-invoke stop {UNITS[package]}", "systemctl --system daemon-reload"]
    dpkg(root, "--purge", package)
    assert calls(root) == [f"deb-systemd-helper purge {unit}" for unit in UNITS[package].split()]


@pytest.mark.parametrize(("first", "second"), [PACKAGES, PACKAGES[::-1]], ids=["to-proxy", "to-full"])
def test_one_package_replaces_the_other_and_keeps_its_configuration(packages, first, second, root):
    simulate_tools(root, systemd=True)
    dpkg(root, "--install", only(packages, f"{first}_*.deb"))
    configuration = root / "etc/waystage/proxy.toml"
    changed = configuration.read_text().replace("127.0.0.1:11211", "10.0.0.7:11211")
    configuration.write_text(changed)
    calls(root)
    dpkg(root, "--install", "--force-confold", only(packages, f"{second}_*.deb"))
    # The old package stops its services, and the new one starts none: docs/install.md says so.
    assert calls(root) == [
        f"deb-systemd-invoke stop {UNITS[first]}",
        "systemctl --system daemon-reload",
        "systemctl --system daemon-reload",
        f"deb-systemd-invoke try-restart {SERVICES[second]}",
    ]
    dpkg(root, "--purge", first)
    purged = set(UNITS[first].split()) - set(UNITS[second].split())
    assert set(calls(root)) == {f"deb-systemd-helper purge {unit}" for unit in purged}
    assert configuration.read_text() == changed


def test_purging_removes_the_links_of_enabled_units(packages, root):
    """Run Debian's own tool on the system, from outside of it: it needs Perl."""
    if missing("deb-systemd-helper"):
        pytest.skip("needs init-system-helpers")
    deb = only(packages, "waystage_*.deb")
    outside = "--force-script-chrootless"
    dpkg(root, outside, "--install", deb)
    wants = root / "etc/systemd/system/multi-user.target.wants"
    assert not wants.exists(), "the package enables nothing"
    wants.mkdir(parents=True)
    link = wants / "waystage-proxy.service"
    # As `systemctl enable` makes it.
    link.symlink_to("/lib/systemd/system/waystage-proxy.service")
    dpkg(root, outside, "--install", deb)
    assert link.is_symlink()
    assert not (wants / "waystage-messages.service").is_symlink()
    dpkg(root, outside, "--remove", "waystage")
    assert link.is_symlink(), "a service that is installed again is still enabled"
    dpkg(root, outside, "--purge", "waystage")
    assert not link.is_symlink()
