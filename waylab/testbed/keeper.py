"""Runs one program that the lab does not know, and ends it with all its descendants in every case.

The kernel kills the children of the lab when the lab dies, but not their children: workers of nginx or programs behind
a shell would go on. This program is the parent of all of them (PR_SET_CHILD_SUBREAPER), also of those that make
themselves daemons. When the lab dies or asks for it, it ends them. It is run by its path and imports no module of the
lab. Its argument is a JSON object, described by `Kept` in `kept.py`.
"""

import contextlib
import ctypes
import json
import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
# The kernel sends it when the lab dies; no terminal and no user does.
_LAB_DIED = signal.SIGUSR1
_HANDLED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, _LAB_DIED, signal.SIGCHLD}
_POLL_S = 0.05
# For the kernel to end processes that were killed.
_ENDED_WITHIN_S = 5.0
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Kept:
    """The program and its descendants."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._status: int | None = None
        self._stop_at_s = float("inf")
        self._stopping = False
        self._pid = self._start()

    def run(self) -> int:
        """Wait for the end, of the program or of the lab; return the exit code."""
        while self._status is None:
            found = signal.sigtimedwait(_HANDLED, _POLL_S)
            number = found.si_signo if found else None
            self._reap()
            if self._status is not None:
                break
            if number == _LAB_DIED:
                return self._end_after_the_lab()
            if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) and not self._stopping:
                self._stopping = True
                self._stop_at_s = time.monotonic() + self._settings["within_s"]
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(self._pid, self._settings["signal"])
            if time.monotonic() > self._stop_at_s:
                name = signal.Signals(self._settings["signal"]).name
                self._kill_all()
                return _fail(
                    f"did not stop within {self._settings['within_s']:g} s of {name}, and was killed"
                )
            if self._printed_too_much():
                self._kill_all()
                self._shorten()
                return _fail(f"printed more than {self._settings['output_bytes'] >> 20} MiB, and was killed")
        self._kill_all()
        if self._printed_too_much():
            self._shorten()
            return _fail(f"printed more than {self._settings['output_bytes'] >> 20} MiB")
        return self._exit_code()

    def _start(self) -> int:
        settings = self._settings
        pid = os.fork()
        if pid:
            return pid
        try:
            _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            os.setsid()
            _reset_signals()
            if settings["directory"]:
                os.chdir(settings["directory"])
            if settings["user"]:
                user, group = settings["user"]
                os.setgroups([])
                os.setgid(group)
                os.setuid(user)
                # The kernel resets the death signal when the user changes.
                _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            os.execvpe(settings["command"][0], settings["command"], os.environ | settings["environment"])
        except OSError as error:
            os.write(2, f"{settings['command'][0]}: cannot be started: {error.strerror}\n".encode())
        finally:
            os._exit(127)

    def _reap(self) -> None:
        """Collect processes that have ended: the program, and descendants whose own parents have ended."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid == self._pid:
                    self._status = status

    def _kill_all(self) -> None:
        """Kill every descendant: the children of a killed process become children of this one."""
        deadline = time.monotonic() + _ENDED_WITHIN_S
        while time.monotonic() < deadline:
            for pid in _children():
                _kill(pid)
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == self._pid:
                self._status = status
            if not pid:
                time.sleep(0.002)

    def _end_after_the_lab(self) -> int:
        self._kill_all()
        if self._settings["directory"]:
            directory = Path(self._settings["directory"])
            shutil.rmtree(directory, ignore_errors=True)
            with contextlib.suppress(OSError):
                directory.parent.rmdir()
        return 1

    def _exit_code(self) -> int:
        assert self._status is not None, "the program has ended"
        code = os.waitstatus_to_exitcode(self._status)
        asked = self._settings["signal"]
        if self._stopping and code in (-asked, 128 + asked):
            return 0
        if code < 0:
            return _fail(f"was ended by {signal.Signals(-code).name}", 128 - code)
        return code

    def _printed_too_much(self) -> bool:
        return any(os.fstat(output).st_size > self._settings["output_bytes"] for output in (1, 2))

    def _shorten(self) -> None:
        """Keep the beginning of what it printed, because the disk may be nearly full."""
        for output in (1, 2):
            if os.fstat(output).st_size > self._settings["kept_bytes"]:
                os.ftruncate(output, self._settings["kept_bytes"])


def _reset_signals() -> None:
    """Give every signal its default, because a lab in the background of a shell inherits ignored SIGINT and SIGQUIT."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _fail(text: str, code: int = 1) -> int:
    os.lseek(2, 0, os.SEEK_END)
    os.write(2, f"\n{text}\n".encode())
    return code


def _kill(pid: int) -> None:
    """Kill a child with its process group, because a process that forks and exits again and again is gone at once.

    The kernel signals all members of a group together, so that none of them forks meanwhile.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        group = os.getpgid(pid)
        # A child is in the group of the keeper until its `setsid`.
        if group != os.getpgrp():
            os.killpg(group, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _children() -> list[int]:
    """Return the children: from the kernel's list, which takes microseconds, or by a search of all processes."""
    with contextlib.suppress(OSError, ValueError):
        listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
        # The list may lack processes while others end, and kernels without CONFIG_PROC_CHILDREN have none.
        if listed:
            return [int(pid) for pid in listed]
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The second field is the program's name in brackets, and may contain anything.
            fields = path.read_bytes().rpartition(b")")[2].split()
            if int(fields[1]) == os.getpid():
                found.append(int(path.parent.name))
    return found


def main() -> int:
    """Run the program of the argument."""
    settings = json.loads(sys.argv[1])
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    _LIBC.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, _LAB_DIED, 0, 0, 0)
    if os.getppid() != settings["parent"]:
        return 1
    return _Kept(settings).run()


if __name__ == "__main__":
    sys.exit(main())
