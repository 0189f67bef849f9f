"""The files of a run folder: their schemas are current, and a damaged file raises one line with file and key."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from waylab.analysis import analyse, read_analysis
from waylab.cli import main
from waylab.errors import LabError
from waylab.predict import predict
from waylab.runfolder.files import FILES, decode, read_run, write
from waylab.runfolder.load import LoadSummary
from waylab.runfolder.numbers import Interval
from waylab.runfolder.schema import descriptions, schemas, types_of

SCHEMAS = Path(__file__).parents[2] / "docs/schema"


def test_the_committed_schemas_are_current():
    """WAYSTAGE_UPDATE_SCHEMA=1 renews them."""
    found = schemas()
    if os.environ.get("WAYSTAGE_UPDATE_SCHEMA"):
        SCHEMAS.mkdir(exist_ok=True)
        for name, text in found.items():
            (SCHEMAS / name).write_text(text, encoding="utf-8")
    assert {path.name: path.read_text(encoding="utf-8") for path in SCHEMAS.glob("*.json")} == found


def test_every_field_of_every_file_is_described():
    silent = [
        f"{kind.__name__}.{name}"
        for file in FILES
        for kind in types_of(file)
        for name in kind.__struct_fields__
        if not descriptions(kind).get(name)
    ]
    assert silent == []


def test_the_files_of_a_run_follow_their_schemas(run_folder):
    analyse(run_folder)
    predict(run_folder)
    texts = schemas()
    for name in ("run.json", "environment.json", "analysis.json", "predictions.json"):
        schema = json.loads(texts[name.replace(".json", ".schema.json")])
        jsonschema.validate(json.loads((run_folder / name).read_text()), schema)
    for path in (run_folder / "trials").glob("*/*.json"):
        schema = json.loads(texts[path.name.replace(".json", ".schema.json")])
        jsonschema.validate(json.loads(path.read_text()), schema)


def damaged(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_wrong_value_raises_one_line_with_file_and_key(run_folder):
    analyse(run_folder)
    path = run_folder / "analysis.json"
    damaged(path, lambda content: content["trials"][3].update(order="third"))
    with pytest.raises(LabError) as caught:
        read_analysis(run_folder)
    assert str(caught.value) == (
        f"{path}: trials[3].order: Expected `int`, got `str`; make it with: waylab analyse {run_folder}"
    )


def test_a_missing_key_raises_one_line_with_file_and_key(run_folder, capsys):
    path = run_folder / "run.json"
    damaged(path, lambda content: content["plan"][0].pop("assignment"))
    assert main(["analyse", str(run_folder)]) != 0
    assert capsys.readouterr().err == (
        f"waylab: {path}: plan[0]: Object missing required field `assignment`; "
        "restore the file, or start a new run\n"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not json", "is not JSON"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"format": "waystage-load/1"}', "Object missing required field"),
        (b"\xff", "is not JSON"),
        (b'{"format": ' + b"[" * 100_000, "is not JSON"),
    ],
)
def test_other_damage_raises_one_line(content, message):
    with pytest.raises(LabError, match=message) as caught:
        decode(content, LoadSummary, "load.json", "measure again")
    assert str(caught.value).startswith("load.json: ") and str(caught.value).endswith("; measure again")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["run.json", "environment.json", "trials/{}/load.json", "trials/{}/trial.json"]
)
def test_a_key_that_stands_twice_is_refused(run_folder, name):
    """RFC 8259 leaves open which value counts, so two readers could see two files."""
    path = run_folder / name.format(read_run(run_folder).plan[0].id)
    path.write_text(path.read_text().replace("{", '{"format": "x",', 1))
    kind = next(kind for kind, known in FILES.items() if known.name == path.name)
    with pytest.raises(LabError, match="has the key 'format' twice in one object"):
        decode(path.read_bytes().replace(b'"x"', f'"{FILES[kind].format}"'.encode(), 1), kind, str(path), "")


def test_an_infinite_number_becomes_null(tmp_path):
    path = tmp_path / "interval.json"
    write(path, Interval(count=1, mean=float("nan"), low=float("-inf"), high=1.0))
    assert json.loads(path.read_text()) == {"count": 1, "mean": None, "low": None, "high": 1.0}


def test_a_writer_removes_what_killed_writers_left(tmp_path):
    path = tmp_path / "interval.json"
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left, alive = (tmp_path / f".interval.json.{pid}.partial" for pid in (dead.pid, os.getppid()))
    left.touch()
    alive.touch()
    write(path, Interval(count=0, mean=None, low=None, high=None))
    assert sorted(tmp_path.iterdir()) == sorted([alive, path])


def test_a_plan_without_a_folder_raises_one_line(tmp_path):
    with pytest.raises(LabError, match="no such run folder"):
        read_run(tmp_path / "nothing")
