"""The data frames of a run: the numbers of analysis.json, of the load's summary and of the records, in seconds."""

import shutil
import sys

import numpy as np
import pytest
from conftest import SPEC
from made import made_spec
from msgspec.structs import replace
from synthetic import Truth, write_trial

import waylab
from waylab.analysis import analyse, read_analysis
from waylab.cli import main
from waylab.notebook import ComparedRuns, export_run
from waylab.notebook.columns import FactorColumns, column_of
from waylab.predict import predict
from waylab.records import read_records
from waylab.run import create_run
from waylab.runfolder.comparison import RunComparison
from waylab.runfolder.files import read_run
from waylab.runfolder.run import FactorLevel, FactorLevels


@pytest.fixture(scope="module")
def opened(reported):
    return waylab.open(reported)


def test_trials_have_the_numbers_of_the_analysis_in_seconds(opened, reported):
    content = read_analysis(reported)
    trials = opened.trials
    assert trials["trial"].tolist() == [one.id for one in content.trials]
    assert trials["clients"].tolist() == [int(one.levels["clients"]) for one in content.trials]
    for row, trial in zip(trials.to_dict("records"), content.trials, strict=True):
        found = trial.measured()
        everything = found.operations["all"]
        assert row["used"] == trial.used and row["throughput_per_s"] == found.throughput_per_s
        assert row["response_mean_s"] == pytest.approx(everything.response_mean_ns / 1e9)
        assert row["response_p99_s"] == pytest.approx(everything.percentiles_ns["99"] / 1e9)
        assert row["cpu_proxy_per_request_s"] == pytest.approx(found.cpu.cpu_per_request_ns["proxy"] / 1e9)
        backend_s = found.stages["all"].stages["backend"].mean_ns / 1e9
        assert row["stage_backend_mean_s"] == pytest.approx(backend_s)


def test_configurations_stages_and_percentiles_have_those_of_the_analysis(opened, reported):
    content = read_analysis(reported)
    for one in content.configurations:
        row = opened.configurations.set_index("configuration").loc[one.name]
        assert (row["trials"], row["used"]) == (one.trials, one.used)
        assert row["throughput_per_s"] == one.throughput_per_s.mean
        assert row["throughput_per_s_high"] == one.throughput_per_s.high
        mean = one.operations["all"].response_mean_ns
        assert row["response_mean_s_low"] == pytest.approx(mean.low / 1e9)
        stages = opened.stages.set_index(["configuration", "operation", "stage"])
        times = one.stages["all"].stages["backend"]
        assert stages.loc[(one.name, "all", "backend"), "mean_s"] == pytest.approx(times.mean_ns.mean / 1e9)
        assert stages.loc[(one.name, "all", "backend"), "p99_s"] == pytest.approx(times.p99_ns / 1e9)
        percentiles = opened.percentiles.set_index(["configuration", "operation", "percentile"])
        found = percentiles.loc[(one.name, "all", 99.0)]
        assert found["response_s"] == pytest.approx(one.operations["all"].percentiles_ns["99"] / 1e9)
        between = one.operations["all"].percentile_intervals_ns["99"]
        assert found["between_trials_s"] == pytest.approx(between.mean / 1e9)


def test_seconds_add_up_to_the_requests_of_the_window(opened):
    measured = opened.seconds[opened.seconds["measured"]]
    summed = measured.groupby("trial")["throughput_per_s"].sum()
    expected = opened.trials.set_index("trial")["requests"]
    assert summed.to_dict() == pytest.approx(expected.to_dict(), rel=0.01)


def test_records_have_the_stamps_and_intervals_of_the_files(opened, reported):
    first = read_run(reported).plan[0]
    (path,) = (reported / "trials" / first.id / "records").glob("proxy*.way")
    rows = read_records(path).parents
    found = opened.records("proxy", trial=first.id)
    assert len(found) == len(rows) and (found["received_ns"].to_numpy() == rows["received"]).all()
    stages = ["parse_s", "route_s", "admit_s", "queue_s", "send_s", "backend_s", "reply_s"]
    assert np.allclose(found[stages].sum(axis=1), found["total_s"], atol=1e-12)
    total_s = found.loc[found["in_window"] & (found["outcome"] == "answered"), "total_s"].mean()
    trial = next(one for one in read_analysis(reported).trials if one.id == first.id)
    assert total_s == pytest.approx(trial.measured().stages["all"].stages["total"].mean_ns / 1e9)
    assert set(opened.records("load")["trial"]) == set(opened.trials["trial"])


