"""Samples CPU time, memory and threads of every process, and counters of machine, hosts and database, in CSV files.

The thread that waits for the load generator takes the samples. Interprets nothing.
"""

import contextlib
import csv
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

import psutil

from waylab.run.process_tree import tree_row
from waylab.run.speed import SpeedProbe
from waylab.runfolder import paths
from waylab.testbed import COUNTERS, Process, RunDatabase, Testbed

INTERVAL_S = 0.25
# Counters of all links or of all processes of a database take milliseconds to read. Once a second this does not
# disturb the measurement.
_HOSTS_INTERVAL_S = 1.0
_DATABASE_INTERVAL_S = 1.0
# A program may have hundreds of descendants. Reading them takes at most one part in so many of the time, but a program
# is read at least once in this interval.
_TREE_REST, _TREE_INTERVAL_S = 100, 1.0
PROCESS_COLUMNS = ["clock_ns", "process", "pid", "user_s", "system_s", "resident_bytes", "threads"]
MACHINE_COLUMNS = [
    "clock_ns",
    "capacity_s",
    "user_s",
    "system_s",
    "interrupt_s",
    "idle_s",
    "steal_s",
    "load_1m",
    "memory_available_bytes",
    "network_sent_bytes",
]
# Only in trials whose design has the speed of the machine as a covariate.
PROBE_COLUMNS = ["probes", "probe_cpu_s"]


@dataclass
class _Tree:
    """A process that is sampled with its descendants, and the earliest time of the next sample."""

    process: Process
    next_s: float = 0.0


class Telemetry:
    """The files of one trial, open while it runs."""

    def __init__(
        self,
        directory: Path,
        processes: list[Process],
        testbed: Testbed,
        database: RunDatabase | None = None,
        probe: SpeedProbe | None = None,
    ) -> None:
        self._testbed = testbed
        self._probe = probe
        self._database = database
        self._database_file: IO[str] | None = None
        self._database_written_s = -_DATABASE_INTERVAL_S
        if database:
            self._database_file = (directory / paths.DATABASE).open("w", newline="", encoding="utf-8")
            csv.writer(self._database_file).writerow(["clock_ns", *COUNTERS])
        self._hosts_path = directory / paths.HOSTS
        self._hosts_file: IO[str] | None = None
        self._hosts_written_s = -_HOSTS_INTERVAL_S
        self._cores = psutil.cpu_count() or 1
        self._processes = processes
        self._watched = [] if testbed.samples else [("waylab", psutil.Process(os.getpid()))]
        self._trees = [_Tree(process) for process in processes if process.has_descendants]
        for process in () if testbed.samples else (*processes, *testbed.link_programs()):
            if process.has_descendants:
                continue
            try:
                self._watched.append((process.name, psutil.Process(process.pid)))
            except psutil.NoSuchProcess:
                continue
        self._process_file = (directory / paths.PROCESSES).open("w", newline="", encoding="utf-8")
        self._machine_file = (directory / paths.MACHINE).open("w", newline="", encoding="utf-8")
        self._process_rows = csv.writer(self._process_file)
        self._machine_rows = csv.writer(self._machine_file)
        self._process_rows.writerow(PROCESS_COLUMNS)
        self._machine_rows.writerow([*MACHINE_COLUMNS, *(PROBE_COLUMNS if probe else [])])

    def __enter__(self) -> "Telemetry":
        self.sample()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for tree in self._trees:
            tree.next_s = 0.0
        self._sample_trees()
        self._hosts_written_s = -_HOSTS_INTERVAL_S
        self._sample_hosts()
        self._database_written_s = -_DATABASE_INTERVAL_S
        self._sample_database()
        if self._database_file:
            self._database_file.close()
        if self._hosts_file:
            self._hosts_file.close()
        self._process_file.close()
        self._machine_file.close()
        if self._probe:
            self._probe.close()

    def sample(self) -> None:
        """Write one row for each process that still runs, and one for the machine."""
        if self._probe:
            self._probe.run()
        if self._testbed.samples:
            self._sample_testbed()
            return
        for name, process in self._watched:
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    clock_ns = time.monotonic_ns()
                    memory, threads = process.memory_info().rss, process.num_threads()
            except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
                continue
            self._process_rows.writerow(
                [clock_ns, name, process.pid, times.user, times.system, memory, threads]
            )
        self._sample_trees()
        self._sample_hosts()
        self._sample_database()
        machine = psutil.cpu_times()
        clock_ns = time.monotonic_ns()
        network = psutil.net_io_counters(nowrap=False)
        self._machine_rows.writerow(
            [
                clock_ns,
                round(clock_ns * 1e-9 * self._cores, 6),
                round(machine.user + getattr(machine, "nice", 0.0), 2),
                machine.system,
                round(getattr(machine, "irq", 0.0) + getattr(machine, "softirq", 0.0), 2),
                round(machine.idle + getattr(machine, "iowait", 0.0), 2),
                getattr(machine, "steal", 0.0),
                os.getloadavg()[0],
                psutil.virtual_memory().available,
                network.bytes_sent if network else 0,
                *([self._probe.count, round(self._probe.cpu_s, 9)] if self._probe else []),
            ]
        )

    def _sample_testbed(self) -> None:
        """Write the rows of other machines."""
        rows, machine = self._testbed.sample(self._processes)
        for row in rows:
            self._process_rows.writerow([getattr(row, name) for name in PROCESS_COLUMNS])
        self._machine_rows.writerow([getattr(machine, name) for name in MACHINE_COLUMNS])

    def _sample_trees(self) -> None:
        """Write one row for each program that the lab does not know, with its descendants."""
        for tree in self._trees:
            began_s = time.monotonic()
            if began_s < tree.next_s:
                continue
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                self._process_rows.writerow(tree_row(tree.process, time.monotonic_ns()))
            rest_s = _TREE_REST * (time.monotonic() - began_s)
            tree.next_s = began_s + min(rest_s, _TREE_INTERVAL_S)

    def _sample_database(self) -> None:
        """Write the counters of the database and the CPU time of all its processes."""
        if not self._database or not self._database_file:
            return
        if time.monotonic() - self._database_written_s < _DATABASE_INTERVAL_S:
            return
        counted = self._database.counters()
        clock_ns = time.monotonic_ns()
        self._database_written_s = time.monotonic()
        csv.DictWriter(self._database_file, ["clock_ns", *COUNTERS]).writerow(
            {"clock_ns": clock_ns, **counted}
        )
        self._process_rows.writerow(tree_row(self._database.process, time.monotonic_ns()))

    def _sample_hosts(self) -> None:
        """Write one row for each emulated host."""
        if time.monotonic() - self._hosts_written_s < _HOSTS_INTERVAL_S:
            return
        counted = self._testbed.counters()
        clock_ns = time.monotonic_ns()
        self._hosts_written_s = time.monotonic()
        if not counted:
            return
        columns = ["clock_ns", *asdict(counted[0])]
        if self._hosts_file is None:
            self._hosts_file = self._hosts_path.open("w", newline="", encoding="utf-8")
            csv.writer(self._hosts_file).writerow(columns)
        rows = csv.DictWriter(self._hosts_file, columns)
        rows.writerows({"clock_ns": clock_ns, **asdict(row)} for row in counted)
