"""Reads record files (`.way`, format 1) into a numpy structured array and checks everything that can be checked.

Every complaint is one line: file, what is wrong, what to do.
"""

import struct
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from waylab import bounded
from waylab.errors import LabError

FORMAT = "waystage-records/1"
_MAGIC = b"WAYREC01"
_MAGIC_STEM = b"WAYREC"
_FOOTER_MAGIC = b"WAYEND01"
_FOOTER = struct.Struct("<8sQQQ")
_PREFIX = struct.Struct("<8sI")
_HEADER_MAX_BYTES = 1 << 20

PARENT = 255
OPERATIONS = (
    "other get gets gat gats set add replace append prepend cas delete incr decr touch flush_all version verbosity "
    "stats quit invalid mg ms md ma mn me "
    "send pop peek waiting_queues create_queue delete_queue show_queue list_queues probe receive "
    "acknowledge extend return"
).split()
OUTCOMES = (
    "answered client_error server_error timeout backend_down backend_lost overloaded client_gone"
).split()

_INTERVALS = {
    "proxy": "parse route admit queue send backend reply".split(),
    "messages": "parse route admit queue send backend reply".split(),
    "load": "slip issue service".split(),
    "cache": "wait service reply".split(),
}


class RecordsError(LabError):
    """A record file that cannot be trusted."""


def interval_names(program: str) -> list[str]:
    """Name the intervals between the stamps of a program, in order."""
    return list(_INTERVALS[program])


class RecordHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a record file: which program wrote it, and what a row is made of."""

    format: str  # waystage-records/1
    program: str  # proxy, messages, load or cache
    stamps: list[str]  # names of the stamps in order
    fields: list[tuple[str, str]]  # name and type of each field before the stamps, as numpy has them
    row_bytes: int  # bytes of a row
    sample: int = 1  # one record is kept for this many requests
    clock: str = "CLOCK_MONOTONIC"  # clock of the stamps, or "simulated"


@dataclass(frozen=True)
class Records:
    """The rows of one process. `written`, `dropped` and `lost` are None when the footer is missing."""

    path: Path
    header: RecordHeader
    rows: NDArray[np.void]
    written: int | None
    dropped: int | None
    lost: int | None
    # Bound on the error of stamps that were converted from another clock; 0 if they were not.
    clock_error_ns: int = 0

    def shifted(self, shift_ns: int, error_ns: int) -> "Records":
        """Return the records with stamps on another clock: later by `shift_ns`, off by up to `error_ns`."""
        rows = self.rows.copy()
        for stamp in self.stamps:
            rows[stamp] = (rows[stamp].astype(np.int64) + shift_ns).astype(np.uint64)
        return replace(self, rows=rows, clock_error_ns=error_ns)

    @property
    def program(self) -> str:
        """Which program wrote it."""
        return self.header.program

    @property
    def sample(self) -> int:
        """One record is kept for this many requests."""
        return self.header.sample

    @property
    def stamps(self) -> list[str]:
        """The names of the stamps, in order."""
        return self.header.stamps

    @property
    def parents(self) -> NDArray[np.void]:
        """The requests themselves, without the rows of their legs."""
        found: NDArray[np.void] = self.rows[self.rows["leg"] == PARENT]
        return found

    @cached_property
    def intervals(self) -> list[str]:
        """The names of the intervals, in order."""
        return interval_names(self.program)

    def interval_ns(self, rows: NDArray[np.void], name: str) -> NDArray[np.int64]:
        """Return the lengths of one interval."""
        index = self.intervals.index(name)
        stamps = self.stamps
        return _difference_ns(rows[stamps[index + 1]], rows[stamps[index]])

    def total_ns(self, rows: NDArray[np.void]) -> NDArray[np.int64]:
        """Return last stamp minus first."""
        return _difference_ns(rows[self.stamps[-1]], rows[self.stamps[0]])


def read_records(path: Path, partial: bool = False) -> Records:
    """Read and check one file; `partial` accepts one that has no footer, or ends in the middle of a row."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise RecordsError(f"{path}: no such record file") from None
    except OSError as error:
        raise RecordsError(f"{path}: cannot be read: {error.strerror}") from None
    header, start = _header(path, content)
    layout = _layout(path, header)
    footer = _footer(path, content, start, layout.itemsize)
    if footer is None:
        if not partial:
            raise RecordsError(
                f"{path}: has no footer, so the process was killed or still runs, or the file is truncated; "
                f"`waystage records dump --partial` shows what is there"
            )
        count = (len(content) - start) // layout.itemsize
    else:
        count = footer[0]
    rows = np.frombuffer(content, dtype=layout, count=count, offset=start)
    records = Records(path, header, rows, *(footer or (None, None, None)))
    _check_rows(records)
    return records


