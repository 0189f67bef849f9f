"""The system `command`: starts the programs that the specification describes, one role after the other."""

from pathlib import Path

from waylab.spec.systems.command import target_of
from waylab.testbed.role import Instance, as_values
from waylab.testbed.role_folder import make_folder, remove_folder
from waylab.testbed.systems.own import RunningOwnSystem


class RunningCommandSystem(RunningOwnSystem):
    """Instances of roles, each of which may refer to those that were started before it."""

    _folder: Path | None = None
    _values: dict[str, object]

    @property
    def server(self) -> str:
        """The name of the program that the load reaches."""
        system = self.trial.system
        return Path(system.roles[target_of(system)].program).name

    def start_servers(self) -> list[str]:
        """Start every role; return the addresses of the one that the load reaches."""
        self._folder, self._values = make_folder(), {}
        found: dict[str, list[Instance]] = {}
        for name, role in self.trial.system.roles.items():
            found[name] = [self._instance(name, index) for index in range(role.count)]
            for instance in found[name]:
                instance.start(self.processes)
            self._values |= as_values(found[name])
        self.metrics = {
            instance.name: (instance.host, instance.metrics)
            for instances in found.values()
            for instance in instances
            if instance.role.metrics
        }
        return [instance.address for instance in found[target_of(self.trial.system)]]

    def stop(self) -> None:
        """Stop everything, the load first and the role that started first at the end; remove their folder."""
        try:
            # A role is stopped after those that use it, because it could end with an error otherwise.
            for process in reversed(self.processes):
                process.stop()
        finally:
            super().stop()
            remove_folder(self._folder)

    def values_of_roles(self) -> dict[str, object]:
        """Return what was started."""
        return self._values

    def _instance(self, name: str, index: int) -> Instance:
        role, host = self.trial.system.roles[name], self.host_of(name, index)
        assert self._folder, "it was made before"
        directory = self._folder / (name if role.count == 1 else f"{name}-{index}")
        own = {"address": host.address, "directory": directory, "index": index, "seed": self.trial.seed}
        values: dict[str, object] = {**self._values, **role.set, **own, "clients": self.trial.load.clients}
        return Instance(
            name, role, index, self.programs.commands[role.program], host, directory, self.logs, values
        )
