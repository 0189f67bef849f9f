"""The files of one trial, read and checked, before anything is computed from them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from waylab.errors import LabError
from waylab.records import Records, RecordsError, joined_records, read_records
from waylab.runfolder import paths
from waylab.runfolder.files import read_json


@dataclass
class Artifacts:
    """What a trial left behind. `problems` says what is missing or damaged, a line each."""

    id: str
    plan: dict[str, Any]
    directory: Path
    result: dict[str, Any] | None = None
    load: dict[str, Any] | None = None
    records: dict[str, Records] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def testbed(self) -> dict[str, Any]:
        """Where it ran; runs of earlier versions knew this machine only."""
        return (self.result or {}).get("testbed", {"kind": "local"})

    @property
    def window_ns(self) -> tuple[int, int]:
        """The measured window on the monotonic clock."""
        assert self.load is not None
        return self.load["measure_from_clock_ns"], self.load["measure_to_clock_ns"]


def read_artifacts(directory: Path, plan: dict[str, Any]) -> Artifacts:
    """Read what there is of a trial."""
    found = Artifacts(plan["id"], plan, paths.trial_directory(directory, plan["id"]))
    path = found.directory / paths.TRIAL
    if not path.is_file():
        found.problems.append("has not been run")
        return found
    found.result = read_json(path, paths.TRIAL_FORMAT, "")
    if found.result["status"] != "measured":
        found.problems.append(str(found.result["reason"]))
        return found
    try:
        found.load = read_json(found.directory / paths.LOAD, paths.LOAD_FORMAT, "the load wrote no summary")
    except LabError as error:
        found.problems.append(str(error))
        return found
    expected = _expected(found)
    seen: dict[str, int] = {}
    for path in sorted((found.directory / paths.RECORDS).glob("*.way")):
        try:
            records = read_records(path)
        except RecordsError as error:
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
    return found


def _missing(program: str, seen: int, expected: int) -> str:
    return f"{program}: {seen} of {expected} left records" if seen else f"{program}: left no records"


def _expected(found: Artifacts) -> dict[str, int]:
    """Say how many record files each program must have left; memcached leaves none."""
    assert found.result is not None
    expected = dict(found.plan["system"]["description"]["record_files"])
    if found.result["server"] != "embedded":
        expected.pop("cache", None)
    return expected