def test_a_damaged_record_file_leaves_out_its_trial_only(reported, tmp_path):
    copied = shutil.copytree(reported, tmp_path / "run")
    first, second, *others = read_run(copied).plan
    (path,) = (copied / "trials" / first.id / "records").glob("proxy*.way")
    path.write_bytes(path.read_bytes()[:-5])
    run = waylab.open(copied)
    with pytest.warns(UserWarning, match=rf"^trial {first.id} is left out: .*{path.name}: "):
        found = run.records("proxy")
    assert set(found["trial"]) == {second.id, *(one.id for one in others)}
    with pytest.raises(waylab.LabError, match=rf"^trial {first.id}: .*{path.name}: "):
        run.records("proxy", trial=first.id)
    # The load's records of this trial are whole.
    assert set(run.records("load")["trial"]) == {one.id for one in read_run(copied).plan}


def test_every_figure_of_the_report_is_a_valid_chart(opened):
    assert "throughput" in opened.figures
    for name, title in opened.figures.items():
        assert opened.figure(name).to_dict()["title"] == title


def test_a_run_shows_its_answer_as_text_and_html(opened):
    text, html = repr(opened), opened._repr_html_()
    assert "12 of 12 trials used" in text and "Is the lab right?" in text
    assert opened.answer[0] in text and "Figures: " in html and "throughput" in html
    assert "<script" not in html


HOSTILE = """
[factors]
clients = [4, 16]
[factors.NAME]
"=1+1" = { "proxy.workers" = 1 }
"<b>\\"q,\\n" = { "proxy.workers" = 2 }
[design]
blocks = 1
"""


def hostile_run(folder, factor):
    """A complete run with markup in its question, and with a factor of this name that has hostile levels."""
    spec = folder / "hostile.toml"
    head = SPEC[: SPEC.index("[factors]")].replace("Is the lab right?", "<script>x</script>?")
    spec.write_text(head + HOSTILE.replace("NAME", factor))
    directory = create_run(spec, folder / "results").directory
    for planned in read_run(directory).plan:
        write_trial(directory, planned, Truth(throughput_per_s=10_000.0))
    analyse(directory)
    return directory


def test_html_escapes_the_question_and_the_levels(fake, tmp_path):
    directory = hostile_run(tmp_path, '"<script>"')
    predict(directory)
    html = waylab.open(directory)._repr_html_()
    assert "<script" not in html and "&lt;script&gt;x&lt;/script&gt;?" in html
    assert "&lt;b&gt;" in html and html.count("<b>") == 1
    mark = "<script>x</script>"
    content = RunComparison(
        format="",
        waylab="",
        name=mark,
        question="",
        interleaved=False,
        baseline=[],
        candidate=[],
        margin=0.05,
        metrics=[],
        verdict="undecided",
        withheld=mark,
        notes=[mark],
    )
    assert "<script" not in ComparedRuns(content)._repr_html_()


def test_a_run_without_trials_has_frames_without_rows(empty_run):
    analyse(empty_run)
    run = waylab.open(empty_run)
    assert run.trials["used"].tolist() == [False] * 12 and "has not been run" in run.trials["reasons"][0]
    assert run.stages.empty and run.seconds.empty and "stage" in run.stages and "second" in run.seconds


@pytest.mark.parametrize(
    "factor", ["hit_ratio", "steady", "mean_s", "p99_s", "response_s", "total_s", "is_leg"]
)
def test_no_measured_column_hides_a_factor(fake, tmp_path, factor):
    run = waylab.open(hostile_run(tmp_path, factor))
    found = [run.trials, run.configurations, run.stages, run.percentiles, run.seconds, run.records("proxy")]
    for content in found:
        assert content.columns.is_unique
        assert {*content[f"factor_{factor}"]} == {"=1+1", '<b>"q,\n'}


