"""Writes the source archive of the latest commit: `python packaging/source.py FOLDER`.

It has the files that git knows, so changes without a commit are not in it. The packages that it builds have the time of
the same commit, and are therefore equal to those of the clone.
"""

import subprocess
import sys
from pathlib import Path

from artefact import ROOT, VERSION, compressed

NAME = f"waystage-{VERSION}"


def build(folder: Path) -> Path:
    """Write the archive into a folder. Raises CalledProcessError outside a clone: an archive has no commits."""
    command = ["git", "archive", "--format=tar", f"--prefix={NAME}/", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{NAME}.tar.gz"
    archive.write_bytes(compressed(done.stdout))
    return archive


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
