"""The system `messages`: starts message services, in front of the trial's database unless they work without one."""

import sys
from pathlib import Path

from waylab.testbed import canned
from waylab.testbed.generators import Generator, pace_options
from waylab.testbed.systems.running import RunningSystem


class RunningMessagesSystem(RunningSystem):
    """`waystage messages`, which takes a free port and reports it."""

    @property
    def server(self) -> str:
        """`postgres`, or `none` for services that work without it."""
        return "postgres" if "database" in self.counts else "none"

    def start_servers(self) -> list[str]:
        """Prepare the trial's database and start the services in front of it."""
        connection = self.database.prepare(self.trial) if self.database else ""
        return [self._start_service(index, connection) for index in range(self.counts["messages"])]

    def target_options(self, index: int, generator: Generator, addresses: list[str]) -> list[str]:
        """The services, starting with a different one for each generator, and the size of messages."""
        first = index % len(addresses)
        options = []
        for address in [*addresses[first:], *addresses[:first]]:
            options += ["--messages", f"http://{address}"]
        load = self.trial.load
        if load.operations:
            options += ["--operations", load.operations]
        if load.prefill:
            options += ["--prefill", str(load.prefill)]
        if not self.trial.system.messages.has_database:
            # Without a database messages are lost.
            options += ["--no-verify"]
        return [*options, "--data-size", str(load.data_size)]

    def request_options(self, generator: Generator) -> list[str]:
        """When requests are sent."""
        return pace_options(self.trial.load, generator)

    def _start_service(self, index: int, database: str) -> str:
        host = self.host_of("messages", index)
        command = self._command(host.address, database)
        process = self.start(host, self.name_of("messages", index), command, drained=True)
        address = process.wait_until_ready()
        if self.serves_stages(host):
            self.stage_metrics[process.name] = f"http://{address}/metrics"
        return address

    def _command(self, address: str, database: str) -> list[str]:
        messages = self.trial.system.messages
        if messages.dispatch == "canned":
            return [sys.executable, str(Path(canned.__file__)), f"{address}:0"]
        command = [str(self.waystage), "messages", "--listen", f"{address}:0", "--insecure"]
        command += ["--dispatch", messages.dispatch]
        if database:
            command += ["--database", database]
        if messages.has_database:
            name = "--connections" if messages.dispatch == "pool" else "--lanes"
            command += [name, str(messages.connections_of_each())]
        return [*command, "--records", str(self.records), "--sample", str(self.trial.load.sample)]