def test_csv_keeps_labels_with_quotes_commas_and_lines(fake, tmp_path):
    directory = hostile_run(tmp_path, "size")
    (path, *_) = export_run(waylab.open(directory), "csv", tmp_path / "out")
    from pandas import read_csv  # noqa: PLC0415

    assert {*read_csv(path)["size"]} == {"=1+1", '<b>"q,\n'}


def factor(name, **levels):
    key = "load.ratio"
    return FactorLevels(
        name=name,
        key=key,
        levels=[FactorLevel(label=label, settings={key: value}) for label, value in levels.items()],
    )


def test_a_factor_has_numbers_only_if_its_labels_are_numbers():
    spec = made_spec()
    spec = replace(
        spec,
        factors=[
            factor("share", **{"0.5": 0.5, "1": 1}),
            factor("percent", **{"1": "1:99", "10": "1:9"}),
            factor("size", small=1, large=2),
            factor("a.b", x=1),
            factor("a_b", y=1),
        ],
    )
    columns = FactorColumns(spec)
    row = columns.row({"share": "0.5", "percent": "10", "size": "small", "a.b": "x", "a_b": "y"})
    assert row == {"share": 0.5, "percent": 10, "size": "small", "a_b": "x", "a_b_2": "y"}
    assert columns.names == [*row]


def test_text_and_html_count_the_configurations_that_they_leave_out(opened, monkeypatch):
    monkeypatch.setattr("waylab.notebook.opened._SHOWN_ROWS", 3)
    for shown in (repr(opened), opened._repr_html_()):
        assert "1 more configuration in run.configurations" in shown and "throughput" in shown


def test_a_run_is_shown_without_predictions(fake, tmp_path):
    run = waylab.open(hostile_run(tmp_path, "size"))
    for shown in (repr(run), run._repr_html_()):
        assert "Figures: none (" in shown and "predictions.json: not found" in shown


def test_runs_are_those_of_exactly_this_experiment(tmp_path):
    names = ["20261127T040639Z-smoke", "20261126T040639Z-big-smoke", "20261125T040639Z-smoke-2", "my-smoke"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{}")
    assert [path.name for path in waylab.runs(tmp_path, "smoke")] == ["20261127T040639Z-smoke"]
    assert [path.name for path in waylab.runs(tmp_path)] == sorted(names[:3])
    with pytest.raises(waylab.LabError, match="no run folder of the experiment \\*"):
        waylab.runs(tmp_path, "*")


def test_settings_may_be_numbers_of_numpy(opened):
    for given in (np.int64(8), np.array([8.0]), opened.trials["clients"].tail(1) * 0 + 8, 8.0):
        assert opened.predict(clients=given)["clients"].tolist() == [8]


def test_a_text_column_of_records_is_a_category(fake, tmp_path):
    found = waylab.open(hostile_run(tmp_path, "size")).records("proxy", legs=True)
    assert not [
        name for name in found if found[name].dtype.kind == "O" and str(found[name].dtype) != "category"
    ]
    assert found.memory_usage(deep=True).sum() / len(found) < 210


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda run: run.figure("thruput"), "no figure 'thruput'; did you mean 'throughput'?"),
        (lambda run: run.records("cachex"), "no records of 'cachex'; there are records of: load, proxy"),
        (lambda run: run.records("proxy", "b9"), "no trial 'b9'; known: b01"),
        (lambda run: run.compare(run), "is given twice"),
        (lambda run: run.predict(clents=3), "clents: models do not know this setting; did you mean clients?"),
        (lambda run: run.predict(clients="many"), "clients: 'many' is not a value; give a number from 1 to"),
        (lambda run: run.predict(replicas=3), "replicas=3: there are only 2 servers"),
        (lambda run: run.predict(clients=[]), "predict: 0 combinations; give 1 to 1000"),
        (lambda run: run.predict(clients=None), "clients: 'None' is not a value"),
        (
            lambda run: run.fit().explain(clients=[4, 8]),
            "explain: 2 combinations; give one value of each setting",
        ),
        (lambda run: run.figure(3), "no figure 3; known: "),
        (lambda run: run.compare("x", metrics=[]), "compare: no metrics are given; known: throughput_per_s"),
        (lambda run: run.compare("x", metrics="throughput"), "compare: metric 'throughput' is unknown"),
        (lambda run: run.compare("x", margin="5 %"), "compare: margin '5 %' should be a number"),
        (lambda run: run.compare("x", run), "x: no such run folder"),
        (lambda run: run.predict(value=4096), "value_bytes had one level in all trials"),
    ],
)
def test_what_a_run_cannot_give_is_one_line(opened, call, line):
    with pytest.raises(waylab.LabError) as caught:
        call(opened)
    assert line in str(caught.value) and "\n" not in str(caught.value) and "--set" not in str(caught.value)


