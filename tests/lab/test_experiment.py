"""`waylab.experiment`: a specification in code is the one of the TOML file, and its mistakes are one line."""

import contextlib
import signal
import threading
import tomllib
from pathlib import Path

import numpy as np
import pytest

import waylab
from waylab.cli import experiment as module
from waylab.run import InterruptedRunError
from waylab.runfolder.files import read_run
from waylab.spec import read_spec

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
# The files of `studies` are lists of specifications, and those of `models` are models.
SPECS = sorted(path for path in EXPERIMENTS.rglob("*.toml") if path.parent.name not in ("studies", "models"))
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


@pytest.mark.parametrize("text", ["Is it 😀?", "é\u2028 \x85 e", 'a\nb\t"c"\\ \x7f \x00', "𝔘"])
def test_every_text_is_saved_and_read_back(tmp_path, text):
    experiment = waylab.experiment(
        **STATED | {"question": text}, factors={"arm": {text: {"clients": 1}, "other": {"clients": 2}}}
    )
    saved = read_spec(experiment.save(tmp_path / "saved.toml"))
    assert saved == experiment.spec and saved.question == text
    assert [level.label for level in saved.factors[0].levels] == [text, "other"]


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.relative_to(EXPERIMENTS).as_posix())
def test_every_shipped_specification_can_be_built_in_code(path, tmp_path):
    spec = read_spec(path)
    experiment = waylab.experiment(**{"name": spec.name} | tomllib.loads(path.read_text()))
    assert experiment.spec == spec
    assert read_spec(experiment.save(tmp_path / "saved.toml")) == spec


@pytest.mark.parametrize("name", ["trial", "order", "block", "seed", "expected_s"])
def test_a_factor_hides_no_column_of_the_plan(name):
    plan = made(factors={name: {"a": {"clients": 1}, "b": {"clients": 2}}}, design={"blocks": 2}).plan
    assert list(plan.columns) == ["trial", "order", "block", f"factor_{name}", "seed", "expected_s"]
    assert set(plan["block"]) == {1, 2} and set(plan[f"factor_{name}"]) == {"a", "b"}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"factors": {"arm": {1: {"clients": 2}, "1": {"clients": 3}}}}, "factors.arm has the key 1 twice"),
        ({"load": {"clients": 10**5000}}, "load.clients is a number with thousands of digits"),
        ({"load": {"test_time_s": np.float64}}, "load.test_time_s = \"<class 'numpy.float64'>\""),
        ({"gates": {"reason": "a\ud800b"}}, "gates.reason has the character U+D800"),
        ({"factors": {"arm": {"\ud800": {"clients": 2}}}}, "factors.arm has the character U+D800"),
        ({"scales": {"quick": {"blocks": 1}}}, "scales is not a key; did you mean scale?"),
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
    assert message in str(found.value) and "\n" not in str(found.value) and len(str(found.value)) < 1000


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


@pytest.mark.parametrize("step", ["run_campaign", "conclude"])
def test_control_c_at_any_step_says_how_to_continue(fake, tmp_path, monkeypatch, step):
    def interrupted(*_, **__):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(module, step, interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(waylab.LabError, match=r"stopped; continue with: waylab run --resume .*-in-code"):
        made(load={"test_time_s": 1.0}, factors={"clients": [1]}, design={"blocks": 1}).run(
            tmp_path, quiet=True
        )
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_python_dropped_stops_the_run(fake, tmp_path, monkeypatch):
    """Python prints and drops an exception that is raised in a finaliser."""
    whole = module.run_campaign

    def interrupted(campaign, console, interrupt, *others):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        whole(campaign, console, interrupt, *others)

    monkeypatch.setattr(module, "run_campaign", interrupted)
    with pytest.raises(waylab.LabError, match="waylab run --resume"):
        made(load={"test_time_s": 1.0}, factors={"clients": [1]}, design={"blocks": 1}).run(
            tmp_path, quiet=True
        )


def test_two_experiments_of_one_name_keep_their_own_specification(fake, tmp_path, monkeypatch):
    """Another program may replace the file NAME.toml at any moment."""
    mine, other = (
        made(load={"test_time_s": 1.0}, factors={"clients": [n]}, design={"blocks": 1}) for n in (1, 2)
    )
    saved = type(mine).save

    def save(self, path):
        found = saved(self, path)
        saved(other, path)
        return found

    monkeypatch.setattr(type(mine), "save", save)
    run = mine.run(tmp_path, quiet=True)
    assert set(run.trials["clients"]) == {1}
    assert (run.directory / "spec.toml").read_text() == mine.text


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
