"""Function 4 of docs/life-of-an-experiment.md: one trial.

Starts the system, loads it and stops it. `trial.json` is written last, so a trial without it is incomplete.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace

from waylab.errors import LabError
from waylab.plan import Trial
from waylab.run.accounting import UNKNOWN_ACCOUNTING, cpu_accounting
from waylab.run.environment import machine_now
from waylab.run.refused import forget_refused, keep_refused
from waylab.run.scrape import Scraper
from waylab.run.speed import SpeedProbe
from waylab.run.telemetry import INTERVAL_S, Telemetry
from waylab.runfolder import paths
from waylab.runfolder.files import encoded, read, write, write_bytes
from waylab.runfolder.load import LoadSummary
from waylab.runfolder.manifest import hash_of, hashes, manifest
from waylab.runfolder.trial import (
    FAILED,
    MEASURED,
    DatabaseFacts,
    ProcessOutcome,
    TrialOutcome,
)
from waylab.spec import MACHINE_SPEED
from waylab.testbed import Process, Programs, RunDatabase, RunningSystem, Testbed, running_system

# For prefill and connecting, in addition to warm-up and test time.
_LOAD_GRACE_S = 60.0


def run_trial(
    trial: Trial,
    programs: Programs,
    directory: Path,
    testbed: Testbed,
    tick: Callable[[float, Mapping[str, str]], None],
    database: RunDatabase | None = None,
    refused: list[str] | None = None,
) -> TrialOutcome:
    """Run one trial in its emptied folder; `tick` is called several times a second.

    `tick` receives the elapsed seconds, and the addresses of metrics with stage times by process. There are some only
    if a page follows the run.
    `refused` has the reasons why earlier measurements of this trial are not used.

    If a program fails, the trial is `failed` with the reason; this is not an error of the lab.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    keep_refused(directory, refused or [])
    started_unix_s = time.time()
    started_s = time.monotonic()
    before = machine_now()
    failure: str | None = None
    overlap: float | None = None
    counted: dict[str, dict[str, int | None] | None] = {}
    system = running_system(trial, programs, directory, testbed, database)
    database = system.database
    try:
        with ExitStack() as ending, system:
            testbed.begin_trial(next(iter(trial.assignment.load), None))
            with testbed.without_quotas():
                addresses = system.start_servers()
                system.prefill(addresses)
            counted["before"] = database.counters() if database else None
            loads = system.start_load(addresses)
            probe = SpeedProbe() if trial.covariate == MACHINE_SPEED else None
            with (
                Telemetry(directory, system.processes, testbed, database, probe) as telemetry,
                Scraper(directory, system.metrics),
            ):
                _watch(
                    trial,
                    system,
                    loads,
                    telemetry,
                    lambda: tick(time.monotonic() - started_s, system.stage_metrics),
                )
            ending.enter_context(testbed.without_quotas())
            _check_summaries(system, loads, directory)
            system.write_summary()
            if len(loads) > 1:
                overlap = _overlap(directory, system)
                system.merge_summaries()
        # The counters are complete after all programs and their server processes have ended.
        counted["after"] = database.final_counters() if database else None
    except LabError as error:
        failure = str(error)
    failure = failure or _failure_of(system.processes)
    outcome = TrialOutcome(
        format=paths.TRIAL_FORMAT,
        id=trial.id,
        order=trial.order,
        status=FAILED if failure else MEASURED,
        reason=failure,
        server=system.server,
        testbed=testbed.facts(),
        database=_database_facts(database, counted),
        generators_overlap=overlap,
        started_unix_s=round(started_unix_s, 3),
        took_s=round(time.monotonic() - started_s, 3),
        before=before,
        after=machine_now(),
        accounting=UNKNOWN_ACCOUNTING if testbed.samples else cpu_accounting(),
        manifest=True,
        refused=refused or [],
        clock_step_s=round(time.time() - started_unix_s - (time.monotonic() - started_s), 6),
        processes=[
            ProcessOutcome(
                name=process.name,
                host=process.host,
                command=process.command,
                pid=process.pid,
                exit_code=process.exit_code,
                killed=process.killed,
            )
            for process in system.processes
        ],
    )
    _write_outcome(directory, trial, outcome)
    return outcome


def _write_outcome(directory: Path, trial: Trial, outcome: TrialOutcome) -> None:
    """Write the manifest, which includes the outcome, and then the outcome itself as the last file."""
    content = encoded(outcome)
    files = hashes(directory, (paths.MANIFEST, paths.TRIAL, paths.REFUSED)) | {paths.TRIAL: hash_of(content)}
    write(directory / paths.MANIFEST, manifest(directory, trial.id, trial.seed, files))
    write_bytes(directory / paths.TRIAL, content)
    forget_refused(directory)


def _database_facts(
    database: RunDatabase | None, counted: dict[str, dict[str, int | None] | None]
) -> DatabaseFacts | None:
    """Return the facts of the trial's database with its counters before and after the load."""
    if database is None:
        return None
    return replace(database.facts(), before=counted.get("before"), after=counted.get("after"))


def _watch(
    trial: Trial,
    system: RunningSystem,
    loads: list[Process],
    telemetry: Telemetry,
    tick: Callable[[], None],
) -> None:
    """Sample until the load generators exit; fail if another process exits before them."""
    deadline = time.monotonic() + trial.load.warm_up_s + trial.load.test_time_s + _LOAD_GRACE_S
    while not all([load.wait(INTERVAL_S / len(loads)) for load in loads]):
        telemetry.sample()
        tick()
        for process in system.processes:
            if process not in loads and not process.name.startswith("fill") and not process.running():
                message = f"{process.name}: ended with {process.exit_code} during the load{process.last_error_line()}"
                raise LabError(message)
        if time.monotonic() > deadline:
            raise LabError(f"load: did not end within {_LOAD_GRACE_S:g} s after its test time")
    telemetry.sample()


def _check_summaries(system: RunningSystem, loads: list[Process], directory: Path) -> None:
    """Fail if a load generator exited with an error and wrote no summary."""
    for load, generator in zip(loads, system.generators, strict=True):
        if load.exit_code != 0 and not (directory / generator.summary).is_file():
            raise LabError(
                f"{load.name}: ended with {load.exit_code} and wrote no summary{load.last_error_line()}"
            )


def _overlap(directory: Path, system: RunningSystem) -> float:
    """Return the time in which every load generator measured, as a share of the time in which any did."""
    windows = [read(directory / generator.summary, LoadSummary).window_ns for generator in system.generators]
    starts_ns, ends_ns = [start for start, _ in windows], [end for _, end in windows]
    return max(0, min(ends_ns) - max(starts_ns)) / max(1, max(ends_ns) - min(starts_ns))


def _failure_of(processes: list[Process]) -> str | None:
    """Return the reason why a server did not stop normally; the gates judge the exit code of the load."""
    for process in processes:
        if process.name.startswith("load"):
            continue
        if process.killed:
            return f"{process.name}: did not stop on SIGTERM and was killed"
        if process.exit_code not in (0, -15):
            return f"{process.name}: ended with {process.exit_code}{process.last_error_line()}"
    return None
