"""What a proxy is told: the command of `waystage proxy`; of twemproxy its file and command. Starts nothing."""

from pathlib import Path

from waylab.spec import Proxy, mean_of_variate_s
from waylab.testbed.hosts import Host


def proxy_command(
    program: Path, proxy: Proxy, listen_address: str, servers: list[str], records: Path
) -> list[str]:
    """Return the command of `waystage proxy`, which takes a free port and says which."""
    command = [str(program), "proxy", "--listen", f"{listen_address}:0"]
    for server in servers:
        command += ["--server", server]
    command += ["--replicas", str(proxy.replicas), "--loops", str(proxy.loops), "--stamps", proxy.stamps]
    command += ["--backend-timeout", proxy.backend_timeout, "--dispatch", proxy.dispatch]
    for name, slots in proxy.slots().items():
        command += [f"--{name}", str(slots)]
    if proxy.dispatch == "shared":
        command += ["--multi-get", proxy.multi_get]
    if proxy.stamps != "off":
        command += ["--records", str(records), "--sample", str(proxy.sample)]
    return command


def nutcracker_command(program: Path, described: Path, host: Host) -> list[str]:
    """Return the command of twemproxy, whose port for statistics must not be that of another."""
    command = [str(program), "--conf-file", str(described), "--output", "/dev/stderr"]
    command += ["--pid-file", str(described.with_suffix(".pid"))]
    return [*command, "--stats-addr", host.address, "--stats-port", str(host.free_port())]


def nutcracker_file(proxy: Proxy, listen: str, servers: list[str]) -> str:
    """Return twemproxy's configuration: one pool, with the key distribution that `waystage proxy` has by default.

    It keeps one connection to each server, as `waystage proxy` with the discipline `pipelined` and one loop does.
    """
    timeout_ms = round(1000 * mean_of_variate_s(f"fixed:{proxy.backend_timeout}"))
    lines = [
        "backends:",
        f"  listen: {listen}",
        "  hash: md5",
        "  distribution: ketama",
        f"  timeout: {max(1, timeout_ms)}",
        "  preconnect: true",
        "  auto_eject_hosts: false",
        "  server_connections: 1",
        "  servers:",
        *(f"    - {server}:1" for server in servers),
    ]
    return "\n".join(lines) + "\n"
