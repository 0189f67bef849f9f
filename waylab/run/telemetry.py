"""Processor time, memory and threads of every process, and of the machine, in two CSV files.

Sampled by the thread that waits for the load generator; there is no second thread. Interprets nothing.
"""

import csv
import os
import time
from pathlib import Path
from types import TracebackType

import psutil

from waylab import folder
from waylab.testbed import Process

INTERVAL_S = 0.25
PROCESS_COLUMNS = ["clock_ns", "process", "pid", "user_s", "system_s", "resident_bytes", "threads"]
MACHINE_COLUMNS = [
    "clock_ns",
    "user_s",
    "system_s",
    "interrupt_s",
    "idle_s",
    "steal_s",
    "load_1m",
    "memory_available_bytes",
    "network_sent_bytes",
]


class Telemetry:
    """The two files of one trial, open while it runs."""

    def __init__(self, directory: Path, processes: list[Process]) -> None:
        self._watched = [("waylab", psutil.Process(os.getpid()))]
        for process in processes:
            try:
                self._watched.append((process.name, psutil.Process(process.pid)))
            except psutil.NoSuchProcess:
                continue
        self._process_file = (directory / folder.PROCESSES).open("w", newline="", encoding="utf-8")
        self._machine_file = (directory / folder.MACHINE).open("w", newline="", encoding="utf-8")
        self._process_rows = csv.writer(self._process_file)
        self._machine_rows = csv.writer(self._machine_file)
        self._process_rows.writerow(PROCESS_COLUMNS)
        self._machine_rows.writerow(MACHINE_COLUMNS)

    def __enter__(self) -> "Telemetry":
        self.sample()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process_file.close()
        self._machine_file.close()

    def sample(self) -> None:
        """Write one row for each process that still runs, and one for the machine."""
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
        machine = psutil.cpu_times()
        clock_ns = time.monotonic_ns()
        network = psutil.net_io_counters(nowrap=False)
        self._machine_rows.writerow(
            [
                clock_ns,
                round(machine.user + getattr(machine, "nice", 0.0), 2),
                machine.system,
                round(getattr(machine, "irq", 0.0) + getattr(machine, "softirq", 0.0), 2),
                round(machine.idle + getattr(machine, "iowait", 0.0), 2),
                getattr(machine, "steal", 0.0),
                os.getloadavg()[0],
                psutil.virtual_memory().available,
                network.bytes_sent if network else 0,
            ]
        )
