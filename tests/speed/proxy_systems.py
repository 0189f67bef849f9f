"""The proxies that `proxy.py` compares: builds of this one, this one with a feature, twemproxy, any other program."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from programs import free_ports, twemproxy

# Limits that no workload reaches, so that only deciding costs something.
_RATE_LIMIT = "{ per-second = 10000000, burst = 10000000 }"
# What each feature adds to a proxy that has records of one request in 100: arguments, or lines of a configuration file.
FEATURES: dict[str, tuple[tuple[str, ...], str]] = {
    "slow-requests": (("--slow-requests", "500ms"), ""),
    "rate-limit": ((), f"rate-limit = {_RATE_LIMIT}"),
    "allowed-commands": ((), 'listen = { address = "127.0.0.1:PORT", allow = ["read", "write"] }'),
    "replicas-3": (("--replicas", "3"), ""),
    "per-backend-32": (("--dispatch", "per-backend", "--readers", "32"), ""),
    "shared-32": (("--dispatch", "shared", "--workers", "32"), ""),
}


@dataclass(frozen=True)
class System:
    """A proxy: its name, its port and the command that starts it."""

    name: str
    port: int
    command: list[str]


def waystage(name: str, path: str, servers: Sequence[str], folder: Path, feature: str = "") -> System:
    """Return a build of this proxy with one event loop, all stamps and records of one request in 100."""
    (port,) = free_ports(1)
    command = [path, "proxy", "--loops", "1", "--records", str(folder / name), "--sample", "100"]
    options, setting = FEATURES[feature] if feature else ((), "")
    if not setting:
        command += ["--listen", f"127.0.0.1:{port}", *(f"--server={server}" for server in servers)]
        return System(name, port, [*command, *options])
    addresses = ", ".join(f'"{server}"' for server in servers)
    lines = ["[[pools]]", 'name = "main"', f"servers = [{addresses}]"]
    # A listener belongs to no pool, so its line comes first.
    lines.insert(0 if setting.startswith("listen") else len(lines), setting.replace("PORT", str(port)))
    if not setting.startswith("listen"):
        lines.insert(0, f'listen = "127.0.0.1:{port}"')
    configuration = folder / f"{name}.toml"
    configuration.write_text("\n".join([*lines, ""]))
    return System(name, port, [*command, "--config", str(configuration), *options])


def twemproxy_system(servers: Sequence[str], folder: Path) -> System:
    """Return twemproxy with the distribution that is this proxy's default."""
    settings = {"hash": "md5", "distribution": "ketama", "preconnect": "true", "auto_eject_hosts": "false"}
    port, command = twemproxy(folder, servers, **settings)
    return System("twemproxy", port, command)


def other(name: str, template: str, servers: Sequence[str]) -> System:
    """Return a program whose command is a template with {port} and {servers}, the servers joined by commas."""
    (port,) = free_ports(1)
    words = shlex.split(template)
    return System(name, port, [word.format(port=port, servers=",".join(servers)) for word in words])
