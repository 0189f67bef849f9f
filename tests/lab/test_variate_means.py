"""The means of random variates in the lab, compared with those of `waystage variates`; and open loops."""

import json
import re
import subprocess

import pytest
from synthetic import Truth, write_trial

from waylab.analysis import analyse
from waylab.plan import make_plan, trial_as_dict
from waylab.program import find_waystage
from waylab.run import create_run
from waylab.runfolder.files import read_run
from waylab.spec import mean_size_bytes, mean_time_s, read_spec
from waylab.testbed.generators import generators, key_and_pace_options, value_options

SIZES = [
    "128",
    "fixed:4k",
    "uniform:100:2k",
    "normal:1k:100",
    "lognormal:300:0.8",
    "exp:4k",
    "fb_key",
    "fb_value",
]
SIZES += [
    "pareto:15:214.476:0.348238",
    "gev:30:8:0",
    "gev:30:8:-0.2",
    "list:100:0.5,1000:0.3,4k:0.2",
    "list:1,3",
]
TIMES = ["none", "200us", "fixed:1ms", "exponential:1.5ms", "uniform:1ms:3ms", "fb_ia", "lognormal:1ms:0.5"]
UNITS = {"bytes": 1.0, "kiB": 1024.0, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
SPEC = """
name = "open"
question = "q"
hypothesis = "h"
refuted_by = [{ metric = "failed_trials", above = 0 }]
[system.backends]
count = 1
server = "embedded"
[load]
clients = 5
rate = 1000
arrivals = "bursty:100ms:100ms"
key_pattern = "zipf:0.9"
key_size = 30
data_size = "fb_value"
protocol = "meta"
sample = 1
[design]
blocks = 2
"""


@pytest.mark.parametrize(
    ("unit", "text"), [("bytes", one) for one in SIZES] + [("time", one) for one in TIMES]
)
def test_means_equal_those_of_waystage_variates(unit, text):
    command = [find_waystage(), "variates", "--describe", "--unit", unit, text]
    said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    number, name = re.search(r"mean\s+(\S+) ?(\S*)", said).groups()
    mean = (mean_size_bytes if unit == "bytes" else mean_time_s)(text)
    assert mean == pytest.approx(float(number) * UNITS[name or "s"], rel=1e-4, abs=1e-12)


def spec_at(tmp_path, extra=""):
    path = tmp_path / "open.toml"
    path.write_text(SPEC + extra)
    return path


def test_the_load_generator_receives_every_variate(tmp_path):
    extra = '[testbed.hosts]\na = {}\n[assignment]\nload = ["a", "a"]\n'
    trial = make_plan(read_spec(spec_at(tmp_path, extra))).trials[0]
    parts = generators(trial)
    assert [(part.clients, part.rate_per_s) for part in parts] == [(3, 600.0), (2, 400.0)]
    asked = " ".join(key_and_pace_options(trial.load, parts[0]))
    assert asked == "--key-pattern zipf:0.9 --rate 600 --arrivals bursty:100ms:100ms"
    assert " ".join(value_options(trial.load)) == "--data-size fb_value --protocol meta --key-size 30"
    assert trial_as_dict(trial)["load"]["think_mean_s"] == 0.0
    closed = make_plan(
        read_spec(spec_at(tmp_path, '[factors]\nload = { a = { rate = 0, arrivals = "poisson" } }'))
    )
    assert "--think-time none" in " ".join(
        key_and_pace_options(closed.trials[0].load, generators(closed.trials[0])[0])
    )


def test_an_open_loop_is_judged_by_its_offered_load(fake, tmp_path):
    directory = create_run(spec_at(tmp_path), tmp_path / "results").directory
    shares = {}
    for planned, share in zip(read_run(directory).plan, (0.995, 0.98), strict=True):
        # A closed loop would miss the law by half.
        trial = write_trial(directory, planned, Truth(throughput_per_s=1000.0, law_error=0.5))
        load = json.loads((trial / "load.json").read_text())
        load["totals"] |= {"intended": 2000, "unsent": 3, "achieved_share": share}
        (trial / "load.json").write_text(json.dumps(load))
        shares[planned.id] = share
    for trial in analyse(directory).trials:
        gates = {gate.name: gate for gate in trial.gates}
        assert gates["interactive_law"].passed is None
        assert gates["achieved_offered"].passed is (shares[trial.id] == 0.995)
        assert gates["achieved_offered"].value == shares[trial.id]
        assert not any(law.name == "interactive" for law in trial.numbers.laws)
    assert "98.00 % of the requests that were due" in gates["achieved_offered"].text or trial.used
