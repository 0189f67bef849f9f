"""The time scale of emulated hosts: in the settings of a trial, in the plan, and in the numbers that rules compare."""

import dataclasses
from types import SimpleNamespace

import pytest

from waylab.analysis.across.metrics import described_metric_of
from waylab.errors import LabError
from waylab.plan import make_plan
from waylab.spec import at_time_scale, read_spec

SPEC = """
name = "slow"
question = "q"
hypothesis = "h"
refuted_by = [{ metric = "failed_trials", above = 0 }]
[system.backends]
server = "embedded"
service_time = "uniform:100us:0.3ms"
[testbed]
kind = "netns"
time_scale = 20
[testbed.hosts]
a = { cores = 1, up_mbit = 100 }
[assignment]
load = ["a"]
proxy = ["a"]
backends = ["a"]
[load]
think_time = "exp:1.5ms"
test_time_s = 2
"""


def spec_of(tmp_path, text):
    path = tmp_path / "slow.toml"
    path.write_text(text)
    return read_spec(path)


def test_times_of_a_plan_are_longer_and_rates_lower(tmp_path):
    spec = spec_of(tmp_path, SPEC)
    trial = make_plan(spec).trials[0]
    assert trial.time_scale == 20 and trial.load.test_time_s == 2.0
    assert trial.load.think_time == "exp:30000000ns" and trial.load.arrivals == "poisson"
    assert trial.system.backends.service_time == "uniform:2000000ns:6000000ns"
    assert trial.system.proxy.backend_timeout == "20000000000ns"
    assert trial.system.proxy.fault_write_poll == ""
    fault = SPEC + '[system.proxy]\ndispatch = "per-backend"\nfault_write_poll = "1ms"\n'
    (scaled, *_) = make_plan(spec_of(tmp_path, fault)).trials
    assert scaled.system.proxy.fault_write_poll == "20000000ns"
    held = SPEC + '[system.proxy]\ndispatch = "shared"\nfault_write_hold = "2.4ms"\n'
    (scaled, *_) = make_plan(spec_of(tmp_path, held)).trials
    assert scaled.system.proxy.fault_write_hold == "48000000ns"
    assert at_time_scale(spec.settings, 1) == spec.settings, "the specification keeps the described times"
    load = dataclasses.replace(spec.load, think_time="none", rate=1000.0, arrivals="bursty:200ms:800ms")
    slow = at_time_scale(dataclasses.replace(spec.settings, load=load), 4).load
    assert (slow.rate, slow.arrivals) == (250.0, "bursty:800000000ns:3200000000ns")


@pytest.mark.parametrize("fault", ["fault_write_poll", "fault_write_hold"])
def test_the_fault_of_a_discipline_needs_it(tmp_path, fault):
    with pytest.raises(LabError, match=f"{fault} = '1ms': needs dispatch"):
        make_plan(spec_of(tmp_path, SPEC + f'[system.proxy]\n{fault} = "1ms"\n'))


def test_a_time_without_a_duration_cannot_be_scaled(tmp_path):
    message = r"load.think_time = 'fb_ia': has no duration to multiply by testbed.time_scale = 20"
    with pytest.raises(LabError, match=message):
        spec_of(tmp_path, SPEC.replace("exp:1.5ms", "fb_ia"))


def test_rules_compare_numbers_of_the_described_hosts():
    operation = SimpleNamespace(response_mean_ns=4e6, percentiles_ns={"50": 2e6})
    numbers = SimpleNamespace(
        throughput_per_s=145.0,
        time_scale=20.0,
        operations={"all": operation, "set": operation},
        links=SimpleNamespace(utilisation={"a up": 0.9}),
        cpu=SimpleNamespace(cpu_per_request_ns={"total": 900.0}),
    )
    found = {
        name: described_metric_of(numbers, name)
        for name in (
            "throughput_per_s",
            "response_mean_ns",
            "set.response_mean_ns",
            "response_p50_ns",
            "link_utilisation.a up",
            "cpu_per_request_ns.total",
            "response_p95_ns",
        )
    }
    assert list(found.values()) == [2900.0, 2e5, 2e5, 1e5, 0.9, 900.0, None]
