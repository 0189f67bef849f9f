"""Models compared with the measurement: when they apply, their predictions, and the reason when they do not apply."""

import json
import shutil

import numpy as np
import pytest
from made import made_configuration, made_stages, made_system
from page_text import summary
from synthetic import (
    PROXY_STAGES_NS,
    START_NS,
    WINDOW_S,
    Truth,
    record_bytes,
    response_mean_ns,
    rows,
    write_trial,
)

from waylab.analysis import analyse
from waylab.errors import LabError
from waylab.fit import fit_slots
from waylab.fit.observations import observe
from waylab.models import MM1, ClosedMMc
from waylab.predict import predict, read_predictions
from waylab.report import ExperimentFindings, write_findings
from waylab.report.figures.inside import models
from waylab.report.page.content import read_content
from waylab.report.tables.prediction import models_summary_table, models_table
from waylab.run import create_run
from waylab.runfolder.files import read_run
from waylab.runfolder.results import seal
from waylab.spec import Proxy, System

DIRECT = """
name = "direct"
question = "q"
hypothesis = "h"
refuted_by = [{ metric = "failed_trials", above = 0 }]
[system]
kind = "direct"
[system.backends]
server = "embedded"
service_time = "exp:200us"
workers = 2
[load]
think_time = "exp:1ms"
sample = 1
test_time_s = 2.0
[factors]
clients = [4, 8]
[design]
blocks = 2
"""
# Together shorter than the mean response times below, so that the records agree with the summaries.
SERVICE_NS, WAIT_NS, LATE_NS, WAY_NS = 120_000, 20_000, 10_000, 40_000


def delay_ns(clients):
    """Return the part of the mean response time in which no worker has the request."""
    return 1e9 * ClosedMMc(clients, 2, 200e-6, 1e-3).response_mean_s - SERVICE_NS - WAIT_NS


def entries(content, model):
    return [entry for entry in content.entries if entry.model == model]


def test_the_black_box_and_connection_models(run_folder):
    analysis = analyse(run_folder)
    content = predict(run_folder)
    assert content == read_predictions(run_folder)
    for entry in entries(content, "M/M/1 black box"):
        configuration = next(c for c in analysis.configurations if c.name == entry.configuration)
        rate, largest = configuration.throughput_per_s.mean, configuration.largest_second_per_s
        assert entry.predicted.response_mean_ns == pytest.approx(1e9 * MM1(rate, largest).response_mean_s)
        # It was fitted to this very configuration.
        assert entry.error.response_mean_ns is None and entry.reason.startswith("description")
    for entry in entries(content, "M/M/m slots"):
        parameters = entry.parameters
        assert parameters["servers"] == 2 and parameters["services_per_s"] == pytest.approx(1e9 / 34_000)
        assert parameters["outside_ns"] == pytest.approx(5_350 - PROXY_STAGES_NS["queue"])
        utilisation = parameters["arrivals_per_s"] / (2 * parameters["services_per_s"])
        assert entry.applies == (utilisation < 1)
    assert not entries(content, "closed M/M/c//N as dictated")


@pytest.mark.parametrize(
    ("proxy", "servers"),
    [
        ({"loops": 2}, 6),
        ({"loops": 2, "dispatch": "per-backend", "readers": 4, "workers": 16}, 12),
        ({"loops": 2, "dispatch": "shared", "readers": 4, "workers": 16}, 16),
    ],
)
def test_the_slots_of_a_model_depend_on_the_discipline(proxy, servers):
    system = System(proxy=Proxy(**proxy))
    stages = {"all": made_stages(send=10.0, backend=10.0, total=10.0)}
    fit = fit_slots(made_configuration(system=made_system(system), stages=stages))
    assert fit.parameters.servers == servers


def test_an_unstable_model_raises(run_folder):
    for planned in read_run(run_folder).plan:
        write_trial(run_folder, planned, Truth(throughput_per_s=80_000.0))
    analyse(run_folder)
    entry = entries(predict(run_folder), "M/M/m slots")[0]
    assert not entry.applies and "is unstable: utilisation 1.36" in entry.reason and entry.predicted is None


@pytest.fixture
def direct_run(fake, tmp_path, request):
    path = tmp_path / "direct.toml"
    path.write_text(DIRECT + getattr(request, "param", ""))
    directory = create_run(path, tmp_path / "results").directory
    for planned in read_run(directory).plan:
        rate = ClosedMMc(planned.load.clients, 2, 200e-6, 1e-3).throughput_per_s
        truth = Truth(throughput_per_s=rate, cpu_s={"backend-0": 0.5})
        trial = write_trial(directory, planned, truth)
        client, cache = rows("load", 300), rows("cache", 300)
        start = START_NS + 1_000_000 + np.arange(300) * round(0.99 * WINDOW_S * 1e9 / 300)
        client["intended"] = client["issued"] = client["sent"] = start
        cache["received"] = start + WAY_NS // 2
        cache["started"] = cache["received"] + WAIT_NS
        cache["served"] = cache["started"] + SERVICE_NS
        cache["replied"] = cache["served"] + LATE_NS
        client["completed"] = cache["replied"] + WAY_NS // 2
        # The records agree with the summary: in response times, and in the number of requests.
        response_ns = response_mean_ns(truth, planned.load.clients, planned.load.think_mean_s)
        client["intended"] = np.minimum(client["issued"], client["completed"] - np.uint64(round(response_ns)))
        sample = round(rate * WINDOW_S / len(client))
        (trial / "records" / "load-2.way").write_bytes(record_bytes("load", client, sample=sample))
        (trial / "records" / "cache-1.way").write_bytes(record_bytes("cache", cache, sample=sample))
    return directory


