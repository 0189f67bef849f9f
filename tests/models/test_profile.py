"""Loads that change over time: the simulation against known queues, profiles and arrivals as users write them."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.linalg import expm
from test_fit_runs import BACKEND_S, run_of_known_truth, settings

from waylab.cli.fit.profile import predict
from waylab.errors import LabError
from waylab.fit.interface import RefusedFitError
from waylab.fit.layered import LayeredModel
from waylab.fit.layered.network import Centre, CycleNetwork, solve_cycles
from waylab.models.elementary import MMm
from waylab.predict.profile import (
    Bursts,
    Phase,
    arrival_times,
    fit_bursts,
    predict_profile,
    read_arrivals,
    read_profile,
)
from waylab.predict.profile.simulation import Outage, simulate_passages
from waylab.predict.runs import fit_runs
from waylab.predict.runs.frames import profile_frame

MANY = 10**6


def queue(clients: int = MANY, slots: int = 0, time_s: float = 1.0, name: str = "backends") -> CycleNetwork:
    """One exponential server without anything else."""
    return CycleNetwork((Centre(name, 1, 1, 1, time_s, time_s, inside=True),), (), 0.0, clients, slots=slots)


def times(network: CycleNetwork, rate: float, length_s: float, seed: int = 1) -> np.ndarray:
    """Response times under Poisson arrivals, without the first tenth."""
    random = np.random.default_rng(seed)
    found = simulate_passages(network, arrival_times([Phase(length_s, rate)], random), random)
    return (found.done_s - found.due_s)[found.due_s.size // 10 :]


def test_one_server_is_mm1_in_mean_and_percentile():
    found = times(queue(), 0.8, 500_000)
    assert found.mean() == pytest.approx(5, rel=0.04)
    assert np.quantile(found, 0.95) == pytest.approx(-math.log(0.05) * 5, rel=0.04)


@pytest.mark.parametrize("limit", ["clients", "slots"])
def test_a_limit_of_requests_in_flight_is_mmm(limit: str):
    endless = (Centre("service", MANY, 1, 1, 1.0, 1.0, inside=True),)
    network = CycleNetwork(endless, (), 0.0, 5 if limit == "clients" else MANY, slots=5 * (limit == "slots"))
    assert times(network, 4.0, 60_000).mean() == pytest.approx(MMm(4.0, 1.0, 5).response_mean_s, rel=0.04)


def test_a_constant_load_agrees_with_the_solver_on_shared_cores_with_batches_and_replicas():
    centres = (
        Centre("load", 1, 1, 1, 8e-6, 12e-6, "machine"),
        Centre("proxy", 1, 1, 1, 20e-6, 35e-6, "machine"),
        Centre("backends", 3, 1.0, 1.0, 20e-6, 30e-6, "machine", inside=True),
    )
    network = CycleNetwork(centres, (("machine", 2.0),), 100e-6, 1000, rate_per_s=15_000.0)
    expected = solve_cycles([network]).response_s[0]
    assert times(network, 15_000, 20).mean() == pytest.approx(expected, rel=0.08)


@pytest.mark.parametrize("rate", [50.0, 150.0])
def test_work_alone_on_a_host_with_a_quota_runs_at_full_speed(rate: float):
    """A fifth of a core: M/G/1 with exceptional first service (Welch, Operations Research 12, 1964)."""
    alone_s, queued_s = 1e-3, 5e-3
    centres = (Centre("proxy", 1, 1, 1, alone_s, alone_s, "middleware"),)
    network = CycleNetwork(centres, (("middleware", 0.2),), 0.0, MANY, quotas=(("middleware", 1),))
    spare = 1 - rate * queued_s
    wait_s = rate * queued_s**2 / spare + rate * (alone_s**2 - queued_s**2) / (spare + rate * alone_s)
    idle = spare / (spare + rate * alone_s)
    expected = wait_s + idle * alone_s + (1 - idle) * queued_s
    assert times(network, rate, 100_000 / rate).mean() == pytest.approx(expected, rel=0.06)


def mmpp_response_s(rates: tuple[float, float], lengths_s: tuple[float, float]) -> float:
    """Mean response time of MMPP/M/1 with service rate 1, by Neuts' rate matrix."""
    switches = np.array([[-1 / lengths_s[0], 1 / lengths_s[0]], [1 / lengths_s[1], -1 / lengths_s[1]]])
    up, down = np.diag(rates), np.eye(2)
    local = switches - up - down
    ratio = np.zeros((2, 2))
    for _ in range(20_000):
        new = -(up + ratio @ ratio @ down) @ np.linalg.inv(local)
        if np.abs(new - ratio).max() < 1e-13:
            break
        ratio = new
    # pi_0 (B + R A_2) = 0 with pi_0 (I - R)^-1 1 = 1.
    balance = (switches - up + ratio @ down).T
    rest = np.linalg.inv(np.eye(2) - ratio)
    system = np.vstack([balance, rest.sum(axis=1)])
    empty = np.linalg.lstsq(system, np.array([0.0, 0.0, 1.0]), rcond=None)[0]
    present = empty @ ratio @ rest @ rest @ np.ones(2)
    share = lengths_s[0] / sum(lengths_s)
    return float(present / (share * rates[0] + (1 - share) * rates[1]))