def test_a_run_without_an_analysis_is_one_line(empty_run):
    run = waylab.open(empty_run)
    with pytest.raises(waylab.LabError, match=r"analysis\.json: not found; make it with: waylab analyse"):
        _ = run.trials


def test_models_predict_what_the_command_predicts(opened, reported, capsys):
    found = opened.predict(clients=8)
    assert main(["predict", str(reported), "--set", "clients=8", "--json"]) == 0
    import json  # noqa: PLC0415

    (chosen,) = [
        one for one in json.loads(capsys.readouterr().out)["predictions"] if one["model"] == "chosen"
    ]
    assert found["throughput_per_s"].tolist() == [pytest.approx(chosen["throughput_per_s"]["value"])]
    assert found["response_s_high"].tolist() == [pytest.approx(chosen["response_s"]["high"])]
    models = opened.fit()
    assert {"layered", "chain"} <= set(models.parameters["model"]) and "weights:" in repr(models)
    both = models.predict(clients=[4, 8], replicas=[1, 2])
    assert both[["clients", "replicas"]].to_numpy().tolist() == [[4, 1], [4, 2], [8, 1], [8, 2]]
    assert models.explain(clients=8)["kind"].unique().tolist() == ["time", "limit", "change"]


def test_factors_have_names_that_charts_can_use():
    assert column_of("proxy.loops") == "proxy_loops" and column_of("trial") == "factor_trial"


def test_export_writes_every_frame_and_replaces_earlier_files(reported, tmp_path, capsys):
    target = tmp_path / "out"
    for _ in range(2):
        assert main(["export", str(reported), "--to", "csv", "--output", str(target), "--records"]) == 0
    names = ["trials", "configurations", "stages", "percentiles", "seconds", "records-load", "records-proxy"]
    assert sorted(path.name for path in target.iterdir()) == sorted(f"{name}.csv" for name in names)
    from pandas import read_csv  # noqa: PLC0415

    found = read_csv(target / "trials.csv")
    assert found["throughput_per_s"].tolist() == waylab.open(reported).trials["throughput_per_s"].tolist()
    assert main(["export", str(reported), "--to", "csv", "--output", str(target / "trials.csv")]) == 2
    assert "trials.csv: cannot be written: " in capsys.readouterr().err


def test_parquet_without_pyarrow_is_one_line(reported, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["export", str(reported), "--to", "parquet", "--output", str(tmp_path)]) == 2
    assert "Parquet needs pyarrow; install it with: pip install pyarrow" in capsys.readouterr().err


def test_parquet_keeps_types(reported, tmp_path):
    pytest.importorskip("pyarrow", reason="an optional package; CSV is tested with the same frames")
    from pandas import read_parquet  # noqa: PLC0415

    assert main(["export", str(reported), "--to", "parquet", "--output", str(tmp_path), "--records"]) == 0
    found = read_parquet(tmp_path / "records-proxy.parquet")
    assert str(found["received_ns"].dtype) == "uint64" and str(found["operation"].dtype) == "category"
