"""Function 3 of docs/life-of-an-experiment.md: all trials of a plan, in order.

A stopped run can be resumed: measured trials stay, an incomplete one is deleted and runs again.
"""

import fcntl
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO

from msgspec import convert

from waylab.errors import LabError
from waylab.plan import Plan, Trial, make_plan, trial_as_dict
from waylab.run.environment import COMMAND, environment
from waylab.run.refused import refused
from waylab.run.stopping import BlockDecisions, Decide, blocks_run
from waylab.run.trial import run_trial
from waylab.runfolder import paths
from waylab.runfolder.environment import Environment
from waylab.runfolder.files import read, read_run, read_trial, write, write_bytes
from waylab.runfolder.run import ExperimentSpec, PlannedTrial, Run
from waylab.runfolder.trial import FAILED, MEASURED, TrialOutcome
from waylab.spec import FULL, Spec, parse_spec, read_spec, read_spec_text, spec_as_dict
from waylab.testbed import (
    Machine,
    Programs,
    RunDatabase,
    Testbed,
    check_requirements,
    open_testbed,
    programs_of,
    used_hosts,
)
from waylab.version import __version__

# After this number of failures in a row the system is broken, and more trials would waste time.
_FAILURES_IN_A_ROW = 3
# If other programs disturb the machine all the time, measuring again does not help.
_REPEATS_MAX = 2
# A trial of some seconds with a record of every request needs this much.
_DISK_SPACE_BYTES = 32 << 20


# Returns the reasons why other programs spoiled a measured trial; none if they did not.
Disturbed = Callable[[str], list[str]]


class InterruptedRunError(LabError):
    """The user stopped the run; the message says how to continue it."""


@dataclass(frozen=True)
class Step:
    """The progress of a run."""

    done: int
    total: int
    trial: Trial
    left_s: float
    result: TrialOutcome | None = None
    # Addresses of metrics with stage times, by process; only if a page follows the run.
    stage_metrics: Mapping[str, str] = field(default_factory=dict)


