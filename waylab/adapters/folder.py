"""Writes a run folder of imported trials, all or nothing."""

import contextlib
import os
import platform
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from waylab.adapters.planned import SourcedTrial
from waylab.adapters.summary import load_summary
from waylab.errors import LabError
from waylab.runfolder import paths
from waylab.runfolder.environment import Environment
from waylab.runfolder.files import encoded
from waylab.runfolder.manifest import hashes, manifest
from waylab.runfolder.run import PlannedTrial, Run
from waylab.runfolder.trial import FAILED, MEASURED, TrialOutcome
from waylab.version import __version__

_UNKNOWN = "unknown, because the results were imported"


@contextlib.contextmanager
def new_folder(directory: Path) -> Iterator[Path]:
    """Give a folder to write to, which gets its name at the end; after an error nothing is left.

    Raises:
        LabError: when the folder exists or cannot be made.
    """
    if directory.exists() or directory.is_symlink():
        raise LabError(f"{directory}: exists; give another folder with --out")
    made = [one for one in (directory.parent, *directory.parent.parents) if not one.exists()]
    partial = directory.with_name(f".{directory.name}.{os.getpid()}.partial")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        yield partial
        partial.rename(directory)
    except OSError as error:
        _remove(partial, made)
        raise LabError(f"{directory}: cannot be written: {error.strerror}") from None
    except BaseException:
        _remove(partial, made)
        raise


def _remove(partial: Path, parents: Sequence[Path]) -> None:
    shutil.rmtree(partial, ignore_errors=True)
    for one in parents:
        with contextlib.suppress(OSError):
            one.rmdir()


def write_folder(directory: Path, run: Run, found: Sequence[SourcedTrial], sources: dict[str, Path]) -> None:
    """Write the plan, a folder for each trial, and copies of the files that were imported."""
    (directory / paths.RUN).write_bytes(encoded(run))
    (directory / paths.ENVIRONMENT).write_bytes(encoded(_environment()))
    (directory / paths.SOURCES).mkdir()
    for name, path in sources.items():
        copy = directory / paths.SOURCES / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    for planned, one in zip(run.plan, found, strict=True):
        _write_trial(paths.trial_directory(directory, planned.id), planned, one)


def _write_trial(folder: Path, planned: PlannedTrial, one: SourcedTrial) -> None:
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise LabError(
            f"{one.source.file}: its trial {planned.id} has the name of another one; rename its levels"
        ) from None
    trial = one.trial
    outcome = TrialOutcome(
        format=paths.TRIAL_FORMAT,
        id=planned.id,
        order=planned.order,
        status=FAILED if trial.failed else MEASURED,
        reason=trial.failed or None,
        server=None,
        started_unix_s=trial.started_unix_s or 0.0,
        took_s=trial.measured_s,
        processes=[],
        manifest=True,
    )
    (folder / paths.TRIAL).write_bytes(encoded(outcome))
    if not trial.failed:
        (folder / paths.LOAD).write_bytes(encoded(load_summary(trial, one.source)))
    content = manifest(folder, planned.id, planned.seed, hashes(folder))
    (folder / paths.MANIFEST).write_bytes(encoded(content))


def _environment() -> Environment:
    return Environment(
        format=paths.ENVIRONMENT_FORMAT,
        taken_unix_s=time.time(),
        waylab=__version__,
        python=platform.python_version(),
        packages={},
        programs={},
        source=None,
        kernel=_UNKNOWN,
        system=_UNKNOWN,
        processor=_UNKNOWN,
        cores=None,
        cores_physical=None,
        cores_usable=None,
        governor=None,
        clock_source=None,
        transparent_hugepages=None,
        memory_bytes=None,
        virtual_machine=False,
        load_average=[],
    )
