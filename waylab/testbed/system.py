"""The system of one trial, wherever its roles are placed: backends, proxies, message services, load generators.

A context: whatever happens inside, on leaving no process is left behind. Knows hosts only by what they can do.
"""

import getpass
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from waylab.plan import Trial
from waylab.spec import size_bytes
from waylab.testbed import pgbench_log
from waylab.testbed.database import Database
from waylab.testbed.generators import Generator, asking_options, generators, pace_options, value_options
from waylab.testbed.hosts import Host, Testbed
from waylab.testbed.pgbench import pgbench_command, preparation
from waylab.testbed.processes import Process, TestbedError, hold_when_connected
from waylab.testbed.programs import Programs
from waylab.testbed.proxies import nutcracker_command, nutcracker_file, proxy_command
from waylab.testbed.services import messages_load_options, service_command

_PORT_ATTEMPTS = 5
_FILLED_WITHIN_S = 60.0
_MERGED_WITHIN_S = 60.0


class RunningSystem:
    """The processes of one trial, in the order in which they were started."""

    def __init__(
        self,
        trial: Trial,
        programs: Programs,
        directory: Path,
        testbed: Testbed,
        database: Database | None = None,
    ) -> None:
        self._trial = trial
        self._programs = programs
        self._testbed = testbed
        self._database = database if trial.system.databases else None
        self._database_words = ""
        self._directory = directory
        self._logs = directory / "logs"
        self._records = directory / "records"
        self.processes: list[Process] = []
        self.generators = generators(trial)
        self.server = programs.server_of(trial.system)

    def __enter__(self) -> "RunningSystem":
        self._logs.mkdir(parents=True, exist_ok=True)
        self._records.mkdir(exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def bring_up(self) -> list[str]:
        """Start backends and proxies, or services; return the addresses that the load generators go to."""
        system = self._trial.system
        if self._database:
            self._database_words = self._database.prepare(self._trial)
        if system.kind == "database":
            return []
        if system.kind == "messages":
            return [self._start_service(index) for index in range(system.services)]
        count = system.backends_for(len(self.generators))
        addresses = [self._start_backend(index, alone=count == 1) for index in range(count)]
        if not system.proxies:
            return addresses
        return [self._start_proxy(index, addresses) for index in range(system.proxies)]

    def fill(self, addresses: list[str]) -> None:
        """Set every key before several generators start; a single one does it itself.

        To fill takes one of them longer than another, and so they would not measure at the same time.
        """
        if len(self.generators) == 1 or self._trial.system.kind == "messages":
            return
        fillers = []
        for index, generator in enumerate(self.generators):
            command = self._load_command(index, generator, addresses)
            command += ["--clients", "1", "--ratio", "0:1", "--requests", "1"]
            name = generator.name.replace("load", "fill")
            fillers.append(self._start(self._load_host(index), name, command))
        for filler in fillers:
            if not filler.wait(_FILLED_WITHIN_S) or filler.exit_code != 0:
                raise TestbedError(f"{filler.name}: did not set its keys{filler.last_words()}")

    def start_load(self, addresses: list[str]) -> list[Process]:
        """Start the load generators; several are connected first, and then begin all at once."""
        if self._trial.system.kind == "database":
            return [self._start_pgbench()]
        several = len(self.generators) > 1
        loads = [
            self._start_generator(index, generator, addresses, paused=several)
            for index, generator in enumerate(self.generators)
        ]
        if several:
            for load in loads:
                load.wait_until_paused()
            self._connect(loads, addresses)
            for load in loads:
                load.go_on()
        return loads

    def _connect(self, loads: list[Process], addresses: list[str]) -> None:
        """Let the load generators connect, and hold each until all have.

        The first to begin may fill a link, through which the others would then connect for seconds.
        """
        system = self._trial.system
        of_a_client = len(addresses) if system.kind == "direct" and system.direct_to == "all" else 1
        wanted = [generator.clients * of_a_client for generator in self.generators]
        for load in loads:
            load.go_on()
        hold_when_connected(list(zip(loads, wanted, strict=True)))

    def merge(self) -> None:
        """Put the summaries of several generators together into the one of the trial."""
        parts = [str(self._directory / generator.summary) for generator in self.generators]
        command = [str(self._programs.waystage), "load", "merge", *parts]
        command += ["--json-out-file", str(self._directory / "load.json")]
        merging = self._start(Host(), "load-merge", command)
        # Its exit code is that of the load: it may say that a run was not valid, which the gates judge.
        if not merging.wait(_MERGED_WITHIN_S) or not (self._directory / "load.json").is_file():
            raise TestbedError(f"{merging.name}: the summaries cannot be merged{merging.last_words()}")

    def summarise(self) -> None:
        """Write the summary of a load that does not do so itself."""
        if self._trial.system.kind == "database":
            pgbench_log.summarise(self._trial, self._directory, self._scripts, self.generators[0].name)

    def stop(self) -> None:
        """Stop everything, the last started first; each has time to write its records."""
        for process in reversed(self.processes):
            process.ask_to_stop()
            if process.name.startswith(("proxy", "messages")):
                # What is behind them stays until they have finished what is in flight.
                process.wait(2.0)
        try:
            for process in reversed(self.processes):
                process.stop()
        except BaseException:
            for process in self.processes:
                process.stop()
            raise

    def _host(self, names: tuple[str, ...], index: int = 0) -> Host:
        return self._testbed.host(names[index % len(names)] if names else None)

    def _start(self, host: Host, name: str, command: list[str], paused: bool = False) -> Process:
        process = host.start(name, command, self._logs, paused)
        self.processes.append(process)
        return process

    def _load_host(self, index: int) -> Host:
        return self._host(self._trial.assignment.load, index)

    def _load_command(self, index: int, generator: Generator, addresses: list[str]) -> list[str]:
        """Return the part of the command that is the same for setting the keys and for the load."""
        command = [str(self._programs.waystage), "load"]
        if self._trial.system.kind == "messages":
            return [*command, *messages_load_options(self._trial, generator, index, addresses)]
        command += self._servers(index, addresses)
        command += [*value_options(self._trial.load), "--quiet"]
        command += ["--key-minimum", str(generator.key_minimum), "--key-maximum", str(generator.key_maximum)]
        return [*command, "--seed", str(generator.seed)]

    def _servers(self, index: int, addresses: list[str]) -> list[str]:
        """Return the arguments that say where a load generator goes."""
        system = self._trial.system
        if system.kind == "direct" and system.direct_to == "one":
            return ["--server", addresses[index % len(addresses)]]
        named = [part for address in addresses for part in ("--server", address)]
        if not system.proxies or len(addresses) == 1:
            return named
        # Clients take the servers in turn, so generators with few clients must not all start with the same one.
        first = 2 * (index % len(addresses))
        return [*named[first:], *named[:first], "--distribution", "any"]

    def _start_generator(
        self, index: int, generator: Generator, addresses: list[str], paused: bool
    ) -> Process:
        load = self._trial.load
        command = self._load_command(index, generator, addresses)
        command += ["--clients", str(generator.clients), "--threads", str(load.threads)]
        if self._trial.system.kind == "messages":
            command += pace_options(load, generator)
        else:
            command += ["--ratio", load.ratio, "--multi-key-get", str(load.multi_key_get)]
            command += ["--pipeline", str(load.pipeline), *asking_options(load, generator)]
        command += ["--test-time", seconds_text(load.test_time_s), "--warm-up", seconds_text(load.warm_up_s)]
        command += ["--sample", str(load.sample), "--records", str(self._records)]
        command += ["--json-out-file", str(self._directory / generator.summary)]
        command += (
            ["--no-prefill"] if len(self.generators) > 1 and self._trial.system.kind != "messages" else []
        )
        return self._start(self._load_host(index), generator.name, command, paused)

    def _start_pgbench(self) -> Process:
        assert self._programs.postgres and self._programs.postgres.pgbench and self._database
        for statement in preparation(self._trial):
            self._database.ask(statement)
        program, words = self._programs.postgres.pgbench, self._database_words
        command = pgbench_command(program, self._trial, words, self._scripts)
        return self._start(self._load_host(0), self.generators[0].name, command)

    @property
    def _scripts(self) -> Path:
        return self._directory / "pgbench"

    def _start_service(self, index: int) -> str:
        host = self._host(self._trial.assignment.messages, index)
        name = "messages" if self._trial.system.services == 1 else f"messages-{index}"
        command = service_command(
            self._programs.waystage, self._trial, host.address, self._database_words, self._records
        )
        return self._start(host, name, command).wait_until_ready()

    def _start_backend(self, index: int, alone: bool) -> str:
        host = self._host(self._trial.assignment.backends, index)
        if self.server == "memcached":
            return self._start_memcached(host, index)
        return self._start_cache(host, index, alone)

    def _start_cache(self, host: Host, index: int, alone: bool) -> str:
        backends = self._trial.system.backends
        command = [str(self._programs.waystage), "cache", "--listen", f"{host.address}:0"]
        command += ["--memory-limit", backends.memory, "--service-time", backends.service_time]
        command += ["--workers", str(backends.workers)]
        command += ["--seed", str((self._trial.seed + 7919 * backends.seed + index) % (1 << 31))]
        if self._trial.system.kind == "direct" and alone:
            # Behind a proxy the sampled requests of both sides are not the same ones: nothing could be joined.
            command += ["--records", str(self._records), "--sample", str(self._trial.load.sample)]
        return self._start(host, f"backend-{index}", command).wait_until_ready()

    def _start_memcached(self, host: Host, index: int) -> str:
        backends = self._trial.system.backends

        def command(port: int) -> list[str]:
            return [
                *(str(self._programs.memcached), "-l", host.address, "-p", str(port), "-U", "0"),
                *("-m", str(max(1, size_bytes(backends.memory) >> 20)), "-t", str(backends.threads)),
                *("-c", "16384", *(("-u", getpass.getuser()) if os.geteuid() == 0 else ())),
            ]

        return self._start_on_free_port(host, f"backend-{index}", command)

    def _start_on_free_port(self, host: Host, name: str, command: Callable[[int], list[str]]) -> str:
        """Start a program that cannot tell which port it took: try free ones until it answers on one."""
        for attempt in range(_PORT_ATTEMPTS):
            port = host.free_port()
            process = self._start(host, name, command(port))
            try:
                return process.wait_until_serving(
                    f"{host.address}:{port}", lambda port=port: host.answers(port)
                )
            except TestbedError:
                # Somebody else may have taken the port in between.
                if attempt == _PORT_ATTEMPTS - 1:
                    raise
                process.stop()
                self.processes.remove(process)
        raise AssertionError("unreachable")

    def _start_proxy(self, index: int, servers: list[str]) -> str:
        host, system = self._host(self._trial.assignment.proxy, index), self._trial.system
        name = "proxy" if system.proxies == 1 else f"proxy-{index}"
        if system.kind == "nutcracker":
            return self._start_nutcracker(host, name, servers)
        command = proxy_command(self._programs.waystage, system.proxy, host.address, servers, self._records)
        return self._start(host, name, command).wait_until_ready()

    def _start_nutcracker(self, host: Host, name: str, servers: list[str]) -> str:
        assert self._programs.nutcracker is not None

        def command(port: int) -> list[str]:
            described = self._directory / f"{name}.yml"
            address = f"{host.address}:{port}"
            described.write_text(
                nutcracker_file(self._trial.system.proxy, address, servers), encoding="utf-8"
            )
            return nutcracker_command(self._programs.nutcracker, described, host)

        return self._start_on_free_port(host, name, command)


def seconds_text(time_s: float) -> str:
    """Write seconds as the programs read them."""
    return f"{round(time_s * 1000)}ms"
