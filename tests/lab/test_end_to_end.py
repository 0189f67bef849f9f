"""The real program, from specification to report. `make test` builds it first, so its absence is a failure."""

import json
import subprocess
import sys

import pytest

from waylab.analysis import read_analysis
from waylab.predict import read_predictions
from waylab.program import find_waystage

SPEC = """
name = "end-to-end"
question = "Does it work?"
hypothesis = "It does."
refuted_by = [{{ metric = "failed_trials", above = 0 }}]
[system]
kind = "{kind}"
[system.backends]
count = {count}
server = "embedded"
service_time = "{service_time}"
[system.proxy]
sample = 2
replicas = {count}
[load]
clients = 4
ratio = "1:4"
key_maximum = 200
test_time_s = 1.0
warm_up_s = 1.0
sample = 2
[factors]
clients = [1, 4]
[design]
blocks = 2
[gates]
foreign_cpu_max = 1.0
steal_max = 1.0
generator_cpu_max = 1.5
interactive_law_max = 0.1
reason = "a test on a machine that is shared"
"""


def run(tmp_path, **settings):
    find_waystage()
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.format(**settings))
    command = [sys.executable, "-m", "waylab", "run", str(spec), "--results", str(tmp_path / "results")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    directory = next((tmp_path / "results").iterdir())
    return directory, read_analysis(directory)


def test_a_proxy_run_goes_from_specification_to_report(tmp_path):
    directory, analysis = run(tmp_path, kind="proxy", count=2, service_time="none")
    assert analysis.trials_used == 4, [trial.reasons for trial in analysis.trials]
    for c in analysis.configurations:
        assert c.throughput_per_s.mean > 100 and c.hit_ratio.mean == 1.0
        assert {"all", "get", "set"} <= set(c.stages)
        stages = c.stages["all"].stages
        parts_ns = sum(numbers.mean_ns.mean for stage, numbers in stages.items() if stage != "total")
        assert parts_ns == pytest.approx(stages["total"].mean_ns.mean)
        view = c.proxy_view
        assert view.joined.mean > 20 and view.unmatched.mean <= 0.02 * view.joined.mean + 4
        assert view.client_mean_ns.mean > view.proxy_mean_ns.mean > 0
        assert {"load", "proxy", "backends", "total", "interrupts"} == set(c.cpu_per_request_ns)
    assert (directory / "report.html").stat().st_size > 500_000
    assert len(list((directory / "figures").glob("*.png"))) >= 8


def test_a_server_with_a_configured_service_time(tmp_path):
    directory, analysis = run(tmp_path, kind="direct", count=1, service_time="exp:500us")
    assert analysis.trials_used == 4, [trial.reasons for trial in analysis.trials]
    for c in analysis.configurations:
        view = c.server_view
        assert view.joined.mean > 20
        assert view.service_mean_ns.mean == pytest.approx(500_000, rel=0.25)
        assert view.client_mean_ns.mean > view.sojourn_mean_ns.mean
    predictions = read_predictions(directory)
    models = {summary.model: summary.applies for summary in predictions.summary}
    assert models["closed M/M/c//N as dictated"] == models["closed M/M/c//N with delay"] == 2


def test_several_generators_report_one_load(tmp_path):
    spec = tmp_path / "several.toml"
    text = SPEC.format(kind="proxy", count=2, service_time="none")
    text = text.replace("clients = [1, 4]", "clients = [4]").replace("blocks = 2", "blocks = 1")
    spec.write_text(text + '[testbed.hosts]\nhere = {}\n[assignment]\nload = ["here", "here"]\n')
    command = [sys.executable, "-m", "waylab", "run", str(spec), "--results", str(tmp_path / "results")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    (directory,) = (tmp_path / "results").iterdir()
    (trial,) = read_analysis(directory).trials
    gates = {gate.name: gate for gate in trial.gates}
    # A busy machine may start them more than a tenth of a second apart; the test requires only that the gate ran.
    others = [gate.text for gate in trial.gates if gate.passed is False and gate.name != "generators"]
    assert others == [] and gates["generators"].passed is not None, done.stdout + done.stderr
    folder = directory / "trials" / trial.id
    parts = [json.loads((folder / f"load-{index}.json").read_text()) for index in (0, 1)]
    assert [part["settings"]["clients"] for part in parts] == [2, 2]
    assert trial.numbers.requests == sum(part["totals"]["requests"] for part in parts)
    # The records of both are joined with the proxy's.
    assert len(list((folder / "records").glob("load-*.way"))) == 2
    assert trial.numbers.hit_ratio == 1.0 and trial.numbers.proxy_view.joined > 20
