"""Builds the Debian packages: `python packaging/debian.py FULL_BINARY PROXY_BINARY FOLDER`.

`waystage` has all programs, `waystage-proxy` the proxy alone. Neither starts anything when it is installed.
"""

import os
import subprocess
import sys
import tempfile
from email.utils import formatdate
from pathlib import Path

from artefact import ROOT, VERSION, compressed, glibc, source_date, stripped

UNITS = ROOT / "packaging/systemd"
SCRIPTS = ROOT / "packaging/maintainer-scripts"
SHELLS = {
    "bash": "usr/share/bash-completion/completions/waystage",
    "zsh": "usr/share/zsh/vendor-completions/_waystage",
    "fish": "usr/share/fish/vendor_completions.d/waystage.fish",
}
DESCRIPTIONS = {
    "waystage": "memcached proxy that times every stage of every request, and its tools\n"
    " The proxy, a load generator, a test server, a message service over PostgreSQL\n and a simulator.",
    "waystage-proxy": "memcached proxy that times every stage of every request\n"
    " The proxy alone, without the other programs.",
}
MAINTAINER = "The maintainers of Waystage <maintainers@waystage.invalid>"
# Debian has the text of this licence on every system (Debian Policy, 12.5).
COPYRIGHT = """Copyright: the authors of Waystage
License: Apache-2.0

On Debian systems, the text of the licence is in /usr/share/common-licenses/Apache-2.0.
"""
OTHER = {"waystage": "waystage-proxy", "waystage-proxy": "waystage"}
# What each package installs besides the binary: its units and its configuration.
SERVICES = {"waystage": ["proxy", "messages"], "waystage-proxy": ["proxy"]}


def write(root: Path, name: str, content: bytes, mode: int = 0o644) -> None:
    """Write one file of a package."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def control(package: str, binary: Path, kilobytes: int) -> str:
    """Return the description of a package."""
    machine = subprocess.run(
        ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
    ).stdout
    fields = {
        "Package": package,
        "Version": VERSION,
        "Architecture": machine.strip(),
        "Maintainer": MAINTAINER,
        "Installed-Size": str(kilobytes),
        "Depends": f"libc6 (>= {glibc(binary)}), libgcc-s1",
        "Conflicts": OTHER[package],
        "Replaces": OTHER[package],
        "Provides": OTHER[package] if package == "waystage" else "",
        "Section": "net",
        "Priority": "optional",
        "Description": DESCRIPTIONS[package],
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items() if value)


def changelog(package: str) -> str:
    """Return a changelog in Debian's form, which names the one of the project."""
    day = formatdate(source_date()).replace("-0000", "+0000")
    return (
        f"{package} ({VERSION}) unstable; urgency=medium\n\n"
        f"  * The changes are in /usr/share/doc/{package}/CHANGELOG.md.gz.\n\n -- {MAINTAINER}  {day}\n"
    )


def units(package: str) -> list[Path]:
    """Return the files of the systemd units that a package has."""
    return [path for service in SERVICES[package] for path in sorted(UNITS.glob(f"waystage-{service}.*"))]


def maintainer_scripts(package: str) -> dict[str, str]:
    """Return the scripts that dpkg runs when it installs, upgrades and removes a package, by their names."""
    names = [path.name for path in units(package)]
    services = [name for name in names if name.endswith(".service")]
    return {
        path.name: path.read_text()
        .replace("@UNITS@", " ".join(names))
        .replace("@SERVICES@", " ".join(services))
        for path in sorted(SCRIPTS.iterdir())
    }


def fill(package: str, binary: Path, root: Path) -> None:
    """Write the tree of a package."""
    program = stripped(binary, root / "usr/bin/waystage")
    program.chmod(0o755)
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([program, "manual", scratch], check=True)
        for page in sorted(Path(scratch).iterdir()):
            write(root, f"usr/share/man/man1/{page.name}.gz", compressed(page.read_bytes()))
    for shell, name in SHELLS.items():
        done = subprocess.run([program, "completions", shell], capture_output=True, check=True)
        write(root, name, done.stdout)
    for unit in units(package):
        write(root, f"lib/systemd/system/{unit.name}", unit.read_bytes())
    for service in SERVICES[package]:
        write(root, f"etc/waystage/{service}.toml", (ROOT / f"packaging/{service}.toml").read_bytes())
        for example in sorted((ROOT / "examples" / service).glob("*.toml")):
            write(root, f"usr/share/doc/{package}/examples/{service}/{example.name}", example.read_bytes())
    documents = f"usr/share/doc/{package}"
    write(root, f"{documents}/copyright", COPYRIGHT.encode())
    write(root, f"{documents}/CHANGELOG.md.gz", compressed((ROOT / "CHANGELOG.md").read_bytes()))
    write(root, f"{documents}/changelog.gz", compressed(changelog(package).encode()))


def build(package: str, binary: Path, folder: Path) -> Path:
    """Write one package into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        root.chmod(0o755)
        fill(package, binary, root)
        files = [path for path in root.rglob("*") if path.is_file()]
        kilobytes = sum(path.stat().st_size for path in files) // 1024
        write(root, "DEBIAN/control", control(package, root / "usr/bin/waystage", kilobytes).encode())
        configurations = "".join(f"/etc/waystage/{service}.toml\n" for service in SERVICES[package])
        write(root, "DEBIAN/conffiles", configurations.encode())
        for name, text in maintainer_scripts(package).items():
            write(root, f"DEBIAN/{name}", text.encode(), 0o755)
        for path in root.rglob("*"):
            if path.is_dir():
                path.chmod(0o755)
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(source_date())}
        command = ["dpkg-deb", "--build", "--root-owner-group", "-Zxz", str(root), str(folder)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return folder / Path(done.stdout.split("'")[3]).name


if __name__ == "__main__":
    print(build("waystage", Path(sys.argv[1]), Path(sys.argv[3])))
    print(build("waystage-proxy", Path(sys.argv[2]), Path(sys.argv[3])))
