"""The proxies that `proxy.py` compares: builds of this one, this one with a feature, twemproxy, any other program."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from forwarder import Forwarder
from programs import free_ports, twemproxy

# Limits that no workload reaches, so that only deciding costs something.
_RATE_LIMIT = "{ per-second = 10000000, burst = 10000000 }"
_USER, _PASSWORD = "bench", "secret"
_LOGIN = f"{_USER} {_PASSWORD}".encode()


@dataclass(frozen=True)
class Feature:
    """What is added to a proxy that has records of one request in 100.

    In lines of a configuration file, PORT is the proxy's port, and LIST and USERS are files with the servers and users.
    """

    arguments: tuple[str, ...] = ()
    # Lines before the pool. They replace the address to listen on if they have one.
    before: str = ""
    # Lines of the pool, which has no list of servers if they name a file, or lines behind it.
    pool: str = ""
    # What each client sends first, and the reply to it. A forwarder sends it, even if it is empty.
    first: bytes | None = None
    reply: bytes = b""


FEATURES: dict[str, Feature] = {
    "slow-requests": Feature(("--slow-requests", "500ms")),
    # Nothing listens at the collector, so that its CPU time is in no measurement.
    "traces": Feature(before='traces = "http://127.0.0.1:9/v1/traces"'),
    "traces-all": Feature(before='traces = "http://127.0.0.1:9/v1/traces"\ntraces-sample = 1'),
    "rate-limit": Feature(pool=f"rate-limit = {_RATE_LIMIT}"),
    # No key is hot when all are requested equally, so this is the cost for other keys.
    "near-cache": Feature(pool='near-cache = { lifetime = "5ms" }'),
    "allowed-commands": Feature(before='listen = { address = "127.0.0.1:PORT", allow = ["read", "write"] }'),
    "clients-per-address": Feature(before="clients-per-address = 10000"),
    "client-idle-timeout": Feature(before='client-idle-timeout = "5m"'),
    "no-hot-keys": Feature(("--hot-keys", "0")),
    "no-stamps": Feature(("--stamps", "off")),
    "hash-tag": Feature(("--hash-tag", "{}")),
    "servers-file": Feature(pool='servers-file = "LIST"'),
    # No workload deletes, so the other pool receives nothing.
    "delete-pools": Feature(
        pool='delete-pools = ["other"]\n[[pools]]\nname = "other"\nservers = ["127.0.0.1:9"]'
    ),
    # The keys of the workloads with the usual values begin like this.
    "route": Feature(pool='[[routes]]\nprefix = "128-"\npool = "main"'),
    "strip-prefix": Feature(pool='[[routes]]\nprefix = "128-"\npool = "main"\nstrip-prefix = true'),
    "replace-prefix": Feature(pool='[[routes]]\nprefix = "128-"\npool = "main"\nreplace-prefix = "x-"'),
    # Only a forwarder, to compare the next two with.
    "forwarder": Feature(first=b""),
    "proxy-protocol": Feature(
        before='proxy-protocol = "127.0.0.1:PORT"', first=b"PROXY TCP4 192.0.2.1 192.0.2.2 5000 11211\r\n"
    ),
    "client-auth": Feature(
        before='client-auth-file = "USERS"',
        first=b"set auth 0 0 %d\r\n%b\r\n" % (len(_LOGIN), _LOGIN),
        reply=b"STORED\r\n",
    ),
    "replicas-3": Feature(("--replicas", "3")),
    "per-backend-32": Feature(("--dispatch", "per-backend", "--readers", "32")),
    "shared-32": Feature(("--dispatch", "shared", "--workers", "32")),
}


@dataclass(frozen=True)
class System:
    """A proxy: its name, the port of its clients, the command that starts it, and its own port behind a forwarder."""

    name: str
    port: int
    command: list[str]
    port_behind: int | None = None


def waystage(name: str, path: str, servers: Sequence[str], folder: Path, feature: str = "") -> System:
    """Return a build of this proxy with one event loop, all stamps and records of one request in 100."""
    (port,) = free_ports(1)
    command = [path, "proxy", "--loops", "1", "--records", str(folder / name), "--sample", "100"]
    added = FEATURES[feature] if feature else Feature()
    listed, users = folder / f"{name}.servers", folder / f"{name}.users"
    if not (added.before or added.pool):
        command += ["--listen", f"127.0.0.1:{port}", *(f"--server={server}" for server in servers)]
    else:
        addresses = ", ".join(f'"{server}"' for server in servers)
        lines = [added.before] if "listen" in added.before else [added.before, 'listen = "127.0.0.1:PORT"']
        lines += ["[[pools]]", 'name = "main"']
        lines += [added.pool] if "LIST" in added.pool else [f"servers = [{addresses}]", added.pool]
        text = "\n".join([*lines, ""]).replace("PORT", str(port))
        listed.write_text("".join(f"{server}\n" for server in servers))
        users.write_text(f"{_USER}:{_PASSWORD}\n")
        configuration = folder / f"{name}.toml"
        configuration.write_text(text.replace("LIST", str(listed)).replace("USERS", str(users)))
        command += ["--config", str(configuration)]
    command += added.arguments
    if added.first is None:
        return System(name, port, command)
    (port_in_front,) = free_ports(1)
    Forwarder(port_in_front, port, added.first, added.reply)
    return System(name, port_in_front, command, port)


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
