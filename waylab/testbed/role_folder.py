"""The folder of a trial's roles: their data, sockets and files. It is outside of the run folder, and always removed."""

import os
import shutil
import tempfile
from pathlib import Path

from waylab.testbed.netns.owner import owner_of, this_process
from waylab.testbed.processes import TestbedError

_PART = "roles"


def make_folder() -> Path:
    """Create the folder, after removing those of killed runs; programs of other users may pass through it."""
    temporary = Path(tempfile.gettempdir())
    for path in temporary.glob(f"waylab-*-{_PART}"):
        owner = owner_of(path.name)
        if owner and owner.gone():
            shutil.rmtree(path, ignore_errors=True)
    folder = temporary / this_process().name(_PART)
    try:
        folder.mkdir(mode=0o700)
        os.chmod(folder, 0o711)
    except OSError as error:
        raise TestbedError(f"{folder}: cannot be created: {error.strerror}") from None
    return folder


def remove_folder(folder: Path | None) -> None:
    """Remove the folder with all that the programs left in it."""
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