def test_the_closed_model_predicts_the_synthetic_server(direct_run):
    analysis = analyse(direct_run)
    view = analysis.configurations[0].server_view
    assert view.service_mean_ns.mean == SERVICE_NS and view.wait_mean_ns.mean == WAIT_NS
    # A delayed reply does not occupy a worker, so its time belongs to the delay.
    assert view.delay_mean_ns.mean == pytest.approx(delay_ns(4), abs=1)
    content = predict(direct_run)
    for entry in entries(content, "closed M/M/c//N as dictated"):
        assert entry.parameters["service_s"] == pytest.approx(200e-6)
        assert entry.parameters["think_s"] == pytest.approx(1e-3)
        # The synthetic throughput equals the model's.
        assert abs(entry.error.throughput_per_s) < 1e-9
    for entry in entries(content, "closed M/M/c//N with delay"):
        parameters = entry.parameters
        assert parameters["service_s"] == pytest.approx(SERVICE_NS * 1e-9)
        delay_s = 1e-9 * delay_ns(parameters["clients"])
        assert parameters["delay_s"] == pytest.approx(delay_s, abs=1e-9)
        queue = ClosedMMc(parameters["clients"], 2, SERVICE_NS * 1e-9, 1e-3 + delay_s)
        assert entry.predicted.throughput_per_s == pytest.approx(queue.throughput_per_s)
        assert entry.predicted.response_mean_ns == pytest.approx(1e9 * queue.response_mean_s + 1e9 * delay_s)
    assert not entries(content, "M/M/m slots")
    summary = next(s for s in content.summary if s.model.endswith("dictated"))
    assert summary.applies == 2 and summary.throughput_per_s.median_error < 1e-9


def test_a_run_without_measurements_has_no_predictions(empty_run):
    analyse(empty_run)
    assert predict(empty_run).entries == []
    json.loads((empty_run / "predictions.json").read_text())


@pytest.mark.parametrize("direct_run", ["[predict]\ncalibrate = [{ clients = 4 }]\n"], indirect=True)
def test_models_learn_from_calibration_and_are_tested_on_held_out_configurations(direct_run):
    analyse(direct_run)
    # The held-out configuration's own numbers are wrong on purpose: they must not influence the prediction.
    spoiled = json.loads((direct_run / "analysis.json").read_text())
    for configuration in spoiled["configurations"]:
        if configuration["name"] == "clients=8":
            configuration["server_view"]["service_mean_ns"]["mean"] *= 3
            configuration["largest_second_per_s"] *= 3
    (direct_run / "analysis.json").write_text(json.dumps(spoiled))
    seal(direct_run)
    content = predict(direct_run)
    found = {entry.configuration: entry for entry in entries(content, "closed M/M/c//N with delay")}
    assert {name: entry.role for name, entry in found.items()} == {
        "clients=4": "calibration",
        "clients=8": "held-out",
    }
    entry = found["clients=8"]
    assert entry.parameters["service_s"] == pytest.approx(SERVICE_NS * 1e-9)
    assert entry.parameters["clients"] == 8 and "from 1 calibration configurations" in entry.source
    queue = ClosedMMc(8, 2, SERVICE_NS * 1e-9, 1e-3 + 1e-9 * delay_ns(4))
    assert entry.predicted.throughput_per_s == pytest.approx(queue.throughput_per_s)
    black = {entry.configuration: entry for entry in entries(content, "M/M/1 black box")}
    assert black["clients=8"].parameters["services_per_s"] == black["clients=4"].parameters["services_per_s"]
    summary = next(s for s in content.summary if s.model.endswith("with delay"))
    assert summary.configurations == 1 and summary.role == "held-out"
    assert summary.throughput_per_s.largest_error == abs(entry.error.throughput_per_s)
    assert any("of 1 configurations that were held out" in fact for fact in content.facts)


@pytest.mark.parametrize("direct_run", ["[predict]\ncalibrate = [{ clients = 4 }]\n"], indirect=True)
def test_a_run_without_a_usable_calibration_has_no_predictions(direct_run):
    for planned in read_run(direct_run).plan:
        if planned.role == "calibration":
            rate = ClosedMMc(planned.load.clients, 2, 200e-6, 1e-3).throughput_per_s
            write_trial(direct_run, planned, Truth(throughput_per_s=rate, wrong=1))
    analyse(direct_run)
    for entry in entries(predict(direct_run), "closed M/M/c//N with delay"):
        assert not entry.applies and "no trial was used" in entry.reason


def test_a_run_that_is_given_twice_is_one_line(run_folder, tmp_path):
    """Its trials would count twice, so that every interval would be too narrow; a copy is the same run."""
    analyse(run_folder)
    assert observe([run_folder])
    copy = shutil.copytree(run_folder, tmp_path / "copy")
    for other in (run_folder, copy):
        with pytest.raises(LabError, match="is the same run as"):
            observe([run_folder, other])


def test_no_page_calls_a_difference_from_the_data_of_a_fit_an_error(run_folder, tmp_path, capsys):
    """All models of this run are fitted to the configurations that they are compared with."""
    analyse(run_folder)
    content = predict(run_folder)
    assert all(entry.reason for entry in content.entries)
    assert not [fact for fact in content.facts if "off by" in fact]
    read = read_content(run_folder)
    tables = models_table(read) + models_summary_table(read)
    assert "median error" not in tables and ">error<" not in tables
    assert "description: the model was fitted to" in tables
    assert "These lines describe configurations that the model was fitted to: M/M/1" in models(read).caption
    page = write_findings(
        [ExperimentFindings("e", [run_folder], None)], tmp_path / "e.md", "t", "c"
    ).read_text()
    above = page.partition("| M/M/1 black box | description: its own data (")[0].splitlines()
    assert "median difference" in above[-2] and "error" not in above[-2]
    assert "off by" not in summary(run_folder, capsys)
