"""A system outside the project: "How to add a system" in CONTRIBUTING.md is enough to run and report it."""

import pytest

from waylab.analysis import analyse
from waylab.errors import LabError
from waylab.predict import predict
from waylab.report import write_report
from waylab.run import create_run
from waylab.runfolder.files import read_run
from waylab.spec import Load, System, read_spec, systems
from waylab.spec.systems.key_value import KeyValueSystem
from waylab.testbed import register_system
from waylab.testbed.systems.key_value import RunningKeyValueSystem

SPEC = """
question = "q"
hypothesis = "h"
refuted_by = [{ metric = "failed_trials", above = 0 }]
[system]
kind = "two-tier"
[system.backends]
count = 2
server = "embedded"
[load]
clients = 4
warm_up_s = 0.1
test_time_s = 0.3
sample = 1
[design]
blocks = 1
"""


class TwoTier(KeyValueSystem):
    """Servers, each with a caching program in front of it."""

    name = "two-tier"

    def programs(self, system: System, generators: int) -> dict[str, int]:
        return {"proxy": system.backends.count, "backends": system.backends.count}

    def check(self, system: System, load: Load, generators: int) -> None:
        super().check(system, load, generators)
        if load.pipeline > 1:
            raise ValueError("load.pipeline: a two-tier system answers one request at a time")

    def titles(self) -> dict[str, str]:
        return {"proxy": "front cache"}


class RunningTwoTier(RunningKeyValueSystem):
    """Here the program in front is another `waystage cache`."""

    def start_servers(self) -> list[str]:
        self.start_backends()
        return [self._start_front(index) for index in range(self.counts["proxy"])]

    def _start_front(self, index: int) -> str:
        host = self.host_of("proxy", index)
        command = [str(self.programs.waystage), "cache", "--listen", f"{host.address}:0"]
        return self.start(host, self.name_of("proxy", index), command, drained=True).wait_until_ready()


@pytest.fixture
def two_tier():
    register_system(TwoTier(), RunningTwoTier)
    yield
    systems.unregister("two-tier")


def written(tmp_path, text):
    path = tmp_path / "own.toml"
    path.write_text(text)
    return path


def test_a_registered_system_runs_and_is_reported(fake, two_tier, tmp_path):
    campaign = create_run(written(tmp_path, SPEC), tmp_path / "results")
    results = []
    campaign.run(lambda step: results.append(step.result))
    (result,) = [result for result in results if result]
    assert result.status == "measured", result.reason
    assert [process.name for process in result.processes] == [
        *("backend-0", "backend-1", "proxy-0", "proxy-1", "load")
    ]
    described = read_run(campaign.directory).plan[0].description
    assert described.name == "two-tier" and described.programs == {"proxy": 2, "backends": 2}
    (trial,) = analyse(campaign.directory).trials
    complete = next(gate for gate in trial.gates if gate.name == "complete")
    assert complete.passed, complete.text
    predict(campaign.directory)
    write_report(campaign.directory)
    assert "front cache 2" in (campaign.directory / "report.html").read_text()


def test_its_settings_are_checked(two_tier, tmp_path):
    with pytest.raises(LabError, match=r"load\.pipeline: a two-tier system answers one request at a time"):
        read_spec(written(tmp_path, SPEC.replace("clients = 4", "clients = 4\npipeline = 2")))


def test_an_unregistered_system_is_refused(tmp_path):
    known = "proxy, nutcracker, direct, messages, database"
    with pytest.raises(LabError, match=rf"system\.kind = 'two-tier': should be one of {known}"):
        read_spec(written(tmp_path, SPEC))
