"""Studies: specifications with changes, the command that runs and resumes them, and the table of findings."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from conftest import SPEC

from waylab.cli import main
from waylab.cli.study.runs import StudyRun
from waylab.errors import LabError
from waylab.plan import make_plan
from waylab.spec import QUICK, read_spec, read_study, write_specs
from waylab.spec.calibration import calibration_spec
from waylab.spec.study import toml_text

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
STUDIES = sorted((EXPERIMENTS / "studies").glob("*.toml"))
# Half an hour to forty minutes is what a reader waits for; a full campaign may take a night.
QUICK_LONGEST_S, FULL_LONGEST_S = 2400, 6 * 3600


def duration_s(folder, scale):
    """What the command prints, with the time in which programs start and stop."""
    return sum(StudyRun(make_plan(read_spec(path, scale))).all_s() for path in folder.glob("*.toml"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_specifications_of_a_study_are_valid_and_not_too_long(path, tmp_path):
    study = read_study(path)
    assert study.name == path.stem
    written = write_specs(study, tmp_path)
    for scale, longest_s in ((QUICK, QUICK_LONGEST_S), ("full", FULL_LONGEST_S)):
        specs = [read_spec(one, scale) for one in written.values()]
        assert duration_s(tmp_path, scale) <= longest_s
        assert all(spec.testbed.time_scale > 1 and not spec.testbed.oversubscribe for spec in specs)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_calibration_of_a_study_is_one_configuration_of_its_hosts(path, tmp_path):
    study = read_study(path)
    if study.calibration is None:
        assert "cores" not in path.read_text() or path.stem.startswith("c18"), "links are the limit of c18"
        return
    content = calibration_spec(
        study.with_cores(0.4).experiments[study.calibration.experiment], study.calibration
    )
    (tmp_path / "calibration.toml").write_text(toml_text(content))
    for scale in (QUICK, "full"):
        spec = read_spec(tmp_path / "calibration.toml", scale)
        trials = make_plan(spec).trials
        assert [trial.block for trial in trials] == [1, 2, 3, 4, 5] and len(
            {one.configuration for one in trials}
        ) == 1
        assert spec.testbed.hosts[study.calibration.host].cores == 0.4


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_page_about_studies_states_their_durations(path, tmp_path):
    write_specs(read_study(path), tmp_path)
    text = (EXPERIMENTS.parent / "docs" / "studies.md").read_text()
    quick, full = re.search(
        rf"\| `{path.stem}` \| ([\d.]+) minutes \| ([\d.]+) (?:hours|minutes) \|", text
    ).groups()
    assert float(quick) == pytest.approx(duration_s(tmp_path, QUICK) / 60, abs=0.6)
    unit_s = 60 if f"{full} minutes |" in text else 3600
    assert float(full) == pytest.approx(duration_s(tmp_path, "full") / unit_s, rel=0.02)


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.rglob("*.toml")), ids=lambda path: path.stem)
def test_toml_is_written_as_it_is_read(path):
    content = tomllib.loads(path.read_text())
    assert tomllib.loads(toml_text(content)) == content


def test_strings_and_names_survive():
    content = {"a b": {"ä": 'x"\\\n\x7f'}, "list": [{"a": [1, 2.5, True]}], "empty": []}
    assert tomllib.loads(toml_text(content)) == content


def study_of(tmp_path, text):
    (tmp_path / "base.toml").write_text(SPEC)
    path = tmp_path / "study.toml"
    path.write_text(text)
    return path


STUDY = """
name = "small"
title = "A small study"
[changes.load]
warm_up_s = 0.25
test_time_s = 0.25
[changes.design]
blocks = 2
[[experiment]]
spec = "base.toml"
name = "first"
[[experiment]]
spec = "base.toml"
name = "second"
changes.load.warm_up_s = 0.125
changes.load.clients = 8
"""


def test_changes_apply_to_every_specification_and_the_own_ones_last(tmp_path):
    study = read_study(study_of(tmp_path, STUDY))
    first, second = (read_spec(path) for path in write_specs(study, tmp_path / "specs").values())
    base = read_spec(tmp_path / "base.toml")
    assert (first.name, second.name) == ("first", "second")
    assert (first.load.warm_up_s, second.load.warm_up_s) == (0.25, 0.125)
    assert first.load.clients == base.load.clients and second.load.clients == 8
    assert first.design.blocks == second.design.blocks == 2
    assert first.factors == base.factors and first.question == base.question


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (STUDY.replace('name = "second"', 'name = "first"'), r"experiment\[1\].name = 'first': names an exp"),
        (STUDY.replace("[changes.design]", "[change.design]"), "change is not a key; did you mean changes?"),
        (STUDY.replace('title = "A small study"', ""), "title: is missing"),
        (STUDY.replace('spec = "base.toml"', 'spec = "no.toml"', 1), "no.toml: no such specification"),
        (STUDY.split("[[experiment]]", maxsplit=1)[0], "experiment: is missing"),
        ('name = "a"\ntitle = "b"\nexperiment = [1]', "experiment: is missing"),
        (STUDY.replace('name = "small"', 'name = "../small"'), "name: '../small' should be letters"),
        (STUDY.replace('name = "first"', 'name = "a/b"'), r"experiment\[0\].name: 'a/b' should be letters"),
        ("changes = 1\n" + STUDY.replace("[changes.", "[other."), "other is not a key"),
        (
            "changes = 1\n" + STUDY.split("[changes", maxsplit=1)[0] + "[[exp" + STUDY.split("[[exp")[1],
            "changes: should be",
        ),
    ],
)
def test_a_wrong_study_is_one_line(tmp_path, wrong, message):
    with pytest.raises(LabError, match=message):
        read_study(study_of(tmp_path, wrong))


def study(path, results, *options):
    return main(["study", str(path), "--results", str(results), *options])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--blocks", "many"], "argument --blocks: 'many' should be a whole number from 1 up to 1000"),
        (["--blocks", "2.5"], "argument --blocks: '2.5' should be a whole number from 1 up to 1000"),
        (["--time-scale", "nan"], "argument --time-scale: 'nan' should be a number from 1 up to 1000"),
        (["--plan", "--findings"], "study: give either --plan or --findings"),
        (["--document", "{file}"], "base.toml: cannot be created: File exists"),
    ],
)
def test_a_wrong_option_is_one_line_before_anything_runs(tmp_path, capsys, options, message):
    path = study_of(tmp_path, STUDY)
    try:
        code = study(
            path, tmp_path / "results", *(option.format(file=tmp_path / "base.toml") for option in options)
        )
    except SystemExit as error:
        code = error.code
    assert code == 2 and not (tmp_path / "results").exists()
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_two_studies_of_one_name_are_refused(tmp_path, capsys):
    path = study_of(tmp_path, STUDY)
    (tmp_path / "other.toml").write_text(path.read_text())
    options = ["--results", str(tmp_path / "results"), "--findings"]
    assert main(["study", str(path), str(tmp_path / "other.toml"), *options]) == 2
    assert "study.toml: name = 'small': names a study twice" in capsys.readouterr().err


def test_a_run_folder_without_its_specification_is_one_line(tmp_path, capsys):
    folder = tmp_path / "results" / "small-full" / "20260101T000000Z-first"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    assert study(study_of(tmp_path, STUDY), tmp_path / "results", "--findings") == 2
    assert f"{folder}/spec.toml: not found; restore it, or move {folder} away" in capsys.readouterr().err


def test_a_study_runs_resumes_and_lists_its_findings(fake, tmp_path, monkeypatch, capsys):
    for module in ("block_rule", "study.runs"):
        monkeypatch.setattr(f"waylab.cli.{module}.disturbances", lambda found: [])
    finding = '\n[published]\nsource = "S"\n[[published.finding]]\ntext = "More clients | more work."\n'
    finding += 'metric = "throughput_per_s"\nof = { clients = 16 }\nto = { clients = 4 }\nexpect = "above"\n'
    path = study_of(tmp_path, STUDY.replace("changes.load.clients = 8\n", ""))
    (tmp_path / "base.toml").write_text(SPEC + finding)
    results = tmp_path / "results"
    assert study(path, results, "--plan") == 0
    out = capsys.readouterr().out
    assert "first" in out and "second" in out and not list(results.glob("*/*/run.json"))
    monkeypatch.setenv("FAKE_FAIL", "proxy")
    assert study(path, results) == 2, "three trials failed in a row"
    monkeypatch.delenv("FAKE_FAIL")
    (first,) = results.glob("small-full/*/run.json")
    capsys.readouterr()
    study(path, results)
    assert "More clients" in capsys.readouterr().out
    runs = sorted(results.glob("small-full/*/run.json"))
    assert len(runs) == 2 and first in runs, "the first run was resumed"
    assert [json.loads(run.read_text())["name"] for run in runs] == ["first", "second"]
    page = (results / "small-full" / "findings.md").read_text()
    assert page.count("More clients \\| more work.") == 2 and "2 findings:" in page
    before = {path: path.stat().st_mtime_ns for path in results.rglob("trial.json")}
    study(path, results)
    assert before == {path: path.stat().st_mtime_ns for path in results.rglob("trial.json")}, (
        "nothing ran again"
    )

    # As if other programs had disturbed one trial.
    trial = next(path for path in sorted(before) if "first" in str(path)).parent.name
    for module in ("block_rule", "study.runs"):
        monkeypatch.setattr(
            f"waylab.cli.{module}.disturbances",
            lambda found: ["steal: 0.5"] if found.id == trial and not found.refused else [],
        )
    study(path, results)
    again = [path for path, when in before.items() if path.stat().st_mtime_ns != when]
    assert {path.parent.name for path in again} == {trial}
    assert all(json.loads(path.read_text())["refused"] == ["steal: 0.5"] for path in again)


FINDING = """
[published]
source = "S"
[[published.finding]]
text = "More clients, more work."
metric = "throughput_per_s"
of = { clients = 16 }
to = { clients = 4 }
theirs = THEIRS
within = 0.1
reason = "The fake has one speed."
"""


def one_experiment(tmp_path, theirs):
    first = STUDY.split('[[experiment]]\nspec = "base.toml"\nname = "second"', maxsplit=1)[0]
    path = study_of(tmp_path, first)
    (tmp_path / "base.toml").write_text(SPEC + FINDING.replace("THEIRS", theirs))
    return path


def test_changed_findings_are_judged_without_new_trials(fake, tmp_path, capsys):
    results = tmp_path / "results"
    study(one_experiment(tmp_path, "1.0"), results)
    before = {path: path.stat().st_mtime_ns for path in results.rglob("trial.json")}
    page = results / "small-full" / "findings.md"
    assert before and "| More clients, more work. | 1 | " in page.read_text()
    path = one_experiment(tmp_path, "77.0")
    capsys.readouterr()
    assert study(path, results, "--findings", "--document", str(tmp_path / "pages")) == 0
    assert before == {path: path.stat().st_mtime_ns for path in results.rglob("trial.json")}
    document = (tmp_path / "pages" / "small.md").read_text()
    assert "| 77 |" in document
    readme = tmp_path / "pages" / "README.md"
    title = document.splitlines()[0].removeprefix("# ")
    (row,) = [
        line for line in readme.read_text().splitlines() if line.startswith(f"| [{title}](small.md) | 1 |")
    ]
    (counts,) = [line for line in document.splitlines() if " findings: 1 " in line]
    verdict = counts.split(" findings: 1 ")[1].split(".")[0]
    columns = ["reproduced", "contradicted", "undecided", "not run"]
    cells = ["1" if column == verdict else "–" for column in columns]
    assert row.endswith("| " + " | ".join(cells) + " |")
    # Text around the table stays, and its rows are written again.
    table = readme.read_text().partition("pages.")[2].strip()
    readme.write_text(f"# Own\n\nBefore.\n\n{table.replace(row, row.replace('| 1 |', '| 9 |'))}\n\nAfter.\n")
    assert study(path, results, "--findings", "--document", str(tmp_path / "pages")) == 0
    assert readme.read_text() == f"# Own\n\nBefore.\n\n{table}\n\nAfter.\n"


def test_more_blocks_are_added_to_the_runs_that_exist(fake, tmp_path, capsys):
    results, path = tmp_path / "results", one_experiment(tmp_path, "1.0")
    study(path, results)
    study(path, results, "--blocks", "5")
    study(path, results, "--blocks", "4")
    runs = sorted(results.glob("small-full/*/run.json"))
    planned = [json.loads(run.read_text())["plan"] for run in runs]
    assert [max(trial["block"] for trial in plan) for plan in planned] == [2, 3], "and nothing for 4 of 5"
    assert len({trial["seed"] for plan in planned for trial in plan}) == sum(map(len, planned))
    page = (results / "small-full" / "findings.md").read_text()
    assert page.count(" UTC: ") == 2, "both runs are listed"


def test_a_study_without_runs_has_findings_that_were_not_run(tmp_path, capsys):
    assert study(one_experiment(tmp_path, "1.0"), tmp_path / "results", "--findings") == 0
    assert "1 findings: 1 not run." in capsys.readouterr().out


def test_another_time_scale_has_a_folder_of_its_own(tmp_path, capsys):
    path = EXPERIMENTS / "studies" / "c18.toml"
    study(path, tmp_path, "--plan", "--quick", "--time-scale", "40")
    assert "c18-quick-x40" in capsys.readouterr().out.replace("\n", "")
    (spec,) = tmp_path.glob("c18-quick-x40/specs/2k.toml")
    assert read_spec(spec).testbed.time_scale == 40
