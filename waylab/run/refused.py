"""Why earlier measurements of a trial are not used, kept in its folder while it is measured again.

`trial.json` is written last. Without this file, a run that is stopped in between would forget the reasons.
"""

from pathlib import Path

import msgspec

from waylab import bounded
from waylab.errors import LabError
from waylab.runfolder import paths
from waylab.runfolder.files import read_trial, write
from waylab.runfolder.trial import MEASURED


class _Refused(msgspec.Struct):
    refused: list[str]


def keep_refused(trial_directory: Path, reasons: list[str]) -> None:
    """Keep the reasons until the outcome of the new measurement contains them."""
    if reasons:
        write(trial_directory / paths.REFUSED, {"refused": reasons})


def forget_refused(trial_directory: Path) -> None:
    """Remove the reasons, which the outcome of the new measurement contains."""
    (trial_directory / paths.REFUSED).unlink(missing_ok=True)


def refused(directory: Path, trial_id: str, disturbances: list[str]) -> list[str]:
    """Return why all earlier measurements of a trial are not used; `disturbances` are those of the last one."""
    outcome = read_trial(directory, trial_id)
    if outcome is None:
        return _kept(paths.trial_directory(directory, trial_id) / paths.REFUSED)
    if outcome.status != MEASURED:
        return outcome.refused
    return [*outcome.refused, "; ".join(disturbances)]


def _kept(path: Path) -> list[str]:
    if not path.is_file():
        return []
    try:
        return msgspec.json.decode(
            bounded.read_bytes(path, bounded.RUN_FILE_BYTES_MAX), type=_Refused
        ).refused
    except (bounded.UnreadableError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LabError(f"{path}: {error}; delete the file, then resume the run") from None
