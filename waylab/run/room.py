"""Room for what a trial writes: better no trial than one whose files end in the middle."""

import shutil
from pathlib import Path

from waylab.errors import LabError

# A trial of some seconds with a record of every request has this much.
ROOM_BYTES = 32 << 20


def make_sure_of_room(directory: Path) -> None:
    """Refuse to go on when the disk is nearly full."""
    free = shutil.disk_usage(directory).free
    if free < ROOM_BYTES:
        raise LabError(
            f"{directory}: only {free >> 20} MiB left on its disk, a trial wants {ROOM_BYTES >> 20}; "
            f"make room and go on with: waylab run --resume {directory}"
        )
