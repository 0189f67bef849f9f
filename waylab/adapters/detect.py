"""Recognises whose output a file is, and reads it."""

import json
from pathlib import Path
from types import ModuleType

from waylab.adapters import csv_table, field_table, hdr_log, k6, memtier, oha, vegeta, wrk2
from waylab.adapters.foreign import ForeignFile, ForeignTrial, ReadOptions, WrongFileError, check_trial
from waylab.bounded import JSON_BYTES_MAX, UnreadableError, parse_json, read_text
from waylab.errors import LabError

# In the order in which they are asked: a table of trials has columns that other tables may have as well.
_ADAPTERS: tuple[ModuleType, ...] = (memtier, k6, vegeta, oha, wrk2, hdr_log, field_table, csv_table)
_KNOWN = (
    "JSON of memtier_benchmark, k6, vegeta or oha, text of wrk2 or wrk, HdrHistogram logs, CSV with the column "
    "throughput_per_s, and tables of trials"
)


def read_foreign(path: Path, options: ReadOptions) -> list[ForeignTrial]:
    """Return the trials of a file.

    Raises:
        LabError: in one line with the file, what is wrong, and what to do.
    """
    try:
        file = _file(path)
        adapter = next((one for one in _ADAPTERS if one.detect(file)), None)
        if adapter is None:
            raise WrongFileError(f"is of no known kind; known: {_KNOWN}")
        found: list[ForeignTrial] = adapter.read(file, options)
        for trial in found:
            check_trial(trial)
    except FileNotFoundError:
        raise LabError(f"{path}: there is no such file") from None
    except UnreadableError as error:
        raise LabError(f"{path}: {error}; give {_KNOWN}") from None
    except WrongFileError as error:
        advice = "" if ";" in str(error) else "; measure again, or export it again"
        raise LabError(f"{path}: {error}{advice}") from None
    except LabError as error:
        raise LabError(f"{path}: {error}; copy the file again") from None
    except (AttributeError, KeyError, TypeError, IndexError, ArithmeticError, ValueError) as error:
        # An adapter expects the structure that its tool writes.
        raise LabError(
            f"{path}: is not as its tool writes it ({type(error).__name__}: {error}); export it again"
        ) from None
    return found


def _file(path: Path) -> ForeignFile:
    if path.is_dir():
        raise WrongFileError("is a folder; give files")
    if path.exists() and not path.is_file():
        # To read it could block.
        raise WrongFileError("is no regular file; save its content to a file")
    # Programs of Windows begin a text with a byte order mark.
    text = read_text(path, JSON_BYTES_MAX).removeprefix("\ufeff")
    if not text.strip():
        raise WrongFileError("is empty; measure again")
    if text.lstrip().startswith(("{", "[")):
        try:
            return ForeignFile(path, text, parse_json(text))
        except UnreadableError as error:
            try:
                json.loads(text)
            except (ValueError, RecursionError):
                raise WrongFileError(f"{error}: it is truncated or damaged; copy it again") from None
            raise
    return ForeignFile(path, text)
