"""Functions 5 to 7 of docs/life-of-an-experiment.md: the running half of a system, the processes of one trial.

A context: leaving it stops every process, also after an error. Knows no system by name.
A host runs the programs: `testbed/hosts.py` on this machine, `testbed/netns` with its own cores and links.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import ClassVar

from waylab.plan import Trial
from waylab.runfolder import paths
from waylab.testbed.generators import Generator, generators
from waylab.testbed.hosts import Host, Testbed
from waylab.testbed.processes import Process, TestbedError, pause_when_connected
from waylab.testbed.programs import Programs
from waylab.testbed.run_database import RunDatabase

_PORT_ATTEMPTS = 5
_MERGED_WITHIN_S = 60.0
# Time for a drained program to finish its requests in flight.
_DRAINED_WITHIN_S = 2.0
# The default of the load generator, which is multiplied by the time scale.
_REPLY_TIMEOUT_S = 10.0


class RunningSystem(ABC):
    """The processes of one trial, in the order in which they were started."""

    # The programs that the system needs beside `waystage`, servers and PostgreSQL, by their names in `Programs`.
    needs: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        trial: Trial,
        programs: Programs,
        directory: Path,
        testbed: Testbed,
        database: RunDatabase | None = None,
    ) -> None:
        self.trial = trial
        self.programs = programs
        # The program of the system; the load generator is the same for all arms of an experiment.
        self.waystage = Path(trial.system.program or programs.waystage)
        self.testbed = testbed
        self.directory = directory
        self.records = directory / "records"
        self.processes: list[Process] = []
        self.generators = generators(trial)
        # The host and the address of the metrics of each process that has some.
        self.metrics: dict[str, tuple[Host, str]] = {}
        # The addresses of metrics with stage times that this machine can read, by process; only if a page follows.
        self.stage_metrics: dict[str, str] = {}
        self.database = database if "database" in self.counts else None
        self.logs = directory / "logs"
        self._drained: list[Process] = []

    def __enter__(self) -> "RunningSystem":
        self.logs.mkdir(parents=True, exist_ok=True)
        self.records.mkdir(exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def counts(self) -> dict[str, int]:
        """The number of programs of each role beside the load."""
        return self.trial.system.programs(self.trial.assignment.generators)

    @property
    @abstractmethod
    def server(self) -> str:
        """The name of the program behind all others."""

    @abstractmethod
    def start_servers(self) -> list[str]:
        """Start everything but the load and wait until it is ready; return the addresses for the load."""

    @abstractmethod
    def target_options(self, index: int, generator: Generator, addresses: list[str]) -> list[str]:
        """Return the arguments of `waystage load` for the targets and the data of one generator."""

    @abstractmethod
    def request_options(self, generator: Generator) -> list[str]:
        """Return the arguments of `waystage load` for the requests of one generator and their times."""

    def prefill(self, addresses: list[str]) -> None:
        """Store data before several generators start; a single generator does so itself."""
        return

    def start_load(self, addresses: list[str]) -> list[Process]:
        """Start the load generators. Several generators first connect, and then all start at once."""
        several = len(self.generators) > 1
        if several and self.testbed.samples:
            of_a_client = self.connections_of_a_client(addresses)
            return self.testbed.start_together(
                [
                    (
                        partial(self._start_generator, index, generator, addresses, paused=False),
                        generator.clients * of_a_client,
                    )
                    for index, generator in enumerate(self.generators)
                ]
            )
        loads = [
            self._start_generator(index, generator, addresses, paused=several)
            for index, generator in enumerate(self.generators)
        ]
        if several:
            for load in loads:
                load.wait_until_paused()
            self._connect(loads, addresses)
            for load in loads:
                load.resume()
        return loads

    def connections_of_a_client(self, addresses: list[str]) -> int:
        """Return the number of connections that each client of the load opens."""
        return 1

    def write_summary(self) -> None:
        """Write the summary of a load generator that does not write one."""
        return

    def merge_summaries(self) -> None:
        """Merge the summaries of several generators into the summary of the trial."""
        parts = [str(self.directory / generator.summary) for generator in self.generators]
        command = [str(self.programs.waystage), "load", "merge", *parts]
        command += ["--json-out-file", str(self.directory / "load.json")]
        merging = self.start(Host(), "load-merge", command)
        # Its exit code reports whether the run was valid; the gates decide that from the summary.
        if not merging.wait(_MERGED_WITHIN_S) or not (self.directory / "load.json").is_file():
            raise TestbedError(f"{merging.name}: the summaries cannot be merged{merging.last_error_line()}")

    def stop(self) -> None:
        """Stop everything, the last started first; each process has time to write its records."""
        for process in reversed(self.processes):
            process.request_stop()
            if process in self._drained:
                # The programs behind it continue until it has finished its requests in flight.
                process.wait(_DRAINED_WITHIN_S)
        try:
            for process in reversed(self.processes):
                process.stop()
        except BaseException:
            for process in self.processes:
                process.stop()
            raise

    def host_of(self, role: str, index: int = 0) -> Host:
        """Return the host of one program of a role; several programs use the hosts of their role in turn."""
        names = self.trial.assignment.of(role)
        return self.testbed.host(names[index % len(names)] if names else None)

    def serves_stages(self, host: Host) -> bool:
        """Return whether a program on this host should serve its stage times: a page follows, and can reach it."""
        return self.testbed.live and not host.own_network

    def name_of(self, role: str, index: int) -> str:
        """Return the name of one program's process: that of its role, and a number if there are several."""
        return role if self.counts[role] == 1 else f"{role}-{index}"

    def start(
        self, host: Host, name: str, command: list[str], paused: bool = False, drained: bool = False
    ) -> Process:
        """Start a process; a `drained` process finishes its requests before those behind it are stopped."""
        process = host.start(name, command, self.logs, paused)
        self.processes.append(process)
        if drained:
            self._drained.append(process)
        return process

    def start_on_free_port(
        self, host: Host, name: str, command: Callable[[int], list[str]], drained: bool = False
    ) -> str:
        """Start a program that cannot report its port: try free ports until it answers on one."""
        for attempt in range(_PORT_ATTEMPTS):
            port = host.free_port()
            process = self.start(host, name, command(port), drained=drained)
            try:
                return process.wait_until_serving(f"{host.address}:{port}", partial(host.answers, port))
            except TestbedError:
                # Another program may have used the port first.
                if attempt == _PORT_ATTEMPTS - 1:
                    raise
                process.stop()
                self.processes.remove(process)
        raise AssertionError("unreachable")

    def load_command(self, index: int, generator: Generator, addresses: list[str]) -> list[str]:
        """Return the part of the command that is the same for filling the servers and for the load."""
        target = self.target_options(index, generator, addresses)
        command = [str(self.programs.waystage), "load", *target, "--seed", str(generator.seed), "--quiet"]
        if self.trial.time_scale == 1:
            return command
        return [*command, "--reply-timeout", seconds_text(_REPLY_TIMEOUT_S * self.trial.time_scale)]

    def _start_generator(
        self, index: int, generator: Generator, addresses: list[str], paused: bool
    ) -> Process:
        load = self.trial.load
        command = self.load_command(index, generator, addresses)
        command += ["--clients", str(generator.clients), "--threads", str(load.threads)]
        command += self.request_options(generator)
        command += ["--test-time", seconds_text(load.test_time_s), "--warm-up", seconds_text(load.warm_up_s)]
        command += ["--sample", str(load.sample), "--records", str(self.records)]
        command += ["--json-out-file", str(self.directory / generator.summary)]
        if self.testbed.live and not self.testbed.samples:
            command += ["--seconds-file", str(self.directory / paths.seconds_of(generator.summary))]
        return self.start(self.host_of("load", index), generator.name, command, paused)

    def _connect(self, loads: list[Process], addresses: list[str]) -> None:
        """Let the load generators connect, and pause each until all have.

        Otherwise the first generator could fill a link and delay the connections of the others by seconds.
        """
        of_a_client = self.connections_of_a_client(addresses)
        wanted = [generator.clients * of_a_client for generator in self.generators]
        for load in loads:
            load.resume()
        pause_when_connected(list(zip(loads, wanted, strict=True)), self.trial.time_scale)


def seconds_text(time_s: float) -> str:
    """Write seconds as the programs read them."""
    return f"{round(time_s * 1000)}ms"
