"""The record reader: the golden file of the Rust writer, and one line for every kind of damage."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import STAMPS, layout, record_bytes, rows

from waylab.records import OPERATIONS, RecordsError, interval_names, read_records

GOLDEN = Path(__file__).parents[1] / "golden" / "proxy-v1.way"


def stamped(program="proxy", count=3):
    table = rows(program, count)
    for index, name in enumerate(STAMPS[program]):
        table[name] = 1000 + 10 * index + 100 * np.arange(count)
    return table


def write(tmp_path, content):
    path = tmp_path / "x.way"
    path.write_bytes(content)
    return path


def test_operations_have_the_numbers_of_the_format():
    text = (GOLDEN.parents[2] / "docs/record-format.md").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("`operation`:"))
    assert re.findall(r"(\d+) (\w+)", line) == [(str(number), name) for number, name in enumerate(OPERATIONS)]


def test_the_golden_file():
    records = read_records(GOLDEN)
    assert (records.program, records.written, records.dropped, records.lost) == ("proxy", 5, 0, 0)
    assert records.header.sample == 100
    parents = records.parents
    assert list(parents["sequence"]) == [7, 8, 2**32 - 1] and list(parents["operation"]) == [1, 5, 1]
    assert list(parents["outcome"]) == [0, 0, 3]
    first = parents[:1]
    lengths = {name: int(records.interval_ns(first, name)[0]) for name in records.intervals}
    assert lengths == {
        "parse": 10,
        "route": 15,
        "admit": 5,
        "queue": 0,
        "send": 70,
        "backend": 400,
        "reply": 100,
    }
    assert sum(lengths.values()) == int(records.total_ns(first)[0]) == 600
    assert list(records.rows["leg"]) == [255, 255, 0, 1, 255]


@pytest.mark.parametrize("program", list(STAMPS))
def test_every_program(tmp_path, program):
    records = read_records(write(tmp_path, record_bytes(program, stamped(program), dropped=4, lost=1)))
    assert (records.written, records.dropped, records.lost) == (3, 4, 1)
    assert records.intervals == interval_names(program)
    assert all((records.interval_ns(records.rows, name) == 10).all() for name in records.intervals)


def test_a_file_without_rows_is_valid(tmp_path):
    assert len(read_records(write(tmp_path, record_bytes("load", stamped("load", 0)))).rows) == 0


def broken_rows():
    table = stamped()
    table["answered"][1] = 5
    return table


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a record file"),
        (b"nothing of the kind", "is not a record file"),
        (record_bytes("proxy", stamped(), version="02"), "is record format version '02'"),
        (record_bytes("proxy", stamped())[:40], "is truncated within the header"),
        (record_bytes("proxy", stamped())[:-1], "has no footer"),
        (record_bytes("proxy", stamped())[:-32], "has no footer"),
        (record_bytes("proxy", stamped(), format="other/1"), "format is 'other/1'"),
        (
            record_bytes("proxy", stamped(), row_bytes=96),
            "states 96 bytes for a row, but its fields have 104",
        ),
        (record_bytes("proxy", stamped(), stamps=["received"]), "has 1 stamps, proxy has 8"),
        (record_bytes("proxy", stamped(), fields=[["connection", "zz"]]), "does not describe rows"),
        (record_bytes("proxy", stamped(), program="other"), "was written by 'other'"),
        (record_bytes("proxy", broken_rows()), "row 1: answered (5) is before sent (1150)"),
    ],
)
def test_damaged_files_raise_one_line(tmp_path, content, message):
    path = write(tmp_path, content)
    with pytest.raises(RecordsError) as caught:
        read_records(path)
    line = str(caught.value)
    assert message in line and str(path) in line and "\n" not in line


def test_a_footer_with_another_row_count_is_refused(tmp_path):
    content = bytearray(record_bytes("proxy", stamped()))
    content[-24:-16] = (9).to_bytes(8, "little")
    with pytest.raises(RecordsError, match="footer states 9 rows, but the file has room for 3"):
        read_records(write(tmp_path, bytes(content)))


def test_a_missing_file(tmp_path):
    with pytest.raises(RecordsError, match="no such record file"):
        read_records(tmp_path / "none.way")


def test_partial_reads_the_complete_rows(tmp_path):
    content = record_bytes("proxy", stamped(count=5))[: -32 - 10]
    records = read_records(write(tmp_path, content), partial=True)
    assert len(records.rows) == 4 and records.written is None


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1200), st.binary(max_size=8))
def test_damage_never_causes_a_traceback(tmp_path_factory, where, damage):
    content = bytearray(record_bytes("proxy", stamped(count=4)))
    content[where : where + len(damage)] = damage
    path = tmp_path_factory.mktemp("damage") / "x.way"
    path.write_bytes(bytes(content))
    try:
        records = read_records(path)
    except RecordsError as error:
        assert str(path) in str(error)
    else:
        assert records.rows.dtype.itemsize == layout("proxy").itemsize
