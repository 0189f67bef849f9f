"""One program on another host, with the interface of a process of this machine."""

import time
from collections.abc import Callable
from pathlib import Path

from waylab.testbed.processes import READY_WITHIN_S, STOP_WITHIN_S, Process, TestbedError
from waylab.testbed.ssh.connection import HostLostError, KeeperConnection

_POLL_S = 0.05
_KILLED_WITHIN_S = 10.0
_KILL, _TERM, _INT, _CONT, _STOP = 9, 15, 2, 18, 19
# What a program may print before it is killed, and what the lab keeps of it.
_OUTPUT_BYTES = 64 << 20
_KEPT_BYTES = 1 << 20


class RemoteProcess(Process):
    """A program that the keeper of a host has started. `collect` copies its files when it has ended."""

    def __init__(
        self,
        name: str,
        command: list[str],
        logs: Path,
        connection: KeeperConnection,
        pid: int,
        collect: Callable[[int], None],
    ) -> None:
        self.name = name
        self.command = command
        self.host = connection.name
        self.stdout = logs / f"{name}.stdout"
        self.stderr = logs / f"{name}.stderr"
        self.exit_code = None
        self.killed = False
        self.stop_within_s = None
        self.has_descendants = False
        self._stop_requested = False
        self._connection = connection
        self._pid = pid
        self._collect = collect
        self._positions = {"stdout": 0, "stderr": 0}
        self._given_up = False
        for path in (self.stdout, self.stderr):
            path.write_bytes(b"")

    @property
    def pid(self) -> int:
        """The process id on its host."""
        return self._pid

    def running(self) -> bool:
        """Return whether it still runs; when it has ended, its output and its files are here.

        Raises:
            HostLostError: if the host does not answer.
        """
        if self.exit_code is not None:
            return False
        ended = self._poll()
        if ended is None:
            return True
        while self._poll_again():
            pass
        self._collect(self._pid)
        self.exit_code = ended
        return False

    def wait(self, timeout_s: float) -> bool:
        """Wait for the process to exit; return whether it did."""
        deadline = time.monotonic() + timeout_s
        while self.running():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(_POLL_S, left_s))
        return True

    def request_stop(self) -> None:
        """Send SIGTERM to the whole group once."""
        if not self._stop_requested and self._is_reachable() and self.running():
            self._stop_requested = True
            self._signal(_TERM)
            self._signal(_CONT)

    def interrupt(self) -> None:
        """Send SIGINT to its group."""
        if not self._stop_requested and self._is_reachable() and self.running():
            self._stop_requested = True
            self._signal(_INT)

    def stop(self) -> None:
        """Stop the process, with SIGKILL after a time-out; its host's keeper kills it if the host is gone.

        Raises:
            HostLostError: once, if the host does not answer.
        """
        if self._given_up or self.exit_code is not None:
            return
        try:
            self.request_stop()
            if not self.wait(STOP_WITHIN_S if self.stop_within_s is None else self.stop_within_s):
                self.killed = True
            self._signal(_KILL)
            if not self.wait(_KILLED_WITHIN_S):
                raise TestbedError(f"{self.name}: still runs on host {self.host} after SIGKILL")
        except HostLostError:
            self._given_up = True
            raise

    def pause_when_connected(self, sockets: int) -> None:
        """Pause it as soon as it has so many sockets; its keeper watches it.

        Raises:
            TestbedError: if it ends first, or does not connect in time.
        """
        try:
            self._connection.request(
                "pause_connected",
                within_s=2 * READY_WITHIN_S,
                pid=self._pid,
                sockets=sockets,
                within_ms=round(1000 * READY_WITHIN_S),
            )
        except TestbedError as error:
            if self._connection.lost or self.running():
                raise
            raise TestbedError(f"{self.name}: {error}{self.last_error_line()}") from None

    def resume_at(self, clock_ns: int) -> None:
        """Let it go on at a time of its host's CLOCK_MONOTONIC."""
        self._connection.request("signal", pid=self._pid, number=_CONT, at_clock_ns=clock_ns)

    def sockets(self) -> int:
        """Not known of other hosts, where generators wait for each other themselves."""
        raise TestbedError(f"{self.name}: the sockets of a program on another host are not counted")

    def wait_until_paused(self) -> None:
        """Not possible on other hosts, where generators wait for each other themselves."""
        raise TestbedError(f"{self.name}: a program on another host cannot be started paused")

    def last_error_line(self) -> str:
        """Return the last line on its standard error, or why its host is gone."""
        return f": {self._connection.lost}" if self._connection.lost else super().last_error_line()

    def _is_reachable(self) -> bool:
        return self._connection.lost is None

    def _signal(self, number: int) -> None:
        self._connection.request("signal", pid=self._pid, number=number)

    def _poll(self) -> int | None:
        """Return how it ended, None while it runs; write what it printed to the logs."""
        self._more = False
        found = self._connection.request("status", pid=self._pid, **self._positions)
        for name, path in (("stdout", self.stdout), ("stderr", self.stderr)):
            part = found[name]
            if part["end"] > self._positions[name]:
                self._more = True
                if self._positions[name] < _KEPT_BYTES:
                    with path.open("a", encoding="utf-8") as file:
                        file.write(part["text"])
                self._positions[name] = part["end"]
            if part["end"] > _OUTPUT_BYTES:
                self._signal(_KILL)
        return None if found["ended"] is None else int(found["ended"])

    def _poll_again(self) -> bool:
        """Read further output of a program that has ended; return whether there may be more."""
        if self._more and max(self._positions.values()) < _KEPT_BYTES:
            self._poll()
            return self._more
        return False
