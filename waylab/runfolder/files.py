"""Reads and writes the JSON files of a run folder: all or nothing, and a mistake in one is one line.

A run folder may come from a stranger. Links in it are refused, and no text of it can move the cursor of a terminal.
"""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from waylab import bounded
from waylab.errors import LabError
from waylab.runfolder import paths
from waylab.runfolder.analysis import Analysis
from waylab.runfolder.comparison import RunComparison
from waylab.runfolder.environment import Environment
from waylab.runfolder.load import LoadSummary
from waylab.runfolder.manifest import MANIFEST_FORMAT, Manifest
from waylab.runfolder.prediction import Predictions
from waylab.runfolder.run import Run
from waylab.runfolder.stopping import Stopping
from waylab.runfolder.trial import TrialOutcome

Content = TypeVar("Content", bound=msgspec.Struct)


@dataclass(frozen=True)
class FileType:
    """A JSON file of a run folder: its name, its format version, and what to do if it is missing or damaged."""

    name: str
    format: str
    missing: str
    damaged: str


_START_ANEW = "restore the file, or start a new run"
_ANALYSE = "make it with: waylab analyse RUN"
FILES: dict[type[msgspec.Struct], FileType] = {
    Run: FileType(paths.RUN, paths.RUN_FORMAT, "this is not a run folder of waylab", _START_ANEW),
    TrialOutcome: FileType(
        paths.TRIAL,
        paths.TRIAL_FORMAT,
        "the trial did not finish",
        "delete the trial's folder, then: waylab run --resume RUN",
    ),
    LoadSummary: FileType(
        paths.LOAD,
        paths.LOAD_FORMAT,
        "the load wrote no summary",
        "docs/load-summary.md describes it; delete the trial's folder, then: waylab run --resume RUN",
    ),
    Manifest: FileType(
        paths.MANIFEST,
        MANIFEST_FORMAT,
        "the trial left no manifest",
        "delete the trial's folder, then: waylab run --resume RUN",
    ),
    Environment: FileType(
        paths.ENVIRONMENT, paths.ENVIRONMENT_FORMAT, "the run folder is incomplete", _START_ANEW
    ),
    Stopping: FileType(paths.STOPPING, paths.STOPPING_FORMAT, "there is no stopping rule", _START_ANEW),
    Analysis: FileType(paths.ANALYSIS, paths.ANALYSIS_FORMAT, _ANALYSE, _ANALYSE),
    Predictions: FileType(paths.PREDICTIONS, paths.PREDICTIONS_FORMAT, _ANALYSE, _ANALYSE),
    RunComparison: FileType(
        paths.COMPARE,
        paths.COMPARE_FORMAT,
        "make it with: waylab compare RUN_A RUN_B",
        "make it with: waylab compare RUN_A RUN_B",
    ),
}


