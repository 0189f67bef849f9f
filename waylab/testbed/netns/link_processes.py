"""Decides which part of a link the kernel emulates and which a program, and runs these programs.

A program emulates what the kernel cannot: delays without netem, rates without tbf, losses. It is `waystage link`, which
`link_process.py` starts.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from waylab.program import find_waystage
from waylab.spec import HostSettings
from waylab.testbed.netns import link_process, namespaces
from waylab.testbed.netns.link_process import Direction
from waylab.testbed.processes import Process, TestbedError

QUEUE_KIB = 4096
# A frame is late if it leaves this long, or this share of the delay, after its due time.
_LATE_MS, _LATE_SHARE = 0.1, 0.02
# The time for a program whose device is gone to end.
_ENDS_WITHIN_S = 2.0


@dataclass(frozen=True)
class Parts:
    """What emulates a link: the kernel's `tbf` and `netem`, and a program."""

    tbf: bool = False
    netem: bool = False
    process: bool = False


def parts_of(host: HostSettings, links: str, kernel: frozenset[str]) -> Parts:
    """Return what emulates the link of a host; `kernel` names the features that the kernel has."""
    rate, delay = bool(host.up_mbit or host.down_mbit), bool(host.delay_ms)
    if links == "process":
        return Parts(process=rate or delay or bool(host.loss))
    tbf, netem = rate and "tbf" in kernel, delay and "netem" in kernel and not host.loss
    return Parts(tbf, netem, bool(host.loss) or (delay and not netem) or (rate and not tbf))


def directions(host: HostSettings, parts: Parts) -> tuple[Direction, Direction]:
    """Return what the program does to the frames that the host sends and to those that it receives."""
    delay_ms = 0.0 if parts.netem else host.delay_ms or 0.0
    return (
        _direction(host, delay_ms, 0.0 if parts.tbf else host.up_mbit or 0.0),
        _direction(host, delay_ms, 0.0 if parts.tbf else host.down_mbit or 0.0),
    )


def _direction(host: HostSettings, delay_ms: float, rate_mbit: float) -> Direction:
    queue_bytes = round((host.queue_kib or QUEUE_KIB) * 1024)
    late_ms = max(_LATE_MS, _LATE_SHARE * delay_ms)
    return Direction(delay_ms, rate_mbit, queue_bytes, host.loss or 0.0, late_ms)


class LinkProcesses:
    """The programs of a testbed, by host; their output and their counters are in `logs`."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, Process] = {}

    def start(
        self, host: str, ends: tuple[str, str, str, str], settings: tuple[Direction, Direction]
    ) -> None:
        """Start the program of a host; `ends` are the namespace and the device of both ends."""
        self._logs.mkdir(parents=True, exist_ok=True)
        namespace, interface, switch, port = ends
        command = [sys.executable, "-I", link_process.__file__]
        command += [str(namespaces.DIRECTORY / namespace), interface]
        command += [str(namespaces.DIRECTORY / switch), port, str(self._counters_of(host))]
        command += [*(one.as_json() for one in settings), str(find_waystage())]
        process = self._running[host] = Process(f"link-{host}", command, self._logs)
        process.wait_until_ready()

    def counters(self, host: str) -> tuple[dict[str, int], dict[str, int]] | None:
        """Return what the program of a host has counted, for each direction; None if the host has no program."""
        process = self._running.get(host)
        if process is None:
            return None
        if not process.running():
            self.refuse_ended(host)
        return link_process.read_counters(self._counters_of(host))

    def refuse_ended(self, host: str) -> None:
        """Raise TestbedError if the program of a host has ended, or is ending."""
        process = self._running.get(host)
        if process and process.wait(_ENDS_WITHIN_S):
            raise TestbedError(
                f"{process.name}: the program that emulates the link of {host} ended with "
                f"{process.exit_code}{process.last_error_line()}"
            )

    def running(self) -> list[Process]:
        """Return all programs."""
        return list(self._running.values())

    def stop(self) -> None:
        """Stop all programs."""
        while self._running:
            self._running.popitem()[1].stop()

    def _counters_of(self, host: str) -> Path:
        return (self._logs / f"link-{host}.counters").resolve()
