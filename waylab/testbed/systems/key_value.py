"""The common part of all systems whose load reads and writes keys of memcached servers: the servers and the load.

A server is memcached, or `waystage cache` if the service time is set or memcached is not installed.
"""

import getpass
import os
from abc import abstractmethod

from waylab.spec import size_bytes
from waylab.testbed.generators import Generator, key_and_pace_options, value_options
from waylab.testbed.hosts import Host
from waylab.testbed.processes import TestbedError
from waylab.testbed.systems.running import RunningSystem

_FILLED_WITHIN_S = 60.0


class RunningKeyValueSystem(RunningSystem):
    """Backends, and a load of keys and values."""

    @property
    def server(self) -> str:
        """`memcached` or `embedded`."""
        backends = self.trial.system.backends
        return self.programs.server_for(backends.server, backends.service_time)

    def start_backends(self, records: bool = False) -> list[str]:
        """Start the servers and return their addresses; with `records` the embedded one leaves a record file."""
        return [self._start_backend(index, records) for index in range(self.counts["backends"])]

    def prefill(self, addresses: list[str]) -> None:
        """Set every key before several generators start; a single generator does so itself.

        Otherwise generators would finish their prefill at different times, and not measure at the same time.
        """
        if len(self.generators) == 1:
            return
        fillers = []
        for index, generator in enumerate(self.generators):
            command = self.load_command(index, generator, addresses)
            command += ["--clients", "1", "--ratio", "0:1", "--requests", "1"]
            name = generator.name.replace("load", "fill")
            host = self.testbed.filling_host(self.host_of("load", index).name)
            fillers.append(self.start(host, name, command))
        for filler in fillers:
            if not filler.wait(_FILLED_WITHIN_S * self.trial.time_scale) or filler.exit_code != 0:
                raise TestbedError(f"{filler.name}: did not set its keys{filler.last_error_line()}")

    def server_options(self, index: int, addresses: list[str]) -> list[str]:
        """Return the arguments for the servers that one generator uses."""
        return [part for address in addresses for part in ("--server", address)]

    def target_options(self, index: int, generator: Generator, addresses: list[str]) -> list[str]:
        """Servers, values, and the generator's own keys."""
        keys = ["--key-minimum", str(generator.key_minimum), "--key-maximum", str(generator.key_maximum)]
        return [*self.server_options(index, addresses), *value_options(self.trial.load), *keys]

    def request_options(self, generator: Generator) -> list[str]:
        """The mix of sets and gets, and when they are sent."""
        load = self.trial.load
        options = ["--ratio", load.ratio, "--multi-key-get", str(load.multi_key_get)]
        options += ["--pipeline", str(load.pipeline), *key_and_pace_options(load, generator)]
        return [*options, "--no-prefill"] if len(self.generators) > 1 else options

    def _start_backend(self, index: int, records: bool) -> str:
        host = self.host_of("backends", index)
        if self.server == "memcached":
            return self._start_memcached(host, index)
        return self._start_cache(host, index, records)

    def _start_cache(self, host: Host, index: int, records: bool) -> str:
        backends = self.trial.system.backends
        command = [str(self.waystage), "cache", "--listen", f"{host.address}:0"]
        command += ["--memory-limit", backends.memory, "--service-time", backends.service_time]
        command += ["--workers", str(backends.workers)]
        command += ["--seed", str((self.trial.seed + 7919 * backends.seed + index) % (1 << 31))]
        if records:
            command += ["--records", str(self.records), "--sample", str(self.trial.load.sample)]
        return self.start(host, f"backend-{index}", command).wait_until_ready()

    def _start_memcached(self, host: Host, index: int) -> str:
        backends = self.trial.system.backends

        def command(port: int) -> list[str]:
            return [
                *(str(self.programs.memcached), "-l", host.address, "-p", str(port), "-U", "0"),
                *("-m", str(max(1, size_bytes(backends.memory) >> 20)), "-t", str(backends.threads)),
                *("-c", "16384", *(("-u", getpass.getuser()) if os.geteuid() == 0 else ())),
            ]

        return self.start_on_free_port(host, f"backend-{index}", command)


class RunningProxiedSystem(RunningKeyValueSystem):
    """Backends behind proxies; a subclass starts one proxy."""

    # The addresses of the servers behind the proxies.
    servers: list[str]

    def start_servers(self) -> list[str]:
        """Start the servers, then the proxies, whose addresses the load uses."""
        self.servers = self.start_backends()
        return [self.start_proxy(index, self.servers) for index in range(self.counts["proxy"])]

    @abstractmethod
    def start_proxy(self, index: int, servers: list[str]) -> str:
        """Start one proxy in front of the servers, wait until it is ready and return its address."""

    def server_options(self, index: int, addresses: list[str]) -> list[str]:
        """All proxies; each client connects to one."""
        named = super().server_options(index, addresses)
        if len(addresses) == 1:
            return named
        # Clients use the servers in turn, so generators with few clients must not all start with the same one.
        first = 2 * (index % len(addresses))
        return [*named[first:], *named[:first], "--distribution", "any"]
