"""The experiments of the project are valid and do not exceed their stated duration."""

import re
from pathlib import Path

import pytest

from waylab.plan import make_plan
from waylab.spec import QUICK, read_spec
from waylab.spec.factors import setting_keys
from waylab.spec.hosts import Assignment, HostSettings, TestbedSettings
from waylab.spec.schema import Compare, Design, Gates, Load, PredictionSplit, Scale, StoppingSettings, System

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
# The files of `studies` are lists of specifications; test_study.py reads them.
SPECS = sorted(path for path in EXPERIMENTS.rglob("*.toml") if path.parent.name != "studies")
LONGEST_S = {
    "demo": 120,
    "smoke": 20,
    "calibrate": 420,
    "overhead": 420,
    "baseline-network": 300,
    "null": 420,
    "predict": 180,
    "capacity-fit": 250,
    "capacity": 850,
    "own-memcached": 60,
    "own-postgresql": 60,
    "three-hosts": 180,
}
STUDIES = ("asl15", "asl16", "asl18")
# The studies give no numbers for these, or their question is not about a number.
WITHOUT_NUMBERS = ("trace", "baseline-network", "stability", "db-baseline", "client-baseline")
# On a shared machine a trial takes longer than planned, but still less than ten minutes.
QUICK_LONGEST_S = 300


def test_the_folder_has_experiments():
    assert set(LONGEST_S) <= {path.stem for path in EXPERIMENTS.rglob("*.toml")}


