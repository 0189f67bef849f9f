"""The system `nutcracker`: starts twemproxy in front of memcached servers, with a configuration file for each."""

from pathlib import Path

from waylab.spec import Proxy, mean_of_variate_s
from waylab.testbed.hosts import Host
from waylab.testbed.systems.key_value import RunningProxiedSystem


class RunningNutcrackerSystem(RunningProxiedSystem):
    """twemproxy, which cannot report the port that it took."""

    needs = frozenset({"nutcracker"})

    def start_proxy(self, index: int, servers: list[str]) -> str:
        """Start one twemproxy."""
        program, name = self.programs.nutcracker, self.name_of("proxy", index)
        assert program is not None, "a plan with twemproxy finds it first"
        host = self.host_of("proxy", index)

        def command(port: int) -> list[str]:
            described = self.directory / f"{name}.yml"
            text = nutcracker_file(self.trial.system.proxy, f"{host.address}:{port}", servers)
            described.write_text(text, encoding="utf-8")
            return _command(program, described, host)

        return self.start_on_free_port(host, name, command, drained=True)


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


def _command(program: Path, described: Path, host: Host) -> list[str]:
    """Return the command of twemproxy; each one needs its own port for statistics."""
    command = [str(program), "--conf-file", str(described), "--output", "/dev/stderr"]
    command += ["--pid-file", str(described.with_suffix(".pid"))]
    return [*command, "--stats-addr", host.address, "--stats-port", str(host.free_port())]
