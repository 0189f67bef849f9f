"""One child process: its own process group, its output in files. The kernel kills it if the lab dies.

Knows of the programs only how they report that they are ready.
"""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from waylab.errors import LabError

READY_WITHIN_S = 15.0
STOP_WITHIN_S = 10.0
_POLL_S = 0.01
# A connected generator starts its load at once, so it must be paused before it sends much.
_CONNECTED_POLL_S = 0.002
_SET_PARENT_DEATH_SIGNAL = 1
# A shell that stops itself, and becomes the program after SIGCONT.
_PAUSED = ["/bin/sh", "-c", 'kill -STOP $$; exec "$@"', "paused"]
_READY = re.compile(r"ready on (\S+)")
_METRICS = re.compile(r"metrics on (\S+)")

# Loaded before any fork: the child must not load libraries.
_LIBC = ctypes.CDLL(None, use_errno=True)


class TestbedError(LabError):
    """A process that did not start or exited too early."""

    __test__ = False


class Process:
    """A running program with its output in `logs`; the new process calls `enter` before it becomes the program.

    A `paused` process becomes the program only after `resume`. `user` runs it as another user and group.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        logs: Path,
        enter: Callable[[], None] | None = None,
        host: str | None = None,
        paused: bool = False,
        user: tuple[int, int] | None = None,
    ) -> None:
        self.name = name
        self.command = command
        self.host = host
        self.stdout = logs / f"{name}.stdout"
        self.stderr = logs / f"{name}.stderr"
        self.exit_code: int | None = None
        self.killed = False
        self.stop_within_s: float | None = None
        # Whether its descendants do its work, so that their CPU time is counted as its own.
        self.has_descendants = False
        self._stop_requested = False
        try:
            with self.stdout.open("wb") as out, self.stderr.open("wb") as err, _signals_wait():
                self._child = popen_tied(
                    [*_PAUSED, *command] if paused else command,
                    enter,
                    user,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                )
        except OSError as error:
            raise TestbedError(f"{name}: {command[0]} cannot be started: {error.strerror}") from None
        except subprocess.SubprocessError:
            raise TestbedError(f"{name}: the new process cannot enter its host {host}") from None
        except BaseException:
            # A signal interrupted the start: the caller never receives this process, so it must end here.
            if hasattr(self, "_child"):
                self._signal(signal.SIGKILL)
                self._child.wait()
            raise

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    def wait(self, timeout_s: float) -> bool:
        """Wait for the process to exit; return whether it did."""
        try:
            self.exit_code = self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def running(self) -> bool:
        """Return whether it still runs."""
        self.exit_code = self._child.poll()
        return self.exit_code is None

    def wait_until_ready(self) -> str:
        """Wait for the line `... ready on ADDRESS` and return the address."""

        def address() -> str | None:
            found = _READY.search(self.stdout.read_text(encoding="utf-8", errors="replace"))
            return found[1] if found else None

        return self._wait_for(address)

    def metrics_address(self) -> str | None:
        """Return the address of the metrics, of a program that is ready and serves some."""
        found = _METRICS.search(self.stdout.read_text(encoding="utf-8", errors="replace"))
        return found[1] if found else None

    def wait_until_paused(self) -> None:
        """Wait until a process that was started paused can be resumed."""
        self._wait_for(
            lambda: "paused" if psutil.Process(self.pid).status() == psutil.STATUS_STOPPED else None
        )

    def resume(self) -> None:
        """Continue a paused process."""
        self._signal(signal.SIGCONT)

    def pause(self) -> None:
        """Stop the process with SIGSTOP until `resume`."""
        self._signal(signal.SIGSTOP)

    def sockets(self) -> int:
        """Return the number of its open sockets."""
        count = 0
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{self.pid}/fd"):
                with contextlib.suppress(OSError):
                    count += os.readlink(entry.path).startswith("socket:")
        return count

    def wait_until_serving(
        self, address: str, answers: Callable[[], bool], within_s: float | None = None
    ) -> str:
        """Wait until `answers` returns true, and return the address."""
        return self._wait_for(lambda: address if answers() else None, within_s)

    def _wait_for(self, probe: Callable[[], str | None], within_s: float | None = None) -> str:
        within_s = READY_WITHIN_S if within_s is None else within_s
        deadline = time.monotonic() + within_s
        while True:
            ended = not self.running()
            found = probe()
            if found and not ended:
                return found
            if ended:
                raise TestbedError(
                    f"{self.name}: ended with {self.exit_code} before it was ready{self.last_error_line()}"
                )
            if time.monotonic() > deadline:
                raise TestbedError(f"{self.name}: not ready within {within_s:g} s{self.last_error_line()}")
            time.sleep(_POLL_S)

    def last_error_line(self) -> str:
        """Return the last line on its standard error, for an error message."""
        lines = self.stderr.read_text(encoding="utf-8", errors="replace").split("\n")
        lines = [line.strip() for line in lines if line.strip()]
        return f": {lines[-1][:300]}" if lines else f" (its output is in {self.stderr.parent})"

    def interrupt(self) -> None:
        """Send SIGINT to the program alone, not to its children: for PostgreSQL this is a fast shutdown."""
        if self.running() and not self._stop_requested:
            self._stop_requested = True
            self._child.send_signal(signal.SIGINT)

    def request_stop(self) -> None:
        """Send SIGTERM to the whole group once: many programs exit at once on a second SIGTERM."""
        if self.running() and not self._stop_requested:
            self._stop_requested = True
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stop the process, with SIGKILL after a time-out."""
        self.request_stop()
        try:
            if not self.wait(STOP_WITHIN_S if self.stop_within_s is None else self.stop_within_s):
                self.killed = True
        finally:
            # Also after a normal exit: a child of the program must not outlive the trial.
            self._signal(signal.SIGKILL)
            self.exit_code = self._child.wait()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)


