"""The summary of pgbench with the requests of a message service (`pgbench.py`), from its log."""

from pathlib import Path

from waylab.outputs.pgbench import Window, content
from waylab.plan import Trial
from waylab.runfolder import paths
from waylab.runfolder.files import write
from waylab.testbed.command_load import add_cpu, generator_cpu_s
from waylab.testbed.pgbench import LOG_PREFIX, SCRIPTS


def summarise(trial: Trial, directory: Path, scripts: Path, process: str) -> None:
    """Write the summary of a trial from pgbench's log; LabError if the log has no request in the window."""
    names = [name for _, name, _, _ in SCRIPTS]
    window = Window(trial.load.warm_up_s, trial.load.test_time_s)
    found = content(scripts / LOG_PREFIX, window, operations=names)
    found["settings"]["clients"] = trial.load.clients
    ends = found["measure_from_clock_ns"], found["measure_to_clock_ns"]
    add_cpu(found, generator_cpu_s(directory / paths.PROCESSES, process, ends), trial)
    write(directory / paths.LOAD, found)
