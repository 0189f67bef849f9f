"""The common part of systems that the project does not know: the load reaches them by their addresses."""

import math
from abc import abstractmethod
from pathlib import Path

from waylab.spec.roles.placeholders import filled, filled_words
from waylab.spec.systems.command import load_settings
from waylab.testbed.command_load import write_summary
from waylab.testbed.kept import Kept, start_kept
from waylab.testbed.processes import Process
from waylab.testbed.systems.key_value import RunningKeyValueSystem

# The window begins with the first request, which is later than the start of the generator.
_SPARE_S = 0.5


class RunningOwnSystem(RunningKeyValueSystem):
    """A system under `waystage load`, or under a generator that the specification describes."""

    def prefill(self, addresses: list[str]) -> None:
        """Set every key if `waystage load` makes the load; other generators do so themselves."""
        if not self._is_commanded:
            super().prefill(addresses)

    def start_load(self, addresses: list[str]) -> list[Process]:
        """Start the load generators."""
        if not self._is_commanded:
            return super().start_load(addresses)
        generator, load = self.trial.system.generator, self.trial.load
        self._output.mkdir()
        host, _, port = addresses[0].rpartition(":")
        values = {
            **load_settings(load),
            **self.values_of_roles(),
            **generator.set,
            **{"address": host, "port": port, "endpoint": addresses[0], "endpoints": ",".join(addresses)},
            "seed": self.trial.seed,
            "output": self._output / "out",
            "total_s": math.ceil(load.warm_up_s + load.test_time_s + _SPARE_S),
        }
        program = self.programs.commands[generator.program]
        environment = {name: filled(text, values) for name, text in generator.environment.items()}
        kept = Kept(
            self.generators[0].name,
            [str(program), *filled_words(generator.arguments, values)],
            None,
            environment,
        )
        process = start_kept(self.host_of("load"), kept, self.logs)
        self.processes.append(process)
        return [process]

    def write_summary(self) -> None:
        """Turn the output of a described generator into the summary of a load."""
        if self._is_commanded:
            write_summary(self.trial, self.directory, self._output, self.processes[-1])

    @abstractmethod
    def values_of_roles(self) -> dict[str, object]:
        """Return what the generator may read of the roles, by placeholder."""

    @property
    def _is_commanded(self) -> bool:
        return self.trial.system.generator.kind == "command"

    @property
    def _output(self) -> Path:
        return self.directory / "generator"
