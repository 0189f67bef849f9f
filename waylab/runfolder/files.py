"""Reads and writes the JSON files of a run folder: all or nothing, and a mistake in one is one line."""

import json
import math
import os
from pathlib import Path
from typing import Any

from waylab.errors import LabError
from waylab.runfolder import paths


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write all or nothing: a reader never sees half a file, and neither does a run that is resumed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(_finite(content), file, indent=1, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise LabError(f"{path}: cannot be written: {error.strerror}") from None


def read_json(path: Path, wanted_format: str, what: str) -> dict[str, Any]:
    """Read a JSON file and refuse any other format or version in one line."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LabError(f"{path}: not found; {what}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{path}: cannot be read: {error}") from None
    except json.JSONDecodeError as error:
        raise LabError(f"{path}: not JSON (line {error.lineno}: {error.msg})") from None
    found = content.get("format") if isinstance(content, dict) else None
    if found != wanted_format:
        raise LabError(f"{path}: format is {found!r}, this waylab reads {wanted_format!r}")
    return content


def read_run(directory: Path, whole: bool = False) -> dict[str, Any]:
    """Read `run.json` of a run folder; its plan without the blocks that a stopping rule spared, unless `whole`."""
    if not directory.is_dir():
        raise LabError(f"{directory}: no such run folder")
    run = read_json(directory / paths.RUN, paths.RUN_FORMAT, "this is not a run folder of waylab")
    stopping = None if whole else read_stopping(directory)
    if stopping and stopping["stop"]:
        run["plan"] = [trial for trial in run["plan"] if trial["block"] <= stopping["block"]]
    return run


def read_stopping(directory: Path) -> dict[str, Any] | None:
    """Read what a stopping rule decided; None where there is none, or no block is over yet."""
    path = directory / paths.STOPPING
    return read_json(path, paths.STOPPING_FORMAT, "") if path.is_file() else None


def _finite(content: Any) -> Any:
    """Turn what JSON cannot say (infinite, not a number) into null."""
    if isinstance(content, dict):
        return {str(key): _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    if hasattr(content, "item") and not isinstance(content, str | bytes):
        content = content.item()
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content
