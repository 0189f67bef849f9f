"""A host behind a connection: starts programs there, and copies their files to the run folder when they end."""

import posixpath
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from waylab.testbed.hosts import Host
from waylab.testbed.processes import Process, TestbedError
from waylab.testbed.ssh.connection import KeeperConnection
from waylab.testbed.ssh.process import RemoteProcess

_Result = TypeVar("_Result")


class SshHost(Host):
    """Another machine. Programs of the lab are copied to it once; `waystage` itself is there already."""

    own_network = True

    def __init__(
        self, connection: KeeperConnection, address: str, waystage: Path, align: Callable[[Path, str], None]
    ) -> None:
        super().__init__(connection.name, address)
        self.connection = connection
        # Called with each summary of a load that was copied to the run folder, and the name of this host.
        self._align = align
        self._programs = {str(waystage): f"{connection.folder}/waystage"}
        # The run folder's files of the current trial are in a folder of the same content.
        self._trial: Path | None = None
        self._trials = 0

    def start(
        self,
        name: str,
        command: list[str],
        logs: Path,
        paused: bool = False,
        user: tuple[int, int] | None = None,
    ) -> Process:
        """Start a copy of a program on this host; files that the command names are copied back when it ends."""
        if paused or user:
            raise TestbedError(f"{name}: cannot be started paused, or as another user, on another host")
        self._enter_trial(logs.parent)
        outputs: dict[Path, str] = {}
        there = [self._program(command[0]), *(self._argument(part, outputs) for part in command[1:])]
        for path in outputs.values():
            # Folders end with a slash, so that this is the folder itself or that of a file.
            self.connection.request("make", path=posixpath.dirname(path))
        started = self.connection.request("start", name=name, command=there)

        def collect(pid: int) -> None:
            for here, path in outputs.items():
                self._collect(here, path, pid)

        return RemoteProcess(name, command, logs, self.connection, int(started["pid"]), collect)

    def free_port(self) -> int:
        """Return a free port of this host."""
        return int(self.connection.request("port", address=self.address)["port"])

    def answers(self, port: int) -> bool:
        """Return whether this host accepts connections on a port."""
        try:
            self.connection.request("connect", address=f"{self.address}:{port}")
        except TestbedError:
            if self.connection.lost:
                raise
            return False
        return True

    def inside(self, function: Callable[[], _Result]) -> _Result:
        """Not possible: the function would run on the lab's machine."""
        raise TestbedError(f"host {self.name}: only programs can run on another host")

    def _enter_trial(self, directory: Path) -> None:
        """Use a new folder for a new trial, and remove that of the trial before it."""
        if directory == self._trial:
            return
        if self._trial:
            self.connection.request("remove", path=self._folder)
        self._trial = directory
        self._trials += 1

    @property
    def _folder(self) -> str:
        return f"{self.connection.folder}/trial-{self._trials}"

    def _program(self, here: str) -> str:
        if here not in self._programs:
            there = f"{self.connection.folder}/program-{len(self._programs)}"
            self.connection.write_program(there, Path(here))
            self._programs[here] = there
        return self._programs[here]

    def _argument(self, text: str, outputs: dict[Path, str]) -> str:
        """Return an argument as it is, or the host's path for one of the run folder."""
        path = Path(text)
        if not self._trial or not path.is_relative_to(self._trial):
            return text
        there = posixpath.join(self._folder, *path.relative_to(self._trial).parts)
        outputs[path] = f"{there}/" if path.is_dir() else there
        return there

    def _collect(self, here: Path, there: str, pid: int) -> None:
        """Copy a file, or those files of a folder whose names have the number of the process."""
        parent = posixpath.dirname(there)
        names = self.connection.request("list", path=parent)["files"]
        for name in names:
            if there.endswith("/"):
                stem, dot, suffix = name.rpartition(".")
                if not stem.endswith(f"-{pid}"):
                    continue
                # Process ids of different hosts may be the same.
                to = here / f"{stem}.{self.name}{dot}{suffix}"
            elif name == posixpath.basename(there):
                to = here
            else:
                continue
            path = posixpath.join(parent, name)
            self.connection.read_file(path, to)
            if to.suffix == ".json":
                self._align(to, self.name)
            self.connection.request("remove", path=path)
