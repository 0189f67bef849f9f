"""Contrasts adjusted for the speed of the machine: the slope, when there is none, and what an adjustment gains."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest
from honesty_covariate import Machine, campaign
from made import made_trial
from scipy.special import stdtrit

from waylab.analysis.across.answer.facts import _speed
from waylab.analysis.across.contrasts.model import metric_model
from waylab.analysis.across.contrasts.two_levels import largest_effect
from waylab.analysis.statistics.blocks import fit_blocks
from waylab.analysis.statistics.covariate import adjusted_contrast, slope
from waylab.analysis.trial.cpu import _probe_ns
from waylab.errors import LabError
from waylab.plan import make_plan
from waylab.run.speed import SpeedProbe
from waylab.run.telemetry import PROBE_COLUMNS, Telemetry
from waylab.spec import read_spec


class NoHosts:
    samples = False

    def counters(self):
        return []

    def link_programs(self):
        return []


def test_without_noise_the_slope_and_the_contrast_are_exact():
    made = campaign(np.random.default_rng(1), Machine(own=0.0, probe=0.0), 4, 4)
    found = slope(made.names, made.places, made.values, made.probes)
    assert found.estimate == pytest.approx(-0.9) and found.error == pytest.approx(0, abs=1e-6)
    assert found.degrees == 4 * 4 - 4 - 4 + 1 - 1
    assert made.adjusted().estimate == pytest.approx(math.log(1.07))


def test_the_slope_of_known_data_is_that_of_least_squares():
    made = campaign(np.random.default_rng(2), Machine(), 5, 4)
    found = slope(made.names, made.places, made.values, made.probes)
    # The same by one least-squares fit with a column for the covariate.
    columns = [[float(name == one) for name in made.names] for one in dict.fromkeys(made.names)]
    columns += [[float(place == one) for place in made.places] for one in set(made.places)]
    columns.append([math.log(probe) for probe in made.probes])
    matrix, logs = np.array(columns).T, np.log(made.values)
    coefficients, *_ = np.linalg.lstsq(matrix, logs, rcond=None)
    left = logs - matrix @ coefficients
    assert found.estimate == pytest.approx(coefficients[-1], rel=1e-6)
    variance = np.linalg.pinv(matrix.T @ matrix)[-1, -1] * left @ left / found.degrees
    assert found.error == pytest.approx(math.sqrt(variance), rel=1e-6)


@pytest.mark.parametrize(
    ("configurations", "blocks", "machine"),
    [
        (2, 3, Machine()),  # too few degrees of freedom
        (8, 3, Machine(speed=0.0, probe=0.0)),  # the covariate never changes
        (8, 3, Machine(disturbs=0.5)),  # the configurations change the covariate
    ],
)
def test_there_is_no_slope(configurations, blocks, machine):
    made = campaign(np.random.default_rng(3), machine, configurations, blocks)
    assert slope(made.names, made.places, made.values, made.probes) is None
    assert made.adjusted() == made.plain()


def test_a_contrast_of_all_configurations_has_the_error_and_the_degrees_of_least_squares():
    made = campaign(np.random.default_rng(7), Machine(), 2, 9)
    found = made.adjusted()
    # Differences within blocks, as a straight line of the differences of the covariate (Montgomery, 15.3).
    rows = list(zip(made.places, made.names, made.values, made.probes, strict=True))
    pairs = [{name: (value, probe) for at, name, value, probe in rows if at == place} for place in range(9)]
    logs = np.array([math.log(pair["c1"][0] / pair["c0"][0]) for pair in pairs])
    probes = np.array([math.log(pair["c1"][1] / pair["c0"][1]) for pair in pairs])
    matrix = np.array([np.ones(9), probes]).T
    coefficients, squares, *_ = np.linalg.lstsq(matrix, logs, rcond=None)
    error = math.sqrt(squares[0] / 7 * np.linalg.inv(matrix.T @ matrix)[0, 0])
    assert found.degrees == 7
    assert found.estimate == pytest.approx(coefficients[0]) and found.error == pytest.approx(error)


def test_the_squares_of_some_configurations_lose_their_share_of_the_degree_of_the_slope():
    random, ratios = np.random.default_rng(8), []
    for _ in range(2000):
        made = campaign(random, Machine(probe=0.0), 3, 5)
        found = slope(made.names, made.places, made.values, made.probes)
        if found:
            kept = [place for place, name in enumerate(made.names) if name != "c2"]
            columns = [
                [one[at] for at in kept] for one in (made.names, made.places, made.values, made.probes)
            ]
            without = replace(found, error=0.0)
            ratios.append((adjusted_contrast(*columns, without, {"c1": 1.0, "c0": -1.0}).error / 0.02) ** 2)
    # The variance of a difference of two means of five values.
    assert np.mean(ratios) == pytest.approx(2 / 5, rel=0.05)


def test_the_half_widths_of_the_contrast_and_of_the_slope_add_up_in_quadrature():
    made = campaign(np.random.default_rng(10), Machine(), 8, 3)
    found = slope(made.names, made.places, made.values, made.probes)
    kept = [place for place, name in enumerate(made.names) if name in ("c0", "c1")]
    columns = [[one[at] for at in kept] for one in (made.names, made.places, made.values, made.probes)]
    weights = {"c1": 1.0, "c0": -1.0}
    both, without = (adjusted_contrast(*columns, one, weights) for one in (found, replace(found, error=0.0)))
    halves = [(high - low) / 2 for low, high in (both.interval(), without.interval())]
    distance = fit_blocks(*columns[:2], columns[3]).contrast(weights).estimate
    expected = math.hypot(halves[1], stdtrit(found.degrees, 0.975) * distance * found.error)
    assert found.degrees == 13 and both.degrees == 2
    assert halves[0] == pytest.approx(expected)


def test_a_steep_slope_does_not_leave_the_range_of_numbers():
    made = campaign(np.random.default_rng(9), Machine(speed=0.0, probe=1e-4, own=0.05), 8, 3)
    steep = replace(slope(made.names, made.places, made.values, made.probes), estimate=-80.0)
    columns = made.names, made.places, made.values
    found = adjusted_contrast(*columns, made.probes, steep, {"c1": 1.0, "c0": -1.0})
    small = [probe / 1e6 for probe in made.probes]
    expected = adjusted_contrast(*columns, small, steep, {"c1": 1.0, "c0": -1.0})
    assert found.estimate == pytest.approx(expected.estimate) and found.error == pytest.approx(expected.error)


def test_the_interval_becomes_about_half_as_wide():
    random, widths = np.random.default_rng(4), []
    for _ in range(200):
        made = campaign(random, Machine(), 8, 4)
        (low, high), (plain_low, plain_high) = made.adjusted().interval(), made.plain().interval()
        widths.append((high - low) / (plain_high - plain_low))
    assert 0.45 < np.median(widths) < 0.65


def trials_of(made, with_probe=True):
    return [
        made_trial(
            {"c": name},
            block=place,
            throughput_per_s=value,
            cpu={"probe_ns": probe} if with_probe else {},
        ).content
        for name, place, value, probe in zip(made.names, made.places, made.values, made.probes, strict=True)
    ]


def test_a_ratio_is_adjusted_if_every_trial_has_measured_the_speed():
    made = campaign(np.random.default_rng(5), Machine(), 8, 4)
    of, to = {"c": ["c1"]}, {"c": ["c0"]}
    adjusted, plain = (
        metric_model(trials_of(made, with_probe), "throughput_per_s").ratio(of, to)
        for with_probe in (True, False)
    )
    assert math.log(adjusted.ratio) == pytest.approx(made.adjusted().estimate)
    assert (math.log(adjusted.low), math.log(adjusted.high)) == pytest.approx(made.adjusted().interval())
    assert (math.log(plain.low), math.log(plain.high)) == pytest.approx(made.plain().interval())
    some = [*trials_of(made)[:-1], trials_of(made, with_probe=False)[-1]]
    assert metric_model(some, "throughput_per_s").speed is None
    assert metric_model([], "throughput_per_s").speed is None


def test_the_share_of_an_effect_has_the_adjusted_variation_below_it():
    """One of four configurations differs, so that both factors and their interaction explain a third each."""
    made = campaign(np.random.default_rng(11), Machine(own=0.0, probe=0.0), 4, 4)
    levels = {"c0": ("1", "1"), "c1": ("1", "2"), "c2": ("2", "1"), "c3": ("2", "2")}
    trials = [
        made_trial(
            dict(zip(("a", "b"), levels[name], strict=True)),
            block=place,
            throughput_per_s=value,
            cpu={"probe_ns": probe},
        ).content
        for name, place, value, probe in zip(made.names, made.places, made.values, made.probes, strict=True)
    ]
    found = largest_effect("throughput_per_s", "a", {}, trials)
    assert found.mine == pytest.approx(math.sqrt(1.07))
    assert found.share == pytest.approx(1 / 3)


def test_the_report_says_that_ratios_are_adjusted_or_why_not():
    class Content:
        pass

    content = Content()
    content.trials = trials_of(campaign(np.random.default_rng(6), Machine(), 8, 4))
    assert "Ratios are adjusted" in _speed(content)[0] and "throughput changes by -0." in _speed(content)[0]
    content.trials = trials_of(campaign(np.random.default_rng(6), Machine(), 2, 3))
    assert "not adjusted" in _speed(content)[0]
    content.trials = trials_of(campaign(np.random.default_rng(6), Machine(), 8, 4), with_probe=False)
    assert _speed(content) == []


def test_the_telemetry_of_a_trial_has_the_mean_cpu_time_of_the_probe(tmp_path):
    probe = SpeedProbe()
    with Telemetry(tmp_path, [], NoHosts(), None, probe) as telemetry:
        for _ in range(20):
            telemetry.sample()
    with (tmp_path / "machine.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    clocks = [int(row["clock_ns"]) for row in rows]
    assert [int(row["probes"]) for row in rows] == list(range(1, 22))
    found_ns = _probe_ns(tmp_path, (clocks[0], clocks[-1]))
    spent_s = float(rows[-1]["probe_cpu_s"]) - float(rows[0]["probe_cpu_s"])
    assert found_ns == pytest.approx(1e9 * spent_s / 20, rel=1e-6) and found_ns > 10_000
    (tmp_path / "machine.csv").write_text("clock_ns,capacity_s\n1,2\n", encoding="utf-8")
    with pytest.raises(LabError, match="has no columns probes and probe_cpu_s; measure again"):
        _probe_ns(tmp_path, (1, 2))


def test_without_a_covariate_the_probe_does_not_run(tmp_path):
    with Telemetry(tmp_path, [], NoHosts()) as telemetry:
        telemetry.sample()
    with (tmp_path / "machine.csv").open(encoding="utf-8") as file:
        assert not set(PROBE_COLUMNS) & set(next(csv.reader(file)))


def test_the_design_names_the_covariate(tmp_path):
    text = (
        'question = "q"\nhypothesis = "h"\nname = "n"\n[[refuted_by]]\nmetric = "failed_trials"\nabove = 0\n'
    )
    path = tmp_path / "n.toml"
    path.write_text(text + '[design]\ncovariate = "machine_speed"\n', encoding="utf-8")
    assert {trial.covariate for trial in make_plan(read_spec(path)).trials} == {"machine_speed"}
    path.write_text(text + '[design]\ncovariate = "speed"\n', encoding="utf-8")
    with pytest.raises(LabError, match=r"design\.covariate"):
        read_spec(path)
