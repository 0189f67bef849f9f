"""The summary of a load whose generator is not `waystage load`: its output, and its CPU time from the telemetry."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import to_builtins

from waylab import bounded
from waylab.outputs import pgbench
from waylab.plan import Trial
from waylab.runfolder import paths
from waylab.runfolder.files import read, write
from waylab.runfolder.load import LoadSummary
from waylab.testbed.processes import Process, TestbedError

Table = dict[str, Any]


def _of_pgbench(output: Path, trial: Trial) -> Table:
    window = pgbench.Window(trial.load.warm_up_s, trial.load.test_time_s)
    return pgbench.content(output, window)


def _of_summary(output: Path, trial: Trial) -> Table:
    content = dict(to_builtins(read(output, LoadSummary)))
    measured_s = content["measured_s"]
    clocks_s = (content["measure_to_clock_ns"] - content["measure_from_clock_ns"]) * 1e-9
    if measured_s <= 0 or clocks_s <= 0:
        raise TestbedError(
            f"{output}: its window has no length: measured_s is {measured_s:g} and its clocks are {clocks_s:g} s apart"
        )
    return content


# By the name that `system.generator.adapter` has: a function of the path in `{output}` and the trial.
ADAPTERS: dict[str, Callable[[Path, Trial], Table]] = {"pgbench": _of_pgbench, "summary": _of_summary}


def write_summary(trial: Trial, directory: Path, output: Path, process: Process) -> None:
    """Write the summary of a trial from the output of its generator.

    Raises:
        LabError: in one line, if the generator failed, or left nothing that its adapter can read.
    """
    if process.exit_code != 0:
        raise TestbedError(f"{process.name}: ended with {process.exit_code}{process.last_error_line()}")
    adapter = trial.system.generator.adapter
    content = ADAPTERS[adapter](output / "out", trial)
    # The lab gave the number of clients to the generator; the interactive law shows whether it used that number.
    content["settings"] = {"generator": adapter} | content["settings"] | {"clients": trial.load.clients}
    window = content["measure_from_clock_ns"], content["measure_to_clock_ns"]
    add_cpu(content, generator_cpu_s(directory / paths.PROCESSES, process.name, window), trial)
    write(directory / paths.LOAD, content)


def add_cpu(content: Table, cpu_s: float, trial: Trial) -> None:
    """Put the CPU time of the generator within the window into its summary."""
    share = cpu_s / content["measured_s"] / trial.load.threads
    content["cpu"] = {"user_s": cpu_s, "system_s": 0.0, "share": share}


def generator_cpu_s(path: Path, process: str, window_ns: tuple[int, int]) -> float:
    """Return the CPU seconds of a process within the window, interpolated from its samples."""
    points = [
        (int(row["clock_ns"]), float(row["user_s"]) + float(row["system_s"]))
        for row in bounded.read_csv(path)
        if row["process"] == process
    ]
    if len(points) < 2:
        raise TestbedError(f"{process}: {path} has no samples of it, because it ended at once")
    clocks, values = zip(*points, strict=True)
    at_start, at_end = np.interp(window_ns, clocks, values)
    return float(at_end - at_start)