@pytest.mark.parametrize(
    ("factors", "lengths_s"),
    [((1.0, 1.0), (5.0, 5.0)), ((2.0, 0.5), (20.0, 40.0)), ((5.0, 0.0), (3.0, 12.0))],
)
def test_bursts_before_one_server_agree_with_the_rate_matrix(factors, lengths_s):
    bursts, rate = Bursts(factors, lengths_s), 0.6
    random = np.random.default_rng(4)
    due = arrival_times([Phase(700_000, rate)], random, bursts)
    assert due.size / 700_000 == pytest.approx(rate, rel=0.02)
    found = simulate_passages(queue(), due, random)
    exact = mmpp_response_s((rate * factors[0], rate * factors[1]), lengths_s)
    if factors == (1.0, 1.0):
        assert exact == pytest.approx(1 / (1 - rate))
    assert (found.done_s - found.due_s).mean() == pytest.approx(exact, rel=0.05)


def test_a_change_of_load_agrees_with_the_transient_of_mm1():
    """The number present after 30 s at half the capacity and 20 s beyond it, by Kolmogorov's equations."""
    phases = [Phase(30, 0.5), Phase(20, 1.5)]
    shares = np.zeros(151)
    shares[0] = 1
    for one in phases:
        rates = np.diag(np.full(150, one.rate_per_s), 1) + np.diag(np.ones(150), -1)
        shares = shares @ expm((rates - np.diag(rates.sum(axis=1))) * one.length_s)
    random = np.random.default_rng(2)
    present = []
    for _ in range(1500):
        found = simulate_passages(queue(), arrival_times(phases, random), random)
        present.append((found.done_s > 50).sum())
    assert np.mean(present) == pytest.approx(shares @ np.arange(151), rel=0.05)


def test_an_outage_without_a_timeout_leaves_a_backlog_that_the_spare_capacity_serves():
    random = np.random.default_rng(1)
    due = arrival_times([Phase(60, 500.0)], random)
    found = simulate_passages(queue(time_s=1e-3), due, random, [Outage(20, 30, 1)])
    response = found.done_s - found.due_s
    # 5000 requests wait at 30 s, and 500 more are served each second than arrive.
    assert response.max() == pytest.approx(10, rel=0.03)
    assert due[response > 0.1].max() == pytest.approx(40, rel=0.03)
    assert not found.lost.any()


def test_a_timeout_fails_the_requests_in_flight_and_then_all_until_the_server_is_back():
    random = np.random.default_rng(1)
    due = arrival_times([Phase(60, 500.0)], random)
    found = simulate_passages(queue(time_s=1e-3), due, random, [Outage(20, 30, 1)], timeout_s=1.0)
    lost = due[found.lost]
    assert lost.min() == pytest.approx(20, abs=0.1) and 30 <= lost.max() <= 30.8
    assert (found.done_s - due)[found.lost].max() == pytest.approx(1.0, abs=0.02)
    # A request that reaches the ejected server fails at once.
    later = found.lost & (due > 22)
    assert (found.done_s - due)[later].max() < 1e-6
    assert found.lost[(due > 20.1) & (due < 30)].all()


