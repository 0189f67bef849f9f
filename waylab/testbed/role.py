"""One instance of a role that the specification describes: its folder, its start, and whether it is ready.

Knows nothing of trials and loads.
"""

import http.client
import os
import re
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from waylab.spec.roles.placeholders import filled, filled_words, placeholders
from waylab.spec.roles.settings import Role
from waylab.testbed.hosts import Host
from waylab.testbed.kept import Kept, account_of, start_kept
from waylab.testbed.processes import Process, TestbedError

_PORT_ATTEMPTS = 5
_CONNECT_S, _PAGE_S = 0.5, 2.0
_PAGE_BYTES = 1 << 20
# Of a longer line, only so much is compared with a pattern.
_LINE_BYTES = 1 << 16
_PREPARED_WITHIN_S = 600.0


@dataclass(frozen=True)
class Instance:
    """A program that is to run: its role, its number, its host and its own folder."""

    role_name: str
    role: Role
    index: int
    program: Path
    host: Host
    directory: Path
    logs: Path
    values: dict[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its process."""
        return self.role_name if self.role.count == 1 else f"{self.role_name}-{self.index}"

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{self.host.address}:{self.values['port']}"

    @property
    def metrics(self) -> str:
        """The address of its metrics; empty for none."""
        return filled(self.role.metrics, self.values)

    def start(self, processes: list[Process]) -> None:
        """Prepare it, start it and wait until it is ready; try other ports if another program was faster.

        Every process is added to `processes` when it has started, so that the caller stops it in every case.
        """
        key = f"system.roles.{self.role_name}"
        account = account_of(self.role.user, f"{key}.user")
        self._make_directory(account)
        for attempt in range(_PORT_ATTEMPTS):
            self._take_ports(key)
            self._write_files(account)
            if attempt == 0:
                for number, text in enumerate(self.role.prepare):
                    self._run(f"fill-{self.name}-prepare{number}", text, account, processes)
            arguments = filled_words(self.role.arguments, self.values)
            process = self._start(self.name, [str(self.program), *arguments], account)
            processes.append(process)
            try:
                self._wait(process)
                break
            except TestbedError:
                mine = [
                    int(str(value)) for name, value in self.values.items() if name.partition(".")[0] == "port"
                ]
                stolen = not self.role.port and not process.running() and not all(map(self._is_free, mine))
                if attempt == _PORT_ATTEMPTS - 1 or not stolen:
                    raise
                processes.remove(process)
        for number, text in enumerate(self.role.fill):
            self._run(f"fill-{self.name}-{number}", text, account, processes)

    def _start(self, name: str, command: list[str], account: tuple[int, int] | None) -> Process:
        stop = self.role.stop
        environment = {key: filled(text, self.values) for key, text in self.role.environment.items()}
        number = signal.Signals[f"SIG{stop.signal}"].value
        kept = Kept(name, command, self.directory, environment, account, number, stop.within_s)
        return start_kept(self.host, kept, self.logs)

    def _run(self, name: str, text: str, account: tuple[int, int] | None, processes: list[Process]) -> None:
        """Run a command to its end; it must succeed."""
        process = self._start(name, filled_words(text, self.values), account)
        processes.append(process)
        if not process.wait(_PREPARED_WITHIN_S):
            process.stop()
            raise TestbedError(f"{name}: did not end within {_PREPARED_WITHIN_S:g} s: {text}")
        if process.exit_code != 0:
            raise TestbedError(f"{name}: ended with {process.exit_code}{process.last_error_line()}")

    def _make_directory(self, account: tuple[int, int] | None) -> None:
        try:
            self.directory.mkdir(mode=0o700, parents=True)
            if account:
                os.chown(self.directory, *account)
        except OSError as error:
            raise TestbedError(f"{self.directory}: cannot be created: {error.strerror}") from None

    def _write_files(self, account: tuple[int, int] | None) -> None:
        for name, text in self.role.files.items():
            path = self.directory / name
            path.write_text(filled(text, self.values) + "\n", encoding="utf-8")
            if account:
                os.chown(path, *account)

    def _take_ports(self, key: str) -> None:
        port = self.role.port
        if port and not self._is_free(port):
            raise TestbedError(
                f"{key}.port = {port}: another program listens on it; stop that program, or leave port out"
            )
        self.values["port"] = port or self.host.free_port()
        for text in self.role.texts().values():
            for name in placeholders(text):
                if name.startswith("port."):
                    self.values[name] = self.host.free_port()

    def _is_free(self, port: int) -> bool:
        return self.host.inside(lambda: _is_free(self.host.address, port))

    def _wait(self, process: Process) -> None:
        ready = self.role.ready
        lines = _Lines((process.stdout, process.stderr), ready.line) if ready.line else None
        is_ready: Callable[[], bool] = lines.found if lines else partial(self.host.inside, self._is_serving)
        process.wait_until_serving(self.address, is_ready, ready.within_s)

    def _is_serving(self) -> bool:
        """Return whether it accepts connections, or answers the page with the wanted status."""
        ready, port = self.role.ready, int(str(self.values["port"]))
        if ready.http:
            return _status(self.host.address, port, ready.http) == ready.status
        return accepts(self.host.address, port)


class _Lines:
    """Searches what a program prints, as it comes."""

    def __init__(self, files: tuple[Path, ...], pattern: str) -> None:
        self._pattern = re.compile(pattern)
        self._places = dict.fromkeys(files, 0)
        self._rests = dict.fromkeys(files, b"")

    def found(self) -> bool:
        return any([self._found_in(path) for path in self._places])

    def _found_in(self, path: Path) -> bool:
        with path.open("rb") as file:
            file.seek(self._places[path])
            content = file.read(_PAGE_BYTES)
        self._places[path] += len(content)
        *lines, rest = (self._rests[path] + content).split(b"\n")
        self._rests[path] = rest[:_LINE_BYTES]
        # A program may not end its line before it waits.
        return any(
            self._pattern.search(line.decode(errors="replace")) for line in (*lines, self._rests[path])
        )


def as_values(instances: list[Instance]) -> dict[str, object]:
    """Return what other texts may read of a role, by placeholder."""
    first, name = instances[0], instances[0].role_name
    addresses = [instance.address for instance in instances]
    return {
        f"{name}.address": first.host.address,
        f"{name}.port": first.values["port"],
        f"{name}.endpoint": addresses[0],
        f"{name}.endpoints": ",".join(addresses),
        f"{name}.each": addresses,
        f"{name}.directory": first.directory,
    }


def accepts(address: str, port: int) -> bool:
    """Return whether a program accepts connections on a port."""
    try:
        with socket.create_connection((address, port), timeout=_CONNECT_S):
            return True
    except OSError:
        return False


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: connections of a former program that still wait do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True


def _status(address: str, port: int, path: str) -> int | None:
    connection = http.client.HTTPConnection(address, port, timeout=_PAGE_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