class Campaign:
    """A run folder and its plan."""

    def __init__(self, directory: Path, spec: Spec, plan: Plan, programs: Programs) -> None:
        self.directory = directory
        self.spec = spec
        self.plan = plan
        self._programs = programs
        self._stamps = programs.stamps()

    def servers(self) -> list[str]:
        """Return lines that name the database and the servers behind the proxy, and why each was chosen."""
        used = {
            trial.system.backends.server: trial.system.backends
            for trial in self.plan.trials
            if "backends" in trial.system.programs(trial.assignment.generators)
        }
        lines = []
        if self._programs.postgres:
            lines.append(f"database: {self._programs.postgres.version}, {self._programs.postgres.folder}")
        for wanted, backends in used.items():
            chosen = self._programs.server_for(wanted, backends.service_time)
            if chosen == "memcached":
                lines.append(f"servers: real memcached, {self._programs.memcached}")
            elif wanted == "auto" and not self._programs.memcached:
                lines.append("servers: embedded (waystage cache), because memcached is not on PATH")
            else:
                lines.append("servers: embedded (waystage cache), as specified")
        return lines

    def hosts(self) -> list[str]:
        """Return one line that names the hosts of the programs; no line for this machine without emulation."""
        if self.spec.testbed.kind == "local":
            return []
        names = ", ".join(used_hosts(self.plan.trials))
        measured = (
            "their clocks are measured before and after every trial"
            if self.spec.testbed.kind == "ssh"
            else "their links are measured before the first trial"
        )
        return [f"testbed {self.spec.testbed.kind}: {names}; {measured}"]

    def run(
        self,
        on_step: Callable[[Step], None],
        decide: Decide | None = None,
        disturbed: Disturbed = lambda trial_id: [],
        live: bool = False,
    ) -> None:
        """Run the missing trials; `on_step` is called several times a second and after every trial.

        `decide` is called after every block, if the specification has a stopping rule. Trials of which `disturbed`
        returns reasons run again at the end of their block, so that they stay close to the trials that they are
        compared with. With `live`, programs write and serve what a page shows of a running trial.
        """
        with _Lock(self.directory):
            try:
                decisions = BlockDecisions(self.directory, self.spec.stopping, self.plan, decide)
                decisions.catch_up(self.waiting())
                if not self.waiting(disturbed):
                    return
                limit = self.spec.gates.link_error_max
                logs = self.directory / paths.LINKS
                with (
                    open_testbed(self.spec.testbed, self.plan.trials, logs, limit) as testbed,
                    self._database(testbed) as database,
                ):
                    testbed.live = live
                    self._run(testbed, database, on_step, decisions, disturbed)
            except KeyboardInterrupt:
                raise InterruptedRunError(
                    f"stopped; continue with: waylab run --resume {self.directory}"
                ) from None
            except OSError as error:
                # The cause can be a full disk. Files that are complete stay as they are.
                where = error.filename or self.directory
                raise LabError(
                    f"{where}: {error.strerror}; repair it and continue with: waylab run --resume {self.directory}"
                ) from None

    def finished(self, trial: Trial) -> bool:
        """Return whether a trial was measured; a failed trial runs again."""
        outcome = read_trial(self.directory, trial.id)
        return outcome is not None and outcome.status == MEASURED

    def waiting(self, disturbed: Disturbed = lambda trial_id: []) -> list[Trial]:
        """Return the trials still to be run. A met stopping rule excludes all later blocks."""
        last = blocks_run(self.directory)
        return [
            trial
            for trial in self.plan.trials
            if (last is None or trial.block <= last) and (not self.finished(trial) or disturbed(trial.id))
        ]

    def _database(self, testbed: Testbed) -> AbstractContextManager[RunDatabase | None]:
        """Return the database of the run as a context; the first trial that needs it starts it."""
        if not self._programs.postgres:
            return nullcontext()
        return RunDatabase(testbed, self._programs, self.plan.trials, self.directory)

    def _run(
        self,
        testbed: Testbed,
        database: RunDatabase | None,
        on_step: Callable[[Step], None],
        decisions: BlockDecisions,
        disturbed: Disturbed,
    ) -> None:
        waiting = self.waiting(disturbed)
        already = len(self.plan.trials) - len(waiting)
        failures = 0
        pace = _Pace()
        times: Counter[str] = Counter()
        # Grows at the end of a block by the trials that run again.
        for index, trial in enumerate(waiting):
            ahead = [other for other in waiting[index:] if other.block <= decisions.horizon]
            rest_s = sum(other.expected_s for other in ahead)
            done, total = already + index, already + index + len(ahead)

            def tick(
                spent_s: float,
                stage_metrics: Mapping[str, str],
                trial: Trial = trial,
                rest_s: float = rest_s,
                done: int = done,
                total: int = total,
            ) -> None:
                left_s = max(0.0, rest_s * pace.factor - spent_s)
                on_step(Step(done, total, trial, left_s, stage_metrics=stage_metrics))

            tick(0.0, {})
            require_disk_space(self.directory)
            self._require_programs()
            directory = paths.trial_directory(self.directory, trial.id)
            earlier = refused(self.directory, trial.id, disturbed(trial.id) if self.finished(trial) else [])
            result = run_trial(trial, self._programs, directory, testbed, tick, database, earlier)
            pace.learn(trial.expected_s, result.took_s)
            on_step(Step(done + 1, total, trial, max(0.0, (rest_s - trial.expected_s) * pace.factor), result))
            failures = failures + 1 if result.status == FAILED else 0
            if failures == _FAILURES_IN_A_ROW:
                raise LabError(
                    f"{failures} trials failed in a row, the last one with: {result.reason}; "
                    f"repair it and continue with: waylab run --resume {self.directory}"
                )
            times[trial.id] += 1
            if index + 1 < len(waiting) and waiting[index + 1].block == trial.block:
                continue
            again = [
                other
                for other in self.plan.trials
                if other.block == trial.block and 0 < times[other.id] <= _REPEATS_MAX and disturbed(other.id)
            ]
            waiting[index + 1 : index + 1] = again
            if not again and decisions.ends_after(trial.block):
                return

    def _require_programs(self) -> None:
        """Raise LabError if a program was replaced since the run began, because its trials would be of two versions."""
        now = self._programs.stamps()
        for path, stamp in self._stamps.items():
            if now[path] != stamp:
                raise LabError(
                    f"{path}: was replaced during the run, so its trials are of two versions; "
                    "start a new run with a copy of the program that stays unchanged"
                )


class _Pace:
    """The ratio of actual to expected durations of trials."""

    def __init__(self) -> None:
        self._expected_s = 0.0
        self._took_s = 0.0

    @property
    def factor(self) -> float:
        return self._took_s / self._expected_s if self._expected_s else 1.0

    def learn(self, expected_s: float, took_s: float) -> None:
        self._expected_s += expected_s
        self._took_s += took_s


