"""`manifest.json`: the files that a trial left, with their hashes, so that later changes are detected."""

import functools
import hashlib
from pathlib import Path

from msgspec import Struct

from waylab.runfolder import paths
from waylab.runfolder.numbers import Count

MANIFEST_FORMAT = "waylab-manifest/1"


class FileHash(Struct, frozen=True, kw_only=True):
    """One file as the trial left it."""

    bytes: Count  # length in bytes
    sha256: str  # SHA-256 of its content, in hexadecimal digits


class Manifest(Struct, frozen=True, kw_only=True):
    """The files of one trial, and which trial of which run it is."""

    format: str  # waylab-manifest/1
    run_sha256: str  # SHA-256 of run.json, which has the plan; "" for a trial without a run
    trial: str  # name of the trial
    seed: int  # seed of the trial
    files: dict[str, FileHash]  # by path within the trial's folder; without the manifest itself


def manifest(directory: Path, trial: str, seed: int, files: dict[str, FileHash]) -> Manifest:
    """Return the manifest of a trial in this folder, with these files."""
    run_sha256 = run_hash(directory)
    return Manifest(format=MANIFEST_FORMAT, run_sha256=run_sha256, trial=trial, seed=seed, files=files)


def hashes(directory: Path, without: tuple[str, ...] = ()) -> dict[str, FileHash]:
    """Return the hash of every file below a folder, by its path in it."""
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    names = {path.relative_to(directory).as_posix(): path for path in found}
    return {name: hash_of(path.read_bytes()) for name, path in names.items() if name not in without}


def run_hash(trial_directory: Path) -> str:
    """Return the SHA-256 of the `run.json` that a trial belongs to; "" without one."""
    path = paths.run_directory(trial_directory) / paths.RUN
    if not path.is_file():
        return ""
    found = path.stat()
    return _hash_of_file(path, found.st_ino, found.st_mtime_ns, found.st_size)


# Every trial asks for the hash of one run.json, which has megabytes in a run of thousands of trials.
@functools.lru_cache(maxsize=4)
def _hash_of_file(path: Path, _inode: int, _changed_ns: int, _bytes: int) -> str:
    return hash_of(path.read_bytes()).sha256


def hash_of(content: bytes) -> FileHash:
    """Return the hash of a file with this content."""
    return FileHash(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
