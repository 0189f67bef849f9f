"""Several load generators: each client and key once, and their summaries added up exactly."""

import dataclasses

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import WINDOW_S, Truth, histogram_text, summary

from waylab.errors import LabError
from waylab.plan import make_plan
from waylab.run.merging import merged_summary
from waylab.spec import Load, Placement, Spec
from waylab.testbed import RunningSystem, Testbed, find_programs
from waylab.testbed.generators import generators

NAMES = ["load-0.json", "load-1.json", "load-2.json"]


def a_trial(count, **load):
    spec = Spec(name="x", load=Load(**load), placement=Placement(load=("a",) * count))
    return make_plan(spec).trials[0]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 9), st.integers(0, 50), st.integers(9, 100), st.integers(9, 200))
def test_every_client_and_every_key_is_given_out_once(count, minimum, keys, clients):
    trial = a_trial(count, clients=clients, key_minimum=minimum, key_maximum=minimum + keys - 1)
    shares = generators(trial)
    assert len(shares) == count and sum(share.clients for share in shares) == clients
    given_out = [key for share in shares for key in range(share.key_minimum, share.key_maximum + 1)]
    assert given_out == list(range(minimum, minimum + keys))
    for part in ([share.clients for share in shares], [s.key_maximum - s.key_minimum for s in shares]):
        assert max(part) - min(part) <= 1
    assert len({share.seed for share in shares}) == count and shares[0].seed == trial.seed


def test_a_single_generator_is_named_and_kept_as_ever():
    (alone,) = generators(a_trial(0))
    assert (alone.name, alone.summary) == ("load", "load.json")
    assert [share.summary for share in generators(a_trial(2))] == NAMES[:2]


def test_generators_go_to_backends_in_turn_and_start_together(fake, tmp_path):
    trial = a_trial(3, test_time_s=0.3, warm_up_s=0.1, clients=7)
    backends = dataclasses.replace(trial.system.backends, count=2, server="embedded")
    system = dataclasses.replace(trial.system, kind="direct", backends=backends)
    trial = dataclasses.replace(trial, system=system)
    with RunningSystem(trial, find_programs(set()), tmp_path, Testbed()) as system:
        addresses = system.bring_up()
        assert len(addresses) == 2
        system.fill(addresses)
        loads = system.start_load(addresses)
        # It was told to go on: what was paused before is the program now, or about to be.
        assert all(load.wait(30) and load.exit_code == 0 for load in loads)
    servers = [load.command[load.command.index("--server") + 1] for load in loads]
    assert servers == [addresses[0], addresses[1], addresses[0]]
    assert [load.command[load.command.index("--clients") + 1] for load in loads] == ["3", "2", "2"]
    assert all("--no-prefill" in load.command for load in loads)
    assert [process.name for process in system.processes[2:5]] == ["fill-0", "fill-1", "fill-2"]


def test_no_more_backends_than_generators_are_started_without_a_proxy(fake, tmp_path):
    trial = a_trial(1)
    trial = dataclasses.replace(trial, system=dataclasses.replace(trial.system, kind="direct"))
    with RunningSystem(trial, find_programs(set()), tmp_path, Testbed()) as system:
        assert len(system.bring_up()) == 1


def parts(*throughputs):
    planned = {"load": {"clients": 4, "think_mean_s": 0.0}}
    return [summary(planned, Truth(throughput_per_s=rate, share=0.1 * rate / 1000)) for rate in throughputs]


def test_the_merged_summary_is_that_of_all_requests_together():
    generator = np.random.default_rng(1)
    samples = [generator.exponential(scale, 500).astype(np.int64) + 1 for scale in (1e6, 3e6, 9e6)]
    content = parts(1000.0, 2000.0, 3000.0)
    for part, values in zip(content, samples, strict=True):
        times = part["operations"]["all"]["response"]
        times |= {"mean_ns": float(values.mean()), "std_ns": float(values.std())}
        times |= {"min_ns": int(values.min()), "max_ns": int(values.max()), "percentiles": {"99": 0}}
        times["histogram"] = histogram_text(values)
        part["operations"]["all"]["count"] = len(values)
    merged = merged_summary(content, NAMES)
    every = np.concatenate(samples)
    times = merged["operations"]["all"]["response"]
    assert times["mean_ns"] == pytest.approx(every.mean()) and times["std_ns"] == pytest.approx(every.std())
    assert (times["min_ns"], times["max_ns"]) == (every.min(), every.max())
    together = HdrHistogram.decode(histogram_text(every))
    assert times["percentiles"]["99"] == together.get_value_at_percentile(99)
    assert HdrHistogram.decode(times["histogram"]).get_total_count() == len(every)
    assert merged["throughput_per_s"] == 6000.0 and merged["totals"]["requests"] == 6000 * WINDOW_S
    assert merged["cpu"]["share"] == pytest.approx(0.3), (
        "the busiest generator is the first to be a bottleneck"
    )
    assert merged["cpu"]["user_s"] == pytest.approx(1.2) and merged["valid"] and merged["reasons"] == []
    assert [second["requests"] for second in merged["seconds"]][1:] == [6600, 5400]
    assert merged["seconds"][1]["p99_ns"] is None, "percentiles are never averaged"


def test_generators_that_did_not_measure_together_make_the_trial_invalid():
    late = parts(1000.0, 1000.0)
    for key in ("measure_from_clock_ns", "measure_to_clock_ns"):
        late[1][key] += round(0.15 * WINDOW_S * 1e9)
    merged = merged_summary(late, NAMES[:2])
    assert not merged["valid"] and "at the same time for 85.0 % of their windows only" in merged["reasons"][0]
    late[1]["measure_from_clock_ns"] += round(WINDOW_S * 1e9)
    with pytest.raises(LabError, match="did not measure at the same time at all"):
        merged_summary(late, NAMES[:2])


def test_one_invalid_generator_makes_all_invalid_and_is_named():
    content = parts(1000.0, 1000.0)
    content[1] |= {"valid": False, "reasons": ["3 values were wrong"]}
    content[1]["verification"]["wrong"] = 3
    content[1]["errors"] = {"SERVER_ERROR": 2}
    merged = merged_summary(content, NAMES[:2])
    assert not merged["valid"] and merged["reasons"] == ["load-1.json: 3 values were wrong"]
    assert merged["verification"]["wrong"] == 3 and merged["errors"] == {"SERVER_ERROR": 2}