@pytest.mark.parametrize("path", SPECS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_experiment_is_valid_and_not_too_long(path):
    spec = read_spec(path)
    assert spec.name == path.stem
    if path.stem in LONGEST_S:
        assert make_plan(spec).expected_s <= LONGEST_S[path.stem]
    else:
        # The full scale of studies takes hours; their quick scale must be short.
        assert path.parent.name in STUDIES and make_plan(read_spec(path, QUICK)).expected_s <= QUICK_LONGEST_S


# A percentile inside a run has an interval from this length on, if its seconds are not too correlated.
PERCENTILE_S = 40.0


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_claim_about_a_99th_percentile_needs_trials_that_are_long_enough(path):
    """Claims are whatever the file names as a metric; a quick scale makes none of its own."""
    metrics = re.findall(r'"([a-z_.]*_p99[0-9_]*_ns)"', path.read_text())
    if metrics:
        shortest_s = min(trial.load.test_time_s for trial in make_plan(read_spec(path)).trials)
        assert shortest_s >= PERCENTILE_S, f"{path.name} names {metrics} and measures {shortest_s} s"


@pytest.mark.parametrize("study", STUDIES)
def test_experiments_of_studies_begin_with_the_study_and_name_its_findings(study):
    for path in (EXPERIMENTS / study).glob("*.toml"):
        assert len(path.read_text().partition("\nname")[0]) > 200, (
            f"{path} does not begin with what the study did"
        )
        if path.stem not in WITHOUT_NUMBERS:
            assert read_spec(path).published.findings, f"{path} has no [published]"


def test_the_full_scale_of_a_study_has_the_levels_of_the_study():
    spec = read_spec(EXPERIMENTS / "asl16" / "replication-a16.toml")
    assert {(t.system.backends.count, t.system.proxy.replicas) for t in make_plan(spec).trials} == {
        (servers, copies) for servers in (3, 5, 7) for copies in (1, (servers + 1) // 2, servers)
    }


def every(first, last, step):
    return [str(value) for value in range(first, last + 1, step)]


OF_C18 = ["6", "12", "24", "48", "96", "192"]
WORKERS = ["8", "16", "32", "64"]
BOTH = ["read", "write"]
# The levels in the studies' tables of experiments.
LEVELS = {
    "asl16/max-throughput-a16-scaled": {
        "clients": ["3", "36", "72", "144", "180", "216", "288", "360", "432", "504", "576", "648"],
        "readers": ["1", "16", "32", "64"],
    },
    "asl16/max-throughput-b16": {"clients": every(20, 400, 20), "readers": ["8", "16", "24", "32"]},
    "asl16/replication-a16": {"servers": ["3", "5", "7"], "replicas": ["1", "half", "full"]},
    "asl16/replication-b16": {"servers": ["3", "5", "7"], "replicas": ["1", "half", "full"]},
    "asl16/writes-a16": {
        "servers": ["3", "5", "7"],
        "replicas": ["1", "full"],
        "writes_percent": ["1", "4", "7", "10"],
    },
    "asl16/writes-b16": {
        "servers": ["3", "5", "7"],
        "replicas": ["1", "full"],
        "writes_percent": ["1", "5", "10"],
    },
    "asl16/2k": {"servers": ["3", "7"], "replicas": ["1", "full"], "writes_percent": ["1", "10"]},
    "asl18/baseline-one-server": {"clients": OF_C18, "operation": BOTH},
    "asl18/baseline-two-servers": {"clients": ["2", "4", "8", "16", "32", "64"], "operation": BOTH},
    "asl18/one-middleware": {"clients": OF_C18, "proxy.workers": WORKERS, "operation": BOTH},
    "asl18/two-middlewares": {"clients": OF_C18, "proxy.workers": WORKERS, "operation": BOTH},
    "asl18/full-writes": {"clients": OF_C18, "proxy.workers": WORKERS},
    "asl18/multiget": {"multi_key_get": ["1", "3", "6", "9"], "parts": ["whole", "sharded"]},
    "asl18/2k": {
        "servers": ["1", "3"],
        "middlewares": ["1", "2"],
        "proxy.workers": ["8", "32"],
        "operation": BOTH,
    },
    "asl15/scalability": {"clients": every(10, 120, 10), "services": ["1", "2"]},
    "asl15/db-baseline": {"clients": every(10, 120, 10)},
    "asl15/mw-baseline": {"clients": every(10, 120, 10)},
    "asl15/client-baseline": {"clients": every(10, 120, 10)},
    "asl15/2k": {"clients": ["60", "120"], "services": ["1", "2"], "connections": ["20", "40"]},
}


@pytest.mark.parametrize("name", LEVELS)
def test_every_experiment_has_the_levels_of_its_study(name):
    spec = read_spec(EXPERIMENTS / f"{name}.toml")
    found = {factor.name: {level.label for level in factor.levels} for factor in spec.factors}
    assert {
        factor for factor, labels in LEVELS[name].items() if not set(labels) <= found.get(factor, set())
    } == set()
    assert spec.design.blocks >= 3 or "stopping" in (EXPERIMENTS / f"{name}.toml").read_text()


def test_the_list_of_experiments_names_every_specification_of_a_study():
    page = (EXPERIMENTS.parent / "docs" / "study-experiments.md").read_text()
    for path in (EXPERIMENTS / "studies").glob("*.toml"):
        for spec in re.findall(r'^spec = "\.\./(.*?)"', path.read_text(), re.M):
            rows = [line for line in page.splitlines() if f"`{spec}`" in line]
            assert rows and f"`{path.stem}`" in rows[0], f"{path.name}: {spec}"


def test_the_demonstration_shows_every_key():
    text = (EXPERIMENTS / "demo.toml").read_text()
    parts = {"system": System, "load": Load, "design": Design, "gates": Gates, "testbed": TestbedSettings}
    parts |= {
        "hosts": HostSettings,
        "assignment": Assignment,
        "stopping": StoppingSettings,
        "predict": PredictionSplit,
    }
    parts |= {"scale": Scale, "compare": Compare}
    keys = [key for name, settings in parts.items() for key in setting_keys(settings, f"{name}.")]
    keys = [key for key in keys if key not in ("testbed.hosts", "scale.levels")]
    # In place of a name that the user chooses, the table that has it.
    keys = [key.removesuffix(".*") for key in keys]
    assert [key for key in keys if f"{key.rsplit('.', 1)[1]} = " not in text] == []
