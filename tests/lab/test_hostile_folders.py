"""A run folder from a stranger: it deletes nothing, leads nowhere else, and its text is only text."""

import json
import os
import re
import shutil
import stat
from html import escape

import pytest
from rich.console import Console

from waylab import program as waystage_program
from waylab.analysis import analyse
from waylab.errors import LabError
from waylab.program import find_waystage
from waylab.report import show_run, write_campaign, write_report, write_sample
from waylab.report.page.content import read_content
from waylab.report.page.html import page
from waylab.runfolder import paths
from waylab.runfolder.files import read, read_run, write
from waylab.runfolder.load import LoadSummary
from waylab.runfolder.results import seal
from waylab.runfolder.trial import TrialOutcome


def changed(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.fixture
def copied(reported, tmp_path):
    """A finished run with its report, of which a test may change anything."""
    return shutil.copytree(reported, tmp_path / "run")


@pytest.mark.parametrize("name", ["../precious", "/{}/precious", "", ".hidden", "a/b", "a\nb", "x" * 200])
def test_a_name_that_leads_elsewhere_is_refused_and_nothing_is_deleted(copied, tmp_path, name):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "throughput.svg").write_text("mine")
    name = name.format(tmp_path)
    changed(copied / paths.RUN, lambda run: run.update(name=name))
    for write_something in (
        lambda: write_sample([copied], tmp_path / "sample.md"),
        lambda: write_report(copied),
    ):
        with pytest.raises(LabError, match=r"run.json: .*should be letters, digits, dots and dashes"):
            write_something()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", "run"]
    assert [path.read_text() for path in precious.iterdir()] == ["mine"]


def test_the_name_of_a_trial_names_a_folder_of_the_run(copied):
    changed(copied / paths.RUN, lambda run: run["plan"][0].update(id="../../elsewhere"))
    with pytest.raises(LabError, match=r"plan\[0\]: .*it names a file"):
        read_run(copied)


@pytest.mark.parametrize("place", ["figures", "figures/throughput.svg", "trials", "trials/{}/load.json", "x"])
def test_links_are_refused_and_not_copied_out(copied, tmp_path, place):
    secret = tmp_path / "secret"
    place = copied / place.format(read_run(copied).plan[0].id)
    if place.is_dir():
        shutil.move(place, secret)
    else:
        secret.write_text("<svg>secret</svg>")
        place.unlink(missing_ok=True)
    place.symlink_to(secret)
    with pytest.raises(LabError, match="is a symbolic link; a run folder has none"):
        write_sample([copied], tmp_path / "sample.md")
    assert not (tmp_path / "sample").exists() and secret.exists()
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(LabError, match="is neither a file nor a folder"):
        read_run(copied)


@pytest.mark.parametrize(
    "change", [lambda system: system.pop("description"), lambda system: system.update(description=1)]
)
def test_a_run_without_a_description_of_its_system_is_one_line(copied, change):
    changed(copied / paths.RUN, lambda run: change(run["spec"]["system"]))
    seal(copied)
    with pytest.raises(LabError, match=r"run.json: .*description"):
        write_report(copied)


def test_a_report_deletes_only_drawings(copied):
    kept = copied / paths.FIGURES / "notes.txt"
    old = copied / paths.FIGURES / "old.svg"
    kept.write_text("mine")
    old.write_text("<svg/>")
    write_report(copied)
    assert kept.read_text() == "mine" and not old.exists()


def test_a_file_is_never_written_through_a_link(copied, tmp_path):
    target = tmp_path / "mine"
    target.write_text("mine")
    path = copied / "linked.json"
    path.symlink_to(target)
    path.with_name(f".linked.json.{os.getpid()}.partial").symlink_to(target)
    write(path, {"format": "x"})
    assert target.read_text() == "mine" and not path.is_symlink()


def test_only_known_operations_are_read(run_folder):
    name = '<img src=x onerror="alert(1)">'
    planned = read_run(run_folder).plan[0]
    path = run_folder / "trials" / planned.id / paths.LOAD

    def rename(load):
        load["operations"]["messages"] = {name: load["operations"]["get"]}

    changed(path, rename)
    with pytest.raises(LabError, match=r"operations: .*is not an operation; known: send"):
        read(path, LoadSummary)
    trial = next(one for one in analyse(run_folder).trials if one.id == planned.id)
    assert not trial.used and "is not an operation" in trial.reasons[0]


# Appended to every text of a run. Nothing of it may reach a page as it is.
MARK = "<b x='\"&gt"
# Texts that the code compares or looks up; another one is refused or a bug of the page, not a hole in it.
FIXED = re.compile(r"waylab-|waystage-|[0-9.e+-]*$")


def texts_of(content, found):
    """Every distinct text of a JSON value, keys included."""
    if isinstance(content, dict):
        for key, value in content.items():
            texts_of(key, found)
            texts_of(value, found)
    elif isinstance(content, list):
        for value in content:
            texts_of(value, found)
    elif isinstance(content, str) and not FIXED.match(content):
        found.setdefault(content, None)
    return found


def replaced(content, old, new):
    """The same value with one text replaced wherever it stands."""
    if isinstance(content, dict):
        return {(new if key == old else key): replaced(value, old, new) for key, value in content.items()}
    if isinstance(content, list):
        return [replaced(value, old, new) for value in content]
    return new if content == old else content