def joined_records(first: Records, second: Records) -> Records:
    """Put the rows of two processes of the same program together; their ports must be different ones."""
    if first.rows.dtype != second.rows.dtype:
        raise RecordsError(f"{second.path}: has other fields than {first.path}")
    written, dropped, lost = (
        None if one is None or other is None else one + other
        for one, other in zip(
            (first.written, first.dropped, first.lost),
            (second.written, second.dropped, second.lost),
            strict=True,
        )
    )
    error_ns = max(first.clock_error_ns, second.clock_error_ns)
    rows = np.concatenate([first.rows, second.rows])
    return Records(first.path, first.header, rows, written, dropped, lost, error_ns)


def _header(path: Path, content: bytes) -> tuple[RecordHeader, int]:
    """Return the header and where the rows begin."""
    if len(content) < _PREFIX.size or not content.startswith(_MAGIC_STEM):
        raise RecordsError(f"{path}: is not a record file (it does not begin with {_MAGIC.decode()})")
    magic, length = _PREFIX.unpack_from(content)
    if magic != _MAGIC:
        version = magic[len(_MAGIC_STEM) :].decode(errors="replace")
        raise RecordsError(f"{path}: is record format version {version!r}, this waylab reads version '01'")
    start = _PREFIX.size + length
    if length > _HEADER_MAX_BYTES or start > len(content):
        raise RecordsError(f"{path}: is truncated within the header")
    text = content[_PREFIX.size : start]
    try:
        found = msgspec.json.decode(text)
        version = found.get("format") if isinstance(found, dict) else found
        if version != FORMAT:
            raise RecordsError(f"{path}: format is {version!r}, this waylab reads {FORMAT!r}")
        bounded.refuse_repeated_keys(text)
        return msgspec.convert(found, RecordHeader), start
    except bounded.UnreadableError as error:
        raise RecordsError(f"{path}: its header {error}") from None
    except msgspec.ValidationError as error:
        raise RecordsError(f"{path}: its header does not describe rows: {error}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RecordsError(f"{path}: its header is not JSON: {error}") from None


def _layout(path: Path, header: RecordHeader) -> np.dtype[np.void]:
    """Build the row from what the header describes."""
    program, stamps, row_bytes = header.program, header.stamps, header.row_bytes
    try:
        fields = [(name, f"<{kind}") for name, kind in header.fields]
        layout = np.dtype(fields + [(name, "<u8") for name in stamps])
    except (TypeError, ValueError) as error:
        raise RecordsError(f"{path}: its header does not describe rows: {error!r}") from None
    if program not in _INTERVALS:
        raise RecordsError(f"{path}: was written by {program!r}; known programs: {', '.join(_INTERVALS)}")
    if len(stamps) != len(_INTERVALS[program]) + 1:
        raise RecordsError(f"{path}: has {len(stamps)} stamps, {program} has {len(_INTERVALS[program]) + 1}")
    needed = {"port", "sequence", "operation", "outcome", "leg", "hits", "keys"}
    if not needed <= set(layout.names or ()):
        raise RecordsError(f"{path}: lacks the fields {', '.join(sorted(needed - set(layout.names or ())))}")
    if layout.itemsize != row_bytes:
        raise RecordsError(
            f"{path}: states {row_bytes} bytes for a row, but its fields have {layout.itemsize}"
        )
    return layout


def _footer(path: Path, content: bytes, start: int, row_bytes: int) -> tuple[int, int, int] | None:
    """Return written, dropped and lost, or None when there is no footer."""
    end = len(content) - _FOOTER.size
    if end < start or not content.startswith(_FOOTER_MAGIC, end):
        return None
    _, written, dropped, lost = _FOOTER.unpack_from(content, end)
    if written * row_bytes != end - start:
        raise RecordsError(
            f"{path}: its footer states {written} rows, but the file has room for {(end - start) / row_bytes:g}; "
            f"the file is damaged"
        )
    return written, dropped, lost


def _check_rows(records: Records) -> None:
    """Check that stamps never decrease and that the intervals of each row add up exactly."""
    rows, stamps = records.rows, records.stamps
    if not len(rows):
        return
    total = np.zeros(len(rows), dtype=np.int64)
    for earlier, later in pairwise(stamps):
        interval = _difference_ns(rows[later], rows[earlier])
        if (interval < 0).any():
            row = int(np.flatnonzero(interval < 0)[0])
            raise RecordsError(
                f"{records.path}: row {row}: {later} ({rows[later][row]}) is before {earlier} ({rows[earlier][row]}); "
                f"the file is damaged or its writer has a bug"
            )
        total += interval
    wrong = np.flatnonzero(total != records.total_ns(rows))
    if len(wrong):
        raise RecordsError(
            f"{records.path}: row {wrong[0]}: its intervals do not add up to {stamps[-1]} - {stamps[0]}"
        )


def _difference_ns(later: NDArray[np.uint64], earlier: NDArray[np.uint64]) -> NDArray[np.int64]:
    return later.astype(np.int64) - earlier.astype(np.int64)
