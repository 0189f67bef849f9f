"""The files of one trial, read and checked, before anything is computed from them."""

from dataclasses import dataclass, field
from pathlib import Path

from waylab.errors import LabError
from waylab.records import Records, joined_records, read_records
from waylab.runfolder import paths
from waylab.runfolder.files import read, read_trial
from waylab.runfolder.load import LoadSummary
from waylab.runfolder.run import PlannedTrial
from waylab.runfolder.trial import MEASURED, TestbedFacts, TrialOutcome


@dataclass
class Artifacts:
    """The files of a trial. `problems` names the ones that are missing or damaged, a line each."""

    plan: PlannedTrial
    directory: Path
    outcome: TrialOutcome | None = None
    load: LoadSummary | None = None
    records: dict[str, Records] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def testbed(self) -> TestbedFacts:
        """Where the trial ran."""
        return self.outcome.testbed if self.outcome else TestbedFacts()


def read_artifacts(directory: Path, plan: PlannedTrial) -> Artifacts:
    """Read the files that a trial left; what is missing or damaged becomes a problem of the trial."""
    found = Artifacts(plan, paths.trial_directory(directory, plan.id))
    outcome = read_trial(directory, plan.id)
    if outcome is None:
        found.problems.append("has not been run")
        return found
    found.outcome = outcome
    if outcome.status != MEASURED:
        found.problems.append(str(outcome.reason))
        return found
    try:
        found.load = read(found.directory / paths.LOAD, LoadSummary)
    except LabError as error:
        found.problems.append(str(error))
        return found
    _read_records(found, _expected(plan, outcome))
    return found


def _read_records(found: Artifacts, expected: dict[str, int]) -> None:
    """Read the record files, join those of one program, and note which are missing."""
    seen: dict[str, int] = {}
    for path in sorted((found.directory / paths.RECORDS).glob("*.way")):
        try:
            records = read_trial_records(path, found.testbed)
        except LabError as error:
            found.problems.append(str(error))
            continue
        program = records.program
        seen[program] = seen.get(program, 0) + 1
        if program not in found.records:
            found.records[program] = records
        elif seen[program] <= expected.get(program, 1):
            found.records[program] = joined_records(found.records[program], records)
        else:
            found.problems.append(f"{path}: one record file of {program} too many")
    if not found.problems:
        found.problems += [
            _missing(name, seen.get(name, 0), count)
            for name, count in sorted(expected.items())
            if seen.get(name, 0) < count
        ]


def _missing(program: str, seen: int, expected: int) -> str:
    return f"{program}: {seen} of {expected} left records" if seen else f"{program}: left no records"


def _expected(plan: PlannedTrial, outcome: TrialOutcome) -> dict[str, int]:
    """Return the number of record files that each program must have left; memcached leaves none."""
    expected = dict(plan.description.record_files)
    if outcome.server != "embedded":
        expected.pop("cache", None)
    return expected


def read_trial_records(path: Path, testbed: TestbedFacts, partial: bool = False) -> Records:
    """Read a record file of a trial; stamps of another host than that of the load are converted.

    Raises:
        LabError: if the file cannot be trusted, or the clock of its host was not measured.
    """
    records = read_records(path, partial)
    # `proxy-123.HOST.way`: only files of other machines name their host.
    host = path.stem.partition(".")[2]
    if not host or host == testbed.clock_host:
        return records
    own, load = testbed.clocks.get(host), testbed.clocks.get(testbed.clock_host or "")
    if own is None or load is None:
        raise LabError(f"{path}: {paths.TRIAL} has no clock of host {host}, so its times cannot be compared")
    return records.shifted(load.offset_ns - own.offset_ns, own.error_ns + load.error_ns)


def testbed_of(records: Path) -> TestbedFacts:
    """Return where the trial with this folder of records ran; one machine if the records belong to no trial."""
    outcome = records.resolve().parent / paths.TRIAL
    return read(outcome, TrialOutcome).testbed if outcome.is_file() else TestbedFacts()