def test_every_text_of_a_run_folder_is_escaped_in_its_page(copied):
    """One text at a time is replaced in all files; the page must be refused in one line or have it escaped."""
    planned = read_run(copied).plan[0]
    files = [copied / name for name in (paths.RUN, paths.ENVIRONMENT, paths.ANALYSIS, paths.PREDICTIONS)]
    files.append(copied / "trials" / planned.id / paths.TRIAL)
    before = {path: json.loads(path.read_text()) for path in files}
    shown = 0
    texts = {}
    for content in before.values():
        texts_of(content, texts)
    texts = [text for text in texts if len(text) < 400]
    for text in texts[:: max(1, len(texts) // 150)]:
        for path, content in before.items():
            path.write_text(json.dumps(replaced(content, text, text + MARK)))
        seal(copied)
        try:
            found = page(read_content(copied), [])
        except LabError:
            continue
        assert "<b x=" not in found, f"{text!r} reaches the page unescaped"
        shown += escape(MARK) in found
    assert shown > 30


def renamed(content, old, new):
    """The same value with one key renamed wherever it stands."""
    if isinstance(content, dict):
        return {(new if key == old else key): renamed(value, old, new) for key, value in content.items()}
    return [renamed(value, old, new) for value in content] if isinstance(content, list) else content


@pytest.mark.parametrize(
    ("file", "name"),
    [(paths.ANALYSIS, name) for name in ("description", "keeps_order", "queue", "total", "stages")]
    + [(paths.RUN, name) for name in ("description", "keeps_order", "shown")],
)
def test_a_renamed_key_is_an_error_of_one_line(copied, name, file):
    before = json.loads((copied / file).read_text())
    after = renamed(before, name, name + MARK)
    assert after != before
    (copied / file).write_text(json.dumps(after))
    seal(copied)
    with pytest.raises(LabError, match=file):
        page(read_content(copied), [])


def test_control_characters_of_a_run_folder_reach_no_terminal(copied, capsys):
    evil = "\x1b]0;owned\x07\x1b[2Jforged\r\x9b1m"
    changed(copied / paths.RUN, lambda run: run["spec"].update(question=f"why{evil}\\u001b\nand \\"))
    changed(copied / paths.ANALYSIS, lambda found: found["facts"].insert(0, f"fact{evil}"))
    seal(copied)
    show_run(copied, Console(width=200, no_color=True))
    shown = capsys.readouterr().out
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    assert "\\u001b[2Jforged" in shown
    assert read_run(copied).spec.question.endswith("\\u001b\nand \\")


def test_a_reason_with_control_characters_is_written_and_read(copied):
    path = copied / "trials" / read_run(copied).plan[0].id / paths.TRIAL
    changed(path, lambda trial: trial.update(reason="\x1b[31mred\x1b[0m"))
    assert read(path, TrialOutcome).reason == "\\u001b[31mred\\u001b[0m"


def built(folder):
    program = folder / "target" / "release" / "waystage"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def test_a_program_beside_the_package_comes_before_one_of_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("WAYSTAGE_BIN", raising=False)
    monkeypatch.setenv("PATH", "")
    trap, own = built(tmp_path / "trap"), built(tmp_path / "own")
    monkeypatch.chdir(tmp_path / "trap")
    monkeypatch.setattr(waystage_program, "_PACKAGE", own.parents[2] / "waylab")
    (tmp_path / "own" / "waylab").mkdir()
    assert find_waystage() == own.resolve()
    own.unlink()
    assert find_waystage() == trap.resolve()


@pytest.mark.parametrize("what", ["file", "folder", "owner"])
def test_a_program_that_others_can_change_is_not_run(tmp_path, monkeypatch, what):
    monkeypatch.delenv("WAYSTAGE_BIN", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.chdir(tmp_path)
    program = built(tmp_path)
    monkeypatch.setattr(waystage_program, "_PACKAGE", tmp_path / "elsewhere" / "waylab")
    (tmp_path / "elsewhere" / "waylab").mkdir(parents=True)
    assert find_waystage() == program.resolve()
    if what == "owner":
        # Only root can give a file away, so the user of the test changes instead.
        monkeypatch.setattr(os, "geteuid", lambda: program.stat().st_uid + 1000)
        place = tmp_path / "elsewhere" / "waylab"
        found = os.stat_result([stat.S_IFDIR | 0o755, 1, 1, 1, program.stat().st_uid + 1000, 0, 0, 0, 0, 0])
        real = type(place).stat
        monkeypatch.setattr(
            type(place), "stat", lambda path, **how: found if path == place else real(path, **how)
        )
        if program.stat().st_uid == 0:
            os.chown(program, 54321, 54321)
        reason = "belongs to user"
    else:
        (program if what == "file" else program.parent).chmod(0o757)
        reason = "can be changed by other users"
    with pytest.raises(LabError, match=f"is not run, because .*{reason}.*WAYSTAGE_BIN"):
        find_waystage()
    monkeypatch.setenv("WAYSTAGE_BIN", str(program))
    assert find_waystage() == program.resolve()


def test_a_campaign_names_a_folder_that_is_refused(copied, tmp_path):
    (copied / "x").symlink_to("/etc/passwd")
    path = write_campaign([copied], tmp_path / "campaign.html", "two")
    assert "is a symbolic link" in path.read_text()