def test_an_outage_shorter_than_the_timeout_loses_nothing():
    random = np.random.default_rng(1)
    due = arrival_times([Phase(20, 300.0)], random)
    found = simulate_passages(queue(time_s=1e-3), due, random, [Outage(5, 5.9, 1)], timeout_s=1.0)
    assert not found.lost.any()
    assert (found.done_s - due).max() == pytest.approx(0.9, rel=0.1)


def test_one_frozen_server_stops_all_clients_until_its_requests_have_timed_out():
    """Each client waits for one reply: soon all of them wait for the frozen server."""
    centres = (Centre("backends", 3, 1, 1, 1e-4, 1e-4, inside=True),)
    random = np.random.default_rng(1)
    due = arrival_times([Phase(10, 1000.0)], random)
    network = CycleNetwork(centres, (), 0.0, 8)
    found = simulate_passages(network, due, random, [Outage(4, 8, 1)], timeout_s=1.0)
    stopped = (due > 4.1) & (due < 4.9)
    assert (found.done_s[stopped] > 4.99).mean() > 0.99
    # Then the others are served, and a third of the requests fails.
    after = (due > 6) & (due < 8)
    assert (found.done_s - due)[after].max() < 0.01
    assert found.lost[after].mean() == pytest.approx(1 / 3, abs=0.03)


def test_recorded_bursts_are_recognised():
    truth = Bursts((3.0, 0.5), (0.5, 2.0))
    found = fit_bursts(arrival_times([Phase(2000, 100.0)], np.random.default_rng(3), truth))
    assert found is not None
    assert found.dispersion == pytest.approx(truth.dispersion, rel=0.3)
    assert found.factors == pytest.approx(truth.factors, rel=0.25)
    assert found.lengths_s == pytest.approx(truth.lengths_s, rel=0.4)


def test_poisson_arrivals_have_no_bursts():
    found = [
        fit_bursts(arrival_times([Phase(200, 100.0)], np.random.default_rng(seed))) for seed in range(20)
    ]
    # What is found by chance is small.
    assert sum(one is not None for one in found) <= 4
    assert all(one is None or one.dispersion < 2 for one in found)


@pytest.mark.parametrize(
    "times_s",
    [
        [1.0] * 1500 + [2.0],
        [1.0] * 999 + [1e300, -1e300],
        list(np.arange(1000) * 1e-3) + list(500 + np.arange(1000) * 1e-3),
    ],
)
def test_arrivals_that_are_no_bursts_are_one_line(times_s: list[float]):
    with pytest.raises(LabError, match="do not look like bursts"):
        fit_bursts(np.sort(times_s))


def test_recorded_arrivals_that_are_none_are_one_line(tmp_path: Path):
    path = tmp_path / "arrivals"
    with pytest.raises(LabError, match="no such file"):
        read_arrivals(path)
    with pytest.raises(LabError, match="cannot be read"):
        read_arrivals(tmp_path)
    path.write_bytes(b"\xff\xfe1")
    with pytest.raises(LabError, match="UTF-8"):
        read_arrivals(path)
    for text in ("1\nsoon\n", "nan\n", "1e999\n"):
        path.write_text(text)
        with pytest.raises(LabError, match=r"arrivals:\d: .* is not a time in seconds"):
            read_arrivals(path)
    path.write_text("1\n\n0.5\n")
    assert read_arrivals(path).tolist() == [0.5, 1]
    with pytest.raises(LabError, match="2 recorded arrivals are too few"):
        fit_bursts(read_arrivals(path))
    with pytest.raises(LabError, match="the same time"):
        fit_bursts(np.ones(2000))