class _Lock:
    """Allows one waylab at a time in a run folder, because a second one would delete the trial of the first."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / paths.RUN
        self._file: IO[str] | None = None

    def __enter__(self) -> None:
        self._file = self._path.open(encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise LabError(f"{self._path.parent}: another waylab is running it") from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()


def create_run(spec_path: Path, results: Path, scale: str = FULL, text: str | None = None) -> Campaign:
    """Create the run folder of a specification, without trials; `text` is its content, if it was read before.

    The file is read once, because another program may replace it meanwhile.
    """
    text = read_spec_text(spec_path) if text is None else text
    spec = parse_spec(text, spec_path, scale)
    plan = make_plan(spec)
    check_requirements(spec.testbed, plan.trials, Machine())
    programs = programs_of(plan.trials)
    now = datetime.now(UTC)
    directory = _new_directory(results, now.strftime("%Y%m%dT%H%M%SZ"), spec.name)
    write_bytes(directory / paths.SPEC, text.encode())
    write(directory / paths.ENVIRONMENT, environment(programs))
    write(directory / paths.RUN, _run_content(spec, plan, spec_path, directory, now, scale))
    return Campaign(directory, spec, plan, programs)


def resume_run(directory: Path) -> Campaign:
    """Open a stopped run with the specification that it was started with."""
    run = read_run(directory, whole=True)
    spec = read_spec(directory / paths.SPEC, run.scale)
    plan = make_plan(spec)
    if [trial.id for trial in plan.trials] != [trial.id for trial in run.plan]:
        raise LabError(f"{directory / paths.SPEC}: yields another plan than {paths.RUN}; start a new run")
    check_requirements(spec.testbed, plan.trials, Machine())
    programs = programs_of(plan.trials)
    started_with = read(directory / paths.ENVIRONMENT, Environment)
    now, then = _hash_of(environment(programs)), _hash_of(started_with)
    for name in {**now, **then}:
        if now.get(name) != then.get(name):
            path = programs.commands.get(name.removeprefix(f"{COMMAND} "), programs.waystage)
            raise LabError(
                f"{directory}: {path} is not the program that the run was started with; start a new run"
            )
    return Campaign(directory, spec, plan, programs)


def _hash_of(found: Environment) -> dict[str, str]:
    """Return the hash of every version of `waystage` in a run, and of the programs that its specification describes."""
    return {
        name: program.sha256
        for name, program in found.programs.items()
        if program and name.split(" ")[0] in ("waystage", COMMAND)
    }


def unfinished_runs(results: Path, spec_path: Path) -> list[Path]:
    """Return the unfinished runs of exactly this specification."""
    text = spec_path.read_bytes()
    found = []
    for path in sorted(results.glob(f"*/{paths.RUN}")):
        directory = path.parent
        try:
            run = read_run(directory)
            same = (directory / paths.SPEC).read_bytes() == text
        except (LabError, OSError):
            continue
        trials = [paths.trial_directory(directory, trial.id) / paths.TRIAL for trial in run.plan]
        if same and not all(trial.is_file() for trial in trials):
            found.append(directory)
    return found


def require_disk_space(directory: Path) -> None:
    """Raise LabError before a trial if the disk is nearly full, so that no trial ends with truncated files."""
    free = shutil.disk_usage(directory).free
    if free < _DISK_SPACE_BYTES:
        raise LabError(
            f"{directory}: only {free >> 20} MiB left on its disk, a trial needs {_DISK_SPACE_BYTES >> 20}; "
            f"free some space and continue with: waylab run --resume {directory}"
        )


def _new_directory(results: Path, stamp: str, name: str) -> Path:
    try:
        results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{results}: cannot create a run folder: {error.strerror}") from None
    for attempt in range(100):
        directory = results / (f"{stamp}-{name}" if not attempt else f"{stamp}-{name}-{attempt + 1}")
        try:
            directory.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise LabError(f"{results}: cannot create a run folder: {error.strerror}") from None
        return directory
    raise LabError(f"{results}: cannot find a free name for {stamp}-{name}; wait a second")


def _run_content(spec: Spec, plan: Plan, spec_path: Path, directory: Path, now: datetime, scale: str) -> Run:
    original = re.sub(r"^\./", "", str(spec_path))
    return Run(
        format=paths.RUN_FORMAT,
        waylab=__version__,
        name=spec.name,
        created_utc=now.strftime("%Y-%m-%d %H:%M:%S"),
        created_unix_s=round(time.time(), 3),
        scale=scale,
        quick=scale != FULL,
        spec_path=original,
        spec=convert(spec_as_dict(spec), ExperimentSpec),
        expected_s=plan.expected_s,
        plan=[convert(trial_as_dict(trial), PlannedTrial) for trial in plan.trials],
        reproduce=[
            f"waylab run {original}" + (f" --scale {scale}" if scale != FULL else ""),
            f"waylab run --resume {directory}",
            f"waylab analyse {directory}",
            f"waylab report {directory}",
        ],
    )