def _plain(value: object) -> object:
    """Return a number of numpy as one of Python."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in a JSON file")


# Control characters as they are: U+007F, and U+0080 to U+009F in UTF-8. The others are escaped in any JSON text.
_CONTROL = re.compile(rb"\x7f|\xc2[\x80-\x9f]")
# Any escape, so that a backslash that is itself escaped begins none.
_ESCAPE = re.compile(rb"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SHORT_ESCAPES = {b"b": 0x08, b"f": 0x0C, b"r": 0x0D}
_HARMLESS = (b"u0009", b"u000a")


class _Head(msgspec.Struct):
    format: object = None


def write(path: Path, content: msgspec.Struct | Mapping[str, object]) -> None:
    """Write all or nothing: a reader never sees half a file, and neither does a run that is resumed.

    JSON has no infinite numbers; they become null.
    """
    write_bytes(path, encoded(content))


def encoded(content: msgspec.Struct | Mapping[str, object]) -> bytes:
    """Return the bytes of a JSON file with this content."""
    return msgspec.json.format(msgspec.json.encode(content, enc_hook=_plain), indent=1) + b"\n"


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file all or nothing; a link in its place is replaced, never followed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        _remove_leftovers(path)
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise LabError(f"{path}: cannot be written: {error.strerror}") from None


def _remove_leftovers(path: Path) -> None:
    """Remove what processes that were killed while they wrote this file have left; another writer may be alive."""
    for leftover in path.parent.glob(f".{path.name}.*.partial"):
        try:
            os.kill(int(leftover.suffixes[-2][1:]), 0)
        except ProcessLookupError:
            leftover.unlink(missing_ok=True)
        except (ValueError, PermissionError):
            pass


def read(path: Path, kind: type[Content]) -> Content:
    """Read a JSON file and check every value in it.

    Raises:
        LabError: in one line with the file, the place in it, what is wrong and what to do.
    """
    known = FILES[kind]
    run = str(path.parent if kind in (Analysis, Predictions) else "RUN")
    try:
        content = bounded.read_bytes(path, bounded.RUN_FILE_BYTES_MAX)
    except FileNotFoundError:
        raise LabError(f"{path}: not found; {known.missing.replace('RUN', run)}") from None
    except bounded.UnreadableError as error:
        raise LabError(f"{path}: {error}") from None
    return decode(content, kind, str(path), known.damaged.replace("RUN", run))


def decode(content: bytes, kind: type[Content], where: str, advice: str) -> Content:
    """Decode the content of a file; `where` and `advice` are for the words of an error."""
    wanted = FILES[kind].format
    content = _visible(content)
    try:
        head = msgspec.json.decode(content, type=_Head)
        if head.format != wanted:
            raise LabError(f"{where}: format is {head.format!r}, this waylab reads {wanted!r}; {advice}")
        found = msgspec.json.decode(content, type=kind)
        bounded.refuse_repeated_keys(content)
        return found
    except bounded.UnreadableError as error:
        raise LabError(f"{where}: {error}; {advice}") from None
    except msgspec.ValidationError as error:
        raise LabError(f"{where}: {_placed(str(error))}; {advice}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise LabError(f"{where}: is not JSON: {error}; {advice}") from None


def _visible(content: bytes) -> bytes:
    """Make control characters in the strings of a JSON text visible: U+001B becomes the six characters \\u001b.

    A terminal would obey them. Line feeds and tabs stay.
    """
    content = _CONTROL.sub(lambda found: b"\\\\u%04x" % ord(found[0].decode()), content)
    return _ESCAPE.sub(_visible_escape, content)


def _visible_escape(found: re.Match[bytes]) -> bytes:
    name = found[1]
    if name in _SHORT_ESCAPES:
        return b"\\\\u%04x" % _SHORT_ESCAPES[name]
    is_control = len(name) == 5 and (int(name[1:], 16) < 0x20 or 0x7F <= int(name[1:], 16) < 0xA0)
    return b"\\" + found[0] if is_control and name.lower() not in _HARMLESS else found[0]


def _placed(message: str) -> str:
    """Turn a message of msgspec into one that names the place first."""
    what, _, place = message.partition(" - at ")
    place = re.sub(r"^\$\.?", "", place.strip("`"))
    return f"{place}: {what}" if place else what


def read_run(directory: Path, whole: bool = False) -> Run:
    """Read `run.json` of a run folder; its plan without the blocks that a stopping rule spared, unless `whole`."""
    if not directory.is_dir():
        raise LabError(f"{directory}: no such run folder")
    refuse_links(directory)
    run = read(directory / paths.RUN, Run)
    stopping = None if whole else read_stopping(directory)
    if stopping and stopping.stop:
        kept = [trial for trial in run.plan if trial.block <= stopping.block]
        run = msgspec.structs.replace(run, plan=kept)
    return run


def refuse_links(directory: Path) -> None:
    """Raise LabError for anything in a folder that leads out of it or blocks its reader.

    The lab itself makes only files and folders. A link would make it read, copy or overwrite a file elsewhere.
    """
    for folder, folders, names in os.walk(directory):
        for name in (*folders, *names):
            path = Path(folder, name)
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:  # another process finished this file just now
                continue
            if stat.S_ISLNK(mode):
                raise LabError(f"{path}: is a symbolic link; a run folder has none, so remove it")
            if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                raise LabError(f"{path}: is neither a file nor a folder; remove it")


def read_stopping(directory: Path) -> Stopping | None:
    """Read the decisions of a stopping rule; None without a rule, or before the first block has ended."""
    path = directory / paths.STOPPING
    return read(path, Stopping) if path.is_file() else None


def read_trial(directory: Path, trial_id: str) -> TrialOutcome | None:
    """Read the outcome of a trial; None if the trial has not finished."""
    path = paths.trial_directory(directory, trial_id) / paths.TRIAL
    return read(path, TrialOutcome) if path.is_file() else None