def test_a_profile_is_read_as_users_write_it():
    found = read_profile("60s at 20k, 30s outage of one server, 500ms at 1.5M/s, 1m outage of 2 servers")
    assert found == (
        Phase(60, 20_000),
        Phase(30, 20_000, 1),
        Phase(0.5, 1_500_000),
        Phase(60, 1_500_000, 2),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no phase"),
        ("60s", "no rate"),
        ("30s outage of one server", "no rate"),
        ("60s at many", "a number such as 20k"),
        ("60s at 0", "a number such as 20k"),
        ("60s at nan", "a number such as 20k"),
        ("60s at 1e999", "a number such as 20k"),
        ("60 at 20k", "no phase"),
        ("-5s at 20k", "no phase"),
        ("0s at 20k", "more than 0"),
        ("9999m at 1", "at most 3600"),
        ("1s at 5 outage of some servers", "no number of servers"),
        ("1s at 5 outage of 0 servers", "no number of servers"),
        ("1s at 5 outage of ٣ servers", "no number of servers"),
        (", ".join(["1s at 5"] * 51), "too many"),
    ],
)
def test_a_wrong_profile_is_one_line(text: str, words: str):
    with pytest.raises(LabError, match=f"--profile.*{words}") as error:
        read_profile(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("profile", "arrivals", "page", "words"),
    [
        (None, Path("x"), None, "--arrivals needs --profile"),
        ("1s at 5", None, Path("x"), "leave out --profile or --page"),
        ("1s at 5", Path("/dev/null/none"), None, "cannot be read"),
    ],
)
def test_wrong_arguments_are_one_line_before_models_are_fitted(profile, arrivals, page, words):
    arguments = SimpleNamespace(profile=profile, arrivals=arrivals, page=page)
    with pytest.raises(LabError, match=words):
        predict(arguments)


@pytest.fixture(scope="module")
def fitted():
    """The layered model, fitted to a known network."""
    known = [one for one in run_of_known_truth(2) if one.role == "calibration"]
    return fit_runs(known, models=[LayeredModel()])


def test_a_fitted_network_shows_overload_and_its_end(fitted):
    found = predict_profile(fitted, settings(64, 1), read_profile("1s at 15k, 1s at 50k, 3s at 15k"))
    # One server can serve 33 333/s: 16 667 requests wait at 2 s, and 18 333 more are served each second.
    assert found.capacity_per_s == pytest.approx(1 / BACKEND_S, rel=0.05)
    (recovery,) = found.recoveries
    assert (recovery.disturbance, recovery.ended_s) == ("overload", 2.0)
    assert recovery.normal_s == pytest.approx(2.91, abs=0.25)
    assert max(one.present for one in found.windows) == pytest.approx(16_700, rel=0.1)
    assert found.lost == 0 and len(profile_frame(found)) == len(found.windows)


def test_a_fitted_network_shows_an_outage(fitted):
    found = predict_profile(
        fitted, settings(64, 3), read_profile("1s at 15k, 300ms outage of one server, 1s at 15k")
    )
    (recovery,) = found.recoveries
    assert recovery.disturbance == "outage" and recovery.ended_s == pytest.approx(1.3)
    assert recovery.normal_s is not None and recovery.normal_s - recovery.ended_s < 0.5
    assert max(one.response_s for one in found.windows) > 0.1


@pytest.mark.parametrize(
    ("profile", "error", "words"),
    [
        ("1s at 100k", LabError, "can serve 3.*fewer than arrive in every phase"),
        ("3000s at 20k", LabError, "60,000,000 requests are more than"),
        (
            "1s at 5k, 1s outage of two servers",
            LabError,
            "an outage of 2 servers, but the configuration has 1; freeze fewer",
        ),
    ],
)
def test_a_profile_that_cannot_be_simulated_is_one_line(fitted, profile: str, error: type, words: str):
    with pytest.raises(error, match=words):
        predict_profile(fitted, settings(64, 1), read_profile(profile))


def test_a_setting_without_a_measured_effect_is_refused(fitted):
    with pytest.raises(RefusedFitError, match="measure a second level"):
        predict_profile(fitted, settings(64, 1, value_bytes=4096), read_profile("1s at 5k"))
