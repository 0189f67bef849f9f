"""The only place of the lab that knows the record format (docs/record-format.md). Imports nothing but files."""

from waylab.records.reader import (
    OPERATIONS,
    OUTCOMES,
    PARENT,
    Records,
    RecordsError,
    interval_names,
    joined_records,
    read_records,
)

__all__ = [
    "OPERATIONS",
    "OUTCOMES",
    "PARENT",
    "Records",
    "RecordsError",
    "interval_names",
    "joined_records",
    "read_records",
]
