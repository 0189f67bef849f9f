"""`waylab.experiment`: a specification in code is the one of the TOML file, and its mistakes are one line."""

import threading
from pathlib import Path

import numpy as np
import pytest

import waylab
from waylab.cli import experiment as module
from waylab.run import InterruptedRunError
from waylab.runfolder.files import read_run
from waylab.spec import read_spec

STATED = {
    "name": "in-code",
    "question": "Is <b>it</b> the same?",
    "hypothesis": "It is.",
    "refuted_by": [{"metric": "failed_trials", "above": 0}],
}


def made(**sections):
    return waylab.experiment(**STATED, **sections)


def test_it_is_the_specification_of_the_file(tmp_path):
    experiment = made(
        system={"backends": {"count": np.int64(2), "server": "embedded"}},
        load={"test_time_s": np.float64(1.5), "warm_up_s": 0.0},
        factors={"clients": np.array([4, 16]), "replicas": range(1, 3), "pipeline": (1,)},
        design={"blocks": 3, "seed": 7},
    )
    path = experiment.save(tmp_path / "saved.toml")
    assert path.read_text() == experiment.text and read_spec(path) == experiment.spec
    assert experiment.spec.load.test_time_s == 1.5
    plan = experiment.plan
    assert len(plan) == 12 and set(plan["clients"]) == {"4", "16"}
    assert experiment.expected_s == pytest.approx(plan["expected_s"].sum())
    assert repr(experiment).splitlines()[:2] == ["in-code: Is <b>it</b> the same?", "  clients: 4, 16"]
    assert "12 trials" in repr(experiment) and "&lt;b&gt;it" in experiment._repr_html_()


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"load": {"test_tim_s": 1.0}}, "test_time_s"),
        ({"lod": {}}, "load"),
        ({"load": {"clients": None}}, "load.clients = 'None': should be text"),
        ({"system": {"proxy": {"loops": [object()]}}}, "system.proxy.loops = '<object"),
        ({"load": {"test_time_s": float("nan")}}, "load.test_time_s = 'nan'"),
        ({"factors": {"clients": []}}, "clients"),
        ({"factors": {"clients": nested(500)}}, "nested too deeply"),
        ({"load": 3}, "load"),
    ],
)
def test_a_mistake_is_one_line(sections, message):
    with pytest.raises(waylab.LabError, match=r"^experiment: ") as found:
        made(**sections)
    assert message in str(found.value) and "\n" not in str(found.value)


def test_a_model_that_does_not_exist_is_refused():
    rule = {"metric": "throughput_per_s", "model": "none", "error_above": 0.1}
    with pytest.raises(waylab.LabError):
        waylab.experiment(**{**STATED, "refuted_by": [rule]})


def test_it_runs_and_returns_the_run(fake, tmp_path, capfd):
    experiment = made(load={"test_time_s": 1.0}, factors={"clients": [1]}, design={"blocks": 1})
    run = experiment.run(tmp_path / "results", quiet=True)
    assert capfd.readouterr().err == ""
    assert isinstance(run, type(waylab.open(run.directory))) and len(run.trials) == 1
    assert (tmp_path / "results" / "in-code.toml").read_text() == experiment.text
    assert (run.directory / "report.html").is_file() and read_run(run.directory).name == "in-code"


def test_an_interrupted_run_says_how_to_continue(fake, tmp_path, monkeypatch):
    def interrupted(*_):
        raise InterruptedRunError("stopped; continue with: waylab run --resume X")

    monkeypatch.setattr(module, "run_campaign", interrupted)
    with pytest.raises(waylab.LabError, match="waylab run --resume"):
        made(factors={"clients": [1]}).run(tmp_path, quiet=True)


def test_it_runs_in_the_main_thread_only(tmp_path):
    found = []

    def run():
        try:
            made(factors={"clients": [1]}).run(tmp_path)
        except waylab.LabError as error:
            found.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert len(found) == 1 and "main thread" in found[0] and list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    Path(tmp_path, "file").write_text("")
    with pytest.raises(waylab.LabError, match="cannot create a folder"):
        made(factors={"clients": [1]}).run(tmp_path / "file" / "results")
