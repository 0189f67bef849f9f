"""Files that are read have limits: one line instead of a traceback, an endless wait or all of the memory."""

import time

import pytest

from waylab import bounded
from waylab.analysis.trial.cpu import machine
from waylab.cli.main import main
from waylab.errors import LabError
from waylab.models import ModelError, read_network
from waylab.runfolder import files
from waylab.runfolder.run import Run
from waylab.spec.read import read_spec

DEEP = {
    "toml": ["a = " + "[" * 100_000 + "]" * 100_000, "a = " + "{a = " * 100_000],
    "json": ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000],
}


@pytest.mark.parametrize("text", DEEP["toml"])
def test_nested_toml_is_one_line(tmp_path, text):
    path = tmp_path / "spec.toml"
    path.write_text(text)
    with pytest.raises(LabError, match=r"spec\.toml: (is nested too deeply|not TOML)"):
        read_spec(path)


@pytest.mark.parametrize("text", DEEP["json"])
def test_nested_json_is_one_line(tmp_path, text):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ModelError, match=r"run\.json: is (nested too deeply|not JSON)"):
        read_network(path)
    with pytest.raises(LabError, match=r"run\.json: (format is|is not JSON|Expected|must be)"):
        files.read(path, Run)


def test_a_key_of_many_parts_costs_no_time(tmp_path):
    path = tmp_path / "spec.toml"
    started = time.process_time()
    for part in ("a", "'a.b'", '"a b"'):
        path.write_text("x = 1\n" + ".".join([part] * 150_000) + " = 1\n")
        with pytest.raises(LabError, match=r"line 2: a key has more than 32 parts"):
            read_spec(path)
    # Before the limit, 40 000 parts took 17 s of CPU time.
    assert time.process_time() - started < 10


def test_keys_and_numbers_of_a_usual_length_are_read(tmp_path):
    path = tmp_path / "spec.toml"
    values = ", ".join(["1.5"] * 500)
    path.write_text(f"a.b.c = [{values}]\ntext = 'one. two. three. {'four. ' * 20}'\n")
    assert bounded.read_toml(path)["a"]["b"]["c"] == [1.5] * 500


@pytest.mark.parametrize("content", ["x = 2\n" * 400_000, "x = " + "9" * 5000, "d = 2026-02-31"])
def test_large_files_and_numbers_are_one_line(tmp_path, content):
    path = tmp_path / "spec.toml"
    path.write_text(content)
    with pytest.raises(LabError, match=r"spec\.toml: (is larger than 1 048 576 bytes|not TOML)"):
        read_spec(path)


def test_a_file_without_an_end_is_refused(capsys):
    assert main(["model", "network", "/dev/zero"]) != 0
    assert "is larger than" in capsys.readouterr().err


def test_no_text_no_file_and_no_number(tmp_path):
    path = tmp_path / "model.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match="is not a text in UTF-8"):
        read_network(path)
    path.write_text('{"format": NaN}')
    with pytest.raises(ModelError, match="NaN is no number of JSON"):
        read_network(path)
    path.write_text('{"format": 1, "a": [{"b": 1, "b": 2}]}')
    with pytest.raises(ModelError, match="has the key 'b' twice in one object"):
        read_network(path)
    with pytest.raises(ModelError, match="no such file"):
        read_network(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"clock_ns,idle_s\n" + b"1,2\n" * (bounded.CSV_BYTES_MAX // 4), "is larger than 67 108 864 bytes"),
        (b"clock_ns,idle_s\n1,2\n3\n", "line 3: has 1 columns, but the heading has 2"),
        (b"clock_ns,idle_s\n1,\xff\n", "is not a text in UTF-8"),
        (b"clock_ns,idle_s\n1," + b"9" * 200_000, "line 2: is not CSV: field larger than field limit"),
    ],
)
def test_telemetry_that_is_no_table_is_one_line(tmp_path, content, words):
    (tmp_path / "machine.csv").write_bytes(content)
    with pytest.raises(LabError, match=words):
        machine(tmp_path, (0, 10))
