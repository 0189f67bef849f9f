"""`waylab import`: reads files, gives their trials levels, and writes the run folder."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from waylab.adapters.detect import read_foreign
from waylab.adapters.factors import given_levels, levels_of_name, with_differing_settings, with_levels
from waylab.adapters.folder import new_folder, write_folder
from waylab.adapters.foreign import UNIT_NAMES, ForeignTrial, ReadOptions
from waylab.adapters.planned import SourcedTrial, planned_run
from waylab.errors import LabError
from waylab.runfolder import paths
from waylab.runfolder.load import LoadSource
from waylab.runfolder.manifest import hash_of
from waylab.runfolder.run import check_file_name

TRIALS_MAX = 100_000


@dataclass(frozen=True)
class ImportRequest:
    """What is imported, and what the user states about it.

    `levels` are texts NAME=VALUE that hold for every file, `names` is a pattern of file names such as
    `{version}-{clients}.json`, and `where` are texts COLUMN=VALUE that rows of tables must have.
    """

    files: Sequence[Path]
    directory: Path
    name: str = "imported"
    levels: Sequence[str] = ()
    names: str = ""
    where: Sequence[str] = ()
    errors_max: int = 0
    options: ReadOptions = field(default_factory=ReadOptions)


def import_results(request: ImportRequest) -> Path:
    """Write a run folder of the results in files of other tools, without analysing it, and return its path.

    Raises:
        LabError: in one line with the file, what is wrong and what to do. Then nothing is left behind.
    """
    try:
        check_file_name(request.name)
    except ValueError as error:
        raise LabError(f"--name: {error}") from None
    if not request.files:
        raise LabError("import: no files are given")
    given, kept = given_levels(request.levels), _pairs(request.where)
    found: list[SourcedTrial] = []
    sources: dict[str, Path] = {}
    seen: dict[str, Path] = {}
    for path in request.files:
        trials = [one for one in read_foreign(path, request.options) if _matches(one, kept, path)]
        sha256 = hash_of(path.read_bytes()).sha256
        if sha256 in seen:
            raise LabError(f"{path}: has the same content as {seen[sha256]}; give each measurement once")
        seen[sha256] = path
        kept_name = _kept_name(path, request.names)
        names = (kept_name, *(f"{number}/{kept_name}" for number in range(2, len(sources) + 3)))
        name = next(one for one in names if one not in sources)
        sources[name] = path
        levels = _both(given, levels_of_name(path, request.names), path)
        found += [_sourced(with_levels(one, levels, _where(path, one)), name, sha256, path) for one in trials]
    if not found:
        raise LabError(f"import: no row has {' and '.join(request.where)}")
    if len(found) > TRIALS_MAX:
        raise LabError(
            f"import: {len(found)} trials are too many; at most {TRIALS_MAX}, choose some with --where"
        )
    trials = with_differing_settings([one.trial for one in found])
    found = [replace(one, trial=trial) for one, trial in zip(found, trials, strict=True)]
    run = planned_run(found, request.name, request.errors_max, _command(request, list(sources)))
    with new_folder(request.directory) as partial:
        write_folder(partial, run, found, sources)
    return request.directory


def _kept_name(path: Path, pattern: str) -> str:
    """Return the name of the copy of a file: with the folders in which the pattern of names finds levels."""
    parts = path.parts[-1 - pattern.count("/") :]
    return "/".join(parts) if not {"..", path.anchor} & set(parts) else path.name


def _where(path: Path, trial: ForeignTrial) -> str:
    return f"{path}: line {trial.line}" if trial.line else str(path)


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise LabError(f"--where {name[:60]}: give COLUMN=VALUE, for example experiment=mwb1")
    return {name: value for name, _, value in pairs}


def _matches(trial: ForeignTrial, kept: dict[str, str], path: Path) -> bool:
    cells = {**trial.levels, **trial.row}
    for name in kept:
        if name not in cells:
            raise LabError(
                f"{path}: --where {name}: is no column of it; its columns: {', '.join(cells) or 'none'}"
            )
    return all(cells[name] == value for name, value in kept.items())


def _both(given: dict[str, str], named: dict[str, str], path: Path) -> dict[str, str]:
    for name in given.keys() & named.keys():
        if given[name] != named[name]:
            raise LabError(
                f"{path}: {name} is {named[name]!r} in its name and {given[name]!r} in --set; give one"
            )
    return {**named, **given}


def _sourced(trial: ForeignTrial, name: str, sha256: str, path: Path) -> SourcedTrial:
    """Complete a trial with what its loop and its clients imply, and name its source."""
    loop, rate, clients = trial.loop, trial.load.rate, trial.load.clients
    unknown = dict(trial.unknown)
    if loop == "closed" and rate:
        raise LabError(f"{path}: {trial.tool} is a closed loop, which has no rate; leave rate out")
    if loop == "open" and not rate:
        raise LabError(
            f"{path}: {trial.tool} does not write the rate that it was given (-R); add --set rate=2000, or rate=2000 "
            "to the name of the file"
        )
    if trial.tool == "vegeta" and "rate" not in trial.levels:
        unknown["achieved_offered"] = (
            "vegeta does not write the rate that it was given; give it with --set rate=N"
        )
    if not rate and not clients:
        unknown["interactive_law"] = "the number of clients is unknown; give it with --set clients=N"
    source = LoadSource(
        tool=trial.tool,
        file=name,
        sha256=sha256,
        line=trial.line,
        view=trial.view,
        latency=trial.latency,
        corrected=trial.corrected,
        unknown=unknown,
    )
    return SourcedTrial(trial, source)


def _command(request: ImportRequest, names: Sequence[str]) -> str:
    """Return the command that imports the copies of the files again, which have these names."""
    files = [f"{paths.SOURCES}/{name}" for name in names]
    options = [text for one in request.levels for text in ("--set", one)]
    options += [text for one in request.where for text in ("--where", one)]
    options += ["--names", request.names] if request.names else []
    options += ["--errors-max", str(request.errors_max)] if request.errors_max else []
    options += ["--unit", UNIT_NAMES[request.options.unit_ns]] if request.options.unit_ns else []
    options += ["--tag", request.options.tag] if request.options.tag else []
    options += ["--name", request.name] if request.name != ImportRequest.name else []
    return shlex.join(["waylab", "import", *files, *options])
