"""The data frames of a run: the numbers of analysis.json, of the load's summary and of the records, in seconds."""

import sys

import numpy as np
import pytest

import waylab
from waylab.analysis import analyse, read_analysis
from waylab.cli import main
from waylab.notebook.columns import column_of
from waylab.records import read_records
from waylab.runfolder.files import read_run


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


def test_every_figure_of_the_report_is_a_valid_chart(opened):
    assert "throughput" in opened.figures
    for name, title in opened.figures.items():
        assert opened.figure(name).to_dict()["title"] == title


def test_a_run_shows_its_answer_as_text_and_html(opened):
    text, html = repr(opened), opened._repr_html_()
    assert "12 of 12 trials used" in text and "Is the lab right?" in text
    assert opened.answer[0] in text and "<code>throughput</code>" in html
    assert "<script" not in html


def test_names_of_experiments_cannot_become_html(empty_run):
    path = empty_run / "run.json"
    path.write_text(path.read_text().replace("Is the lab right?", "<script>x</script>?"))
    analyse(empty_run)
    run = waylab.open(empty_run)
    assert run.trials["used"].tolist() == [False] * 12 and "has not been run" in run.trials["reasons"][0]
    assert run.stages.empty and run.seconds.empty and "stage" in run.stages and "second" in run.seconds


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