def pause_when_connected(wanted: list[tuple[Process, int]], time_scale: float = 1.0) -> None:
    """Pause each process as soon as it has the given number of sockets; return when all are paused.

    Raises:
        TestbedError: if a process exits first or does not connect in time. A generator connects one client after the
            other, and the delays of the links are multiplied by the time scale: so is the time to wait.
    """
    within_s = READY_WITHIN_S * time_scale
    deadline = time.monotonic() + within_s
    waiting = list(wanted)
    while waiting:
        for process, sockets in list(waiting):
            if process.sockets() >= sockets:
                process.pause()
                waiting.remove((process, sockets))
            elif not process.running():
                raise TestbedError(
                    f"{process.name}: ended with {process.exit_code} before it was connected{process.last_error_line()}"
                )
        if waiting and time.monotonic() > deadline:
            names = ", ".join(process.name for process, _ in waiting)
            raise TestbedError(f"{names}: not connected within {within_s:g} s")
        time.sleep(_CONNECTED_POLL_S)


def popen_tied(
    command: list[str],
    enter: Callable[[], None] | None = None,
    user: tuple[int, int] | None = None,
    **streams: Any,
) -> subprocess.Popen[bytes]:
    """Start a program in its own session that the kernel kills if the lab dies."""
    parent = os.getpid()
    with warnings.catch_warnings():
        # Newer Pythons warn of forking beside the idle threads of numpy; the child makes only system calls.
        warnings.simplefilter("ignore", DeprecationWarning)
        return subprocess.Popen(
            command,
            start_new_session=True,
            preexec_fn=lambda: _become_child(parent, enter, user),  # noqa: PLW1509
            **streams,
        )


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Delay signals during a fork, because Python drops an exception that is raised in a hook of `fork`."""
    kept: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, lambda number, _: kept.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for kept_number in kept:
            signal.raise_signal(kept_number)


def _become_child(parent: int, enter: Callable[[], None] | None, user: tuple[int, int] | None) -> None:
    """Run in the child: enter the host, change the user, and ask the kernel to kill it when the lab dies."""
    _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    if enter:
        enter()
    if user:
        # The new user may lack access to the current directory.
        os.chdir("/")
        os.setgroups([])
        os.setgid(user[1])
        os.setuid(user[0])
        # The kernel resets the death signal when the user changes.
        _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
