"""A run folder that `waylab import` made: analysis, report, comparison, fit, prediction, as far as the data allow."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from foreign_files import SAMPLES, hlog, table, write_memtier
from page_text import Page

import waylab
from waylab.adapters import ImportRequest, import_results
from waylab.analysis import analyse, read_analysis
from waylab.cli import main
from waylab.errors import LabError
from waylab.fit.table.observations import observations_of_runs, read_observations
from waylab.predict import predict
from waylab.report import write_report
from waylab.runfolder.files import read_run

FIELD = Path(__file__).parents[3] / "shared/data/field/aggregates.csv"


def text_of(report: Path) -> str:
    return " ".join(Page(report.read_text()).text.split())


def make(directory, *files, **request):
    run = import_results(ImportRequest(files=files, directory=directory, **request))
    analyse(run)
    predict(run)
    return run


@pytest.fixture(scope="module")
def memtier_run(tmp_path_factory):
    """Three blocks of four numbers of clients, imported and analysed."""
    folder = tmp_path_factory.mktemp("memtier")
    return make(folder / "run", *write_memtier(folder / "in", blocks=3))


def test_gates_that_the_files_do_not_allow_to_judge_have_neither_passed_nor_failed(memtier_run):
    analysis = read_analysis(memtier_run)
    assert (analysis.trials_used, analysis.trials_total) == (12, 12)
    for trial in analysis.trials:
        gates = {gate.name: gate for gate in trial.gates}
        unjudged = {name for name, gate in gates.items() if gate.unjudged}
        assert {"generator_cpu", "foreign_cpu", "steal", "complete", "clock", "verification"} <= unjudged
        assert all(gates[name].passed is None for name in unjudged)
        assert (
            gates["generator_cpu"].text == "cannot be judged: memtier_benchmark does not report its CPU time"
        )
        assert gates["interactive_law"].passed and gates["errors"].passed and gates["agreement"].passed


def test_the_first_lines_say_that_results_are_imported_and_what_their_times_are(memtier_run):
    first, second, *_ = read_analysis(memtier_run).headline.warnings
    assert first.startswith("Imported from memtier_benchmark: ") and "gates cannot be judged" in first
    assert "coordinated omission" in second
    page = text_of(write_report(memtier_run))
    assert (
        "A configuration has at most 3 blocks" in page and "a block runs every configuration once" not in page
    )
    title, question = (
        "UTC ",
        "Imported from memtier_benchmark, so some gates cannot be judged: how do throughput",
    )
    assert page.rindex(title, 0, page.index(question)) + len(title) == page.index(question), "the first line"
    assert page.index(question) < page.index(first) < page.index("From 2 to 64 clients")
    assert "Cannot be judged, neither passed nor failed" in page
    assert "12 of 12 trials passed every gate that can be judged" in page
    for claim in ("ran on one host", "CPU time of a program"):
        assert claim not in page


def test_a_notebook_has_the_frames_of_an_imported_run(memtier_run, tmp_path):
    run = waylab.open(memtier_run)
    assert list(run.configurations["clients"]) == [2, 8, 32, 64]
    assert set(run.trials["source_tool"]) == {"memtier_benchmark"}
    assert run.trials["used"].all() and run.trials["generator_cpu_share"].isna().all()
    p99 = run.percentiles.query("percentile == 99 and operation == 'get'")
    assert len(p99) == 4 and p99["response_s"].notna().all()
    assert len(run.seconds) == 12 * 10
    assert "throughput" in run.figures and run.figure("throughput").to_dict()
    assert "Imported from memtier_benchmark" in repr(run) and run._repr_html_()
    assert main(["export", str(memtier_run), "--to", "csv", "--output", str(tmp_path / "numbers")]) == 0
    assert len((tmp_path / "numbers/trials.csv").read_text().splitlines()) == 13


def test_models_are_fitted_to_imported_trials(memtier_run):
    run = waylab.open(memtier_run)
    found = run.predict(clients=16)
    # The files follow 10 000 c / (c + 8).
    assert found["throughput_per_s"].iloc[0] == pytest.approx(6667, rel=0.15)


def test_two_imports_are_compared_as_two_versions(tmp_path):
    sides = {
        name: [
            make(
                tmp_path / f"{name}{part}",
                *write_memtier(tmp_path / f"{name}-{part}", speed, seed=seed + 10 * part),
            )
            for part in (1, 2)
        ]
        for name, speed, seed in (("old", 1.0, 1000), ("new", 1.3, 2000))
    }
    found = waylab.open(sides["old"][0]).compare(sides["new"], [sides["old"][1]])
    assert found.verdict == "no worse"
    ratio = found.frame.query("metric == 'throughput_per_s'")["ratio"].iloc[0]
    assert ratio == pytest.approx(1.3, rel=0.02)
    with pytest.raises(LabError, match="given twice"):
        waylab.open(sides["old"][0]).compare(sides["old"][0])


def test_percentiles_without_histograms_are_never_merged(tmp_path):
    """Two summaries of k6 have percentiles of their own; those of all requests together are unknown."""
    other = tmp_path / "other.json"
    other.write_text((SAMPLES / "k6-summary-export.json").read_text().replace("205.27533795", "206.5"))
    run = make(tmp_path / "run", SAMPLES / "k6-summary-export.json", other)
    (one,) = read_analysis(run).configurations
    operation = one.operations["all"]
    assert one.used == 2 and operation.count == 868
    assert operation.percentiles_ns == {} and set(operation.percentile_intervals_ns) == {"50", "90", "95"}
    alone = make(tmp_path / "alone", other)
    (one,) = read_analysis(alone).configurations
    assert one.operations["all"].percentiles_ns["95"] == 206_500_000
    write_report(run)
    write_report(alone)


def test_every_kind_of_file_gives_a_report(tmp_path):
    log = tmp_path / "one.hlog"
    log.write_text(hlog())
    for index, (path, levels) in enumerate(
        [
            (SAMPLES / "wrk2.txt", ["rate=2000"]),
            (SAMPLES / "wrk.txt", []),
            (SAMPLES / "vegeta.json", []),
            (SAMPLES / "oha.json", ["clients=10"]),
            (log, []),
        ]
    ):
        run = make(tmp_path / f"run{index}", path, levels=levels, errors_max=49)
        (trial,) = read_analysis(run).trials
        judged = {gate.name: gate.passed for gate in trial.gates if gate.passed is not None}
        assert judged.get("agreement") and judged.get("manifest")
        assert trial.numbers.throughput_per_s > 0
        write_report(run)
        assert repr(waylab.open(run))
    law = next(gate for gate in read_analysis(run).trials[0].gates if gate.name == "interactive_law")
    assert law.unjudged and "give it with --set clients=N" in law.text


def test_a_table_of_throughputs_and_means_is_judged_by_the_interactive_law(tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text("clients,throughput_per_s,response_mean_s\n1,100,0.01\n2,180,0.011\n4,300,0.02\n")
    run = make(tmp_path / "run", path)
    gates = [{gate.name: gate for gate in trial.gates} for trial in read_analysis(run).trials]
    assert [one["interactive_law"].passed for one in gates] == [True, True, False], (
        "300/s of 20 ms are six clients"
    )
    assert read_analysis(run).trials_used == 2


def test_an_open_loop_that_fell_behind_fails_its_gate(tmp_path):
    run = make(tmp_path / "run", SAMPLES / "wrk2.txt", levels=["rate=4000"])
    (trial,) = read_analysis(run).trials
    assert not trial.used and any(reason.startswith("achieved_offered: 50.0") for reason in trial.reasons)


def test_errors_spoil_a_trial_unless_they_are_allowed(tmp_path):
    strict = make(tmp_path / "strict", SAMPLES / "wrk.txt")
    assert any(reason.startswith("errors: 49") for reason in read_analysis(strict).trials[0].reasons)
    loose = make(tmp_path / "loose", SAMPLES / "wrk.txt", errors_max=49)
    assert not any(reason.startswith("errors") for reason in read_analysis(loose).trials[0].reasons)
    assert "--errors-max was given at the import" in text_of(write_report(loose))


def test_a_summary_cannot_call_itself_imported(memtier_run, tmp_path):
    """Otherwise a measured trial could get rid of its gates."""
    content = json.loads((memtier_run / "run.json").read_text())
    content["spec"]["gates"]["imported"] = False
    copied = tmp_path / "run"
    shutil.copytree(memtier_run, copied)
    (copied / "run.json").write_text(json.dumps(content))
    found = analyse(copied)
    assert found.trials_used == 0 and "and run.json says otherwise" in found.trials[0].reasons[0]


def test_a_changed_file_of_an_imported_trial_is_found(memtier_run, tmp_path):
    copied = shutil.copytree(memtier_run, tmp_path / "run")
    path = next(copied.glob("trials/*/load.json"))
    path.write_text(path.read_text().replace('"measured_s": 10.0', '"measured_s": 10.1'))
    found = analyse(copied)
    assert found.trials_used == 11


def rows_of(arguments, capsys):
    assert main(["validate", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_an_imported_table_is_validated_with_the_figures_of_the_table(tmp_path, capsys):
    path = tmp_path / "trials.csv"
    path.write_text(table())
    run = make(tmp_path / "run", path)
    expected = rows_of([path, "--split", "clients"], capsys)
    assert len(expected) > 10 and any(row["throughput_predicted_per_s"] for row in expected)
    assert rows_of([run, "--split", "clients"], capsys) == expected
    assert main(["validate", str(run)]) == 2
    assert "a table needs --split pools, clients, servers or levels" in capsys.readouterr().err


@pytest.mark.skipif(not FIELD.is_file(), reason=f"needs the field data, {FIELD}")
def test_the_field_data_are_imported_row_by_row(tmp_path):
    """The rows are the same, so every prediction from them is the same; a part is also analysed and reported."""
    run = import_results(ImportRequest(files=[FIELD], directory=tmp_path / "all"))
    assert observations_of_runs([read_run(run)]) == read_observations(FIELD)
    with FIELD.open() as file:
        count = sum(row["experiment"] == "mwb1-ro" for row in csv.DictReader(file))
    part = make(tmp_path / "part", FIELD, where=["experiment=mwb1-ro"])
    analysis = read_analysis(part)
    assert analysis.trials_total == count > 0
    assert analysis.trials_used > 0.8 * count
    write_report(part)
