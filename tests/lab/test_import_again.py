"""The command in the `run.json` of imported results imports the copies in `sources` again, with the same levels."""

import json
import shlex
import shutil

from foreign_files import hlog, memtier

from waylab.adapters import ImportRequest, ReadOptions, import_results
from waylab.cli import main
from waylab.runfolder.files import read_run


def imported_again(folder, monkeypatch):
    """Run the command in a run folder, and return the levels and the blocks of both runs."""
    monkeypatch.chdir(folder)
    first = read_run(folder)
    assert main([*shlex.split(first.reproduce[0])[1:], "--out", str(folder.parent / "again")]) == 0
    second = read_run(folder.parent / "again")
    assert second.name == first.name
    return [[(one.levels, one.block) for one in run.plan] for run in (first, second)]


def test_the_command_in_the_run_folder_imports_the_same_again(tmp_path, monkeypatch):
    paths = []
    for number, name in enumerate(("v1/a.json", "v2/a.json")):
        paths.append(tmp_path / name)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        paths[-1].write_text(json.dumps(memtier(8, 4000, seed=number)))
    request = ImportRequest(paths, tmp_path / "run", name="both", names="v{version}/{file}.json")
    first, second = imported_again(import_results(request), monkeypatch)
    assert first == second and {levels["version"] for levels, _ in first} == {"1", "2"}
    for one in ("run", "again"):
        shutil.rmtree(tmp_path / one)
    # Two files of one name, whose levels are in the name alone.
    request = ImportRequest(paths, tmp_path / "run", names="{file}.json")
    first, second = imported_again(import_results(request), monkeypatch)
    assert first == second and [block for _, block in first] == [1, 2]


def test_the_command_in_the_run_folder_has_the_unit_and_the_tag(tmp_path, monkeypatch):
    path = tmp_path / "one.hlog"
    path.write_text(hlog(tag="a", unit=1000, scale=7e4) + hlog(tag="b", unit=1000, scale=7e4))
    options = ReadOptions(unit_ns=1000, tag="b")
    first, second = imported_again(
        import_results(ImportRequest([path], tmp_path / "run", options=options)), monkeypatch
    )
    assert first == second
