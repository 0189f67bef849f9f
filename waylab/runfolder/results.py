"""The manifest of a run folder: the hashes of what was computed, so that a later change of it is refused.

A report reads `analysis.json` and `predictions.json` as they are. The trials have manifests of their own.
"""

from pathlib import Path

from waylab.errors import LabError
from waylab.runfolder import paths
from waylab.runfolder.files import read, write
from waylab.runfolder.manifest import MANIFEST_FORMAT, FileHash, Manifest, hash_of

_COMPUTED = (paths.ENVIRONMENT, paths.STOPPING, paths.ANALYSIS, paths.PREDICTIONS)


def seal(directory: Path, stale: tuple[str, ...] = ()) -> None:
    """Write the hashes of the run folder's computed files; those in `stale` wait for their own step."""
    found = {name: _hash(directory / name) for name in _COMPUTED if name not in stale}
    content = Manifest(
        format=MANIFEST_FORMAT,
        run_sha256=_run_sha256(directory),
        trial="",
        seed=0,
        files={name: one for name, one in found.items() if one is not None},
    )
    write(directory / paths.MANIFEST, content)


def check_seal(directory: Path, name: str) -> None:
    """Raise LabError if a computed file, the environment, the stopping rule or the plan changed after the analysis."""
    advice = f"compute it again with: waylab analyse {directory}"
    path = directory / paths.MANIFEST
    if not path.is_file():
        raise LabError(f"{path}: not found, so an older version analysed this run; {advice}")
    sealed = read(path, Manifest)
    if sealed.run_sha256 != _run_sha256(directory):
        raise LabError(f"{directory / paths.RUN}: changed after the run was analysed; {advice}")
    for known in (name, paths.ENVIRONMENT, paths.STOPPING):
        if sealed.files.get(known) != _hash(directory / known):
            raise LabError(f"{directory / known}: changed after the run was analysed; {advice}")


def _run_sha256(directory: Path) -> str:
    found = _hash(directory / paths.RUN)
    return found.sha256 if found else ""


def _hash(path: Path) -> FileHash | None:
    return hash_of(path.read_bytes()) if path.is_file() else None
