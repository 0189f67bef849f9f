"""Describes the programs with their hashes, the machine and the versions of a run, so that others can judge it."""

import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import psutil

from waylab.runfolder import paths
from waylab.runfolder.environment import Environment, Program, Source
from waylab.runfolder.trial import MachineState
from waylab.testbed import Programs
from waylab.version import __version__

# Before the name of a program that the specification describes itself.
COMMAND = "command"
_ASKED = ["--version"]
_PACKAGES = ["numpy", "scipy", "altair", "vl-convert-python", "hdrhistogram", "psutil", "pyroute2", "rich"]


def environment(programs: Programs) -> Environment:
    """Describe programs and machine."""
    postgres = programs.postgres.folder / "postgres" if programs.postgres else None
    return Environment(
        format=paths.ENVIRONMENT_FORMAT,
        taken_unix_s=round(time.time(), 3),
        waylab=__version__,
        python=sys.version.split()[0],
        packages={name: _version(name) for name in _PACKAGES},
        programs={
            "waystage": _program(programs.waystage),
            "memcached": _program(programs.memcached),
            "nutcracker": _program(programs.nutcracker),
            "postgres": _program(postgres),
            **{f"waystage {name}": _program(path) for name, path in programs.versions.items()},
            **{
                f"{COMMAND} {name}": _program(path, programs.version_arguments.get(name))
                for name, path in programs.commands.items()
            },
        },
        source=_source(programs.waystage),
        kernel=platform.release(),
        system=f"{platform.system()} {platform.machine()}",
        processor=_processor(),
        cores=psutil.cpu_count(logical=True),
        cores_physical=psutil.cpu_count(logical=False),
        cores_usable=len(os.sched_getaffinity(0)),
        governor=_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        clock_source=_line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        transparent_hugepages=_line("/sys/kernel/mm/transparent_hugepage/enabled"),
        memory_bytes=psutil.virtual_memory().total,
        virtual_machine=" hypervisor " in f" {_processor_flags()} ",
        load_average=list(os.getloadavg()),
    )


def machine_now() -> MachineState:
    """Read what may change between trials: load average and steal time since boot."""
    return MachineState(
        clock_ns=time.monotonic_ns(),
        load_average=list(os.getloadavg()),
        steal_s=getattr(psutil.cpu_times(), "steal", 0.0),
        memory_available_bytes=psutil.virtual_memory().available,
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _program(path: Path | None, arguments: list[str] | None = _ASKED) -> Program | None:
    """Describe a program; without arguments for it, it is not asked for its version, because it might do anything."""
    if path is None:
        return None
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    version = _output([str(path), *arguments]) if arguments else None
    return Program(path=str(path), version=version, sha256=sha256)


def _source(waystage: Path) -> Source | None:
    """Return the commit that the program was built from, if its folder is a repository."""
    commit = _output(["git", "-C", str(waystage.parent), "rev-parse", "HEAD"])
    if not commit or " " in commit:
        return None
    changed = _output(["git", "-C", str(waystage.parent), "status", "--porcelain", "--untracked-files=no"])
    return Source(commit=commit, changed=bool(changed))


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # nutcracker prints its version on standard error.
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return lines[0].strip() if lines and done.returncode == 0 else None


def _processor() -> str:
    for line in _text("/proc/cpuinfo").splitlines():
        if line.lower().startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _processor_flags() -> str:
    for line in _text("/proc/cpuinfo").splitlines():
        if line.startswith("flags"):
            return line
    return ""


def _line(path: str) -> str | None:
    return _text(path).strip() or None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
