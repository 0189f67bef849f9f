"""Stage times from record files alone, with a known truth."""

import json
import shutil

import numpy as np
import pytest
from synthetic import STAMPS, START_NS, record_bytes, rows

from waylab.analysis.trial.folder_stages import folder_stages
from waylab.cli import main
from waylab.errors import LabError
from waylab.records import OPERATIONS
from waylab.runfolder.files import read_run

SEND, POP = OPERATIONS.index("send"), OPERATIONS.index("pop")


def messages_rows(count=40):
    """Half sends, half pops; the n-th stage of each takes (n + 1) us, twice as long in the second half of the time."""
    table = rows("messages", count)
    table["operation"] = np.where(np.arange(count) % 2, POP, SEND)
    start_ns = 1_000_000_000 + 100_000_000 * np.arange(count)
    slow = np.where(np.arange(count) < count // 2, 1, 2)
    for index, name in enumerate(STAMPS["messages"]):
        table[name] = start_ns + slow * 1000 * sum(range(1, index + 1))
    table["backend"], table["backend_sequence"] = 0, np.arange(count) // 4
    return table


def test_stage_times_batches_and_outcomes(tmp_path):
    table = messages_rows()
    table["outcome"][0], table["backend"][0] = 6, 65535
    (tmp_path / "messages-1.way").write_bytes(record_bytes("messages", table[:20]))
    (tmp_path / "messages-2.way").write_bytes(record_bytes("messages", table[20:], dropped=3))
    found = folder_stages(tmp_path)["messages"]
    assert found.operations["all"].count == 39 and found.operations["send"].count == 19
    assert found.outcomes == {"answered": 39, "overloaded": 1} and found.dropped == 3
    pops = found.operations["pop"].stages
    assert [round(pops[name].mean_ns) for name in ("parse", "queue", "reply", "total")] == [
        1500,
        6000,
        10500,
        42000,
    ]
    assert (found.batch.mean, found.batch.largest) == (3.9, 4.0)
    assert found.batch.met_mean == pytest.approx((9 * 16 + 9) / 39)


def test_the_beginning_and_the_end_can_be_trimmed(tmp_path):
    (tmp_path / "messages-1.way").write_bytes(record_bytes("messages", messages_rows()))
    found = folder_stages(tmp_path, skip_s=2.0, cut_s=0.5)["messages"]
    assert found.operations["all"].count == 15
    assert found.operations["all"].stages["parse"].mean_ns == 2000
    with pytest.raises(LabError, match="leave out less"):
        folder_stages(tmp_path, skip_s=10)


def test_the_records_of_a_trial_are_those_of_its_measured_window(run_folder):
    """Requests before and after the window are slower; they must not count."""
    trial = run_folder / "trials" / read_run(run_folder).plan[0].id
    record = next((trial / "records").glob("proxy-*.way"))
    inside = folder_stages(trial)["proxy"]
    table = rows("proxy", 500)
    for index, name in enumerate(STAMPS["proxy"]):
        table[name] = START_NS - 1_000_000_000 + np.arange(500) + index * 10_000_000
    record.with_name("proxy-7.way").write_bytes(record_bytes("proxy", table, sample=inside.sample))
    for place in (trial, trial / "records"):
        found = folder_stages(place)["proxy"]
        assert found.measured and found.operations == inside.operations
    elsewhere = run_folder.parent / "elsewhere"
    shutil.copytree(trial / "records", elsewhere)
    found = folder_stages(elsewhere)["proxy"]
    assert not found.measured and found.operations["all"].count == inside.operations["all"].count + 500


def test_the_command(tmp_path, capsys):
    (tmp_path / "messages-1.way").write_bytes(record_bytes("messages", messages_rows()))
    assert main(["stages", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "pop" in printed and "operation" in printed and "…" not in printed
    assert main(["stages", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"]["sample"] == 1


def test_a_folder_without_records_prints_one_line(tmp_path, capsys):
    assert main(["stages", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"waylab: {tmp_path}: contains no record files (*.way)\n"
