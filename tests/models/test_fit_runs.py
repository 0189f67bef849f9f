"""Models fitted to runs: known truth, held-out configurations, refusals."""

import dataclasses
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from known_runs import BACKEND_S, DELAY_S, LOAD_S, PROXY_S, measured, settings

from waylab.cli.fit import capacity as command
from waylab.cli.fit.capacity import costs_of
from waylab.cli.fit.capacity_judge import summary
from waylab.cli.fit.capacity_words import goal_of
from waylab.errors import LabError
from waylab.fit.interface import Estimate, RefusedFitError
from waylab.fit.layered import LayeredModel
from waylab.fit.layered.network import Centre, CycleNetwork, solve_cycles
from waylab.fit.observations import (
    TrialObservation,
    base_settings,
    changed_settings,
    observe,
    usable,
)
from waylab.fit.observations.trials import _without_contradictions
from waylab.models import closed_network, solve
from waylab.predict.held_out import came_true
from waylab.predict.runs import (
    CapacityGoal,
    explain_run,
    fit_runs,
    judge_capacity,
    judge_runs,
    plan_capacity,
)
from waylab.predict.runs.chosen import _of_mean, one_sided
from waylab.predict.runs.frames import (
    capacity_frame,
    explanation_frame,
    observations_frame,
    predictions_frame,
)

KNOWN = [settings(clients, servers) for servers in (1, 3) for clients in (2, 8, 32)]
HELD = [settings(clients, servers) for servers in (1, 3, 5) for clients in (4, 16, 64)]


def run_of_known_truth(seed: int, noise: float = 0.02) -> list[TrialObservation]:
    """Two trials of each calibration configuration and one of each held-out one."""
    random = np.random.default_rng(seed)
    found = [measured(one, random, noise, "calibration", block=block) for one in KNOWN for block in (1, 2)]
    return found + [measured(one, random, noise, "held-out", block=3) for one in HELD]


def test_the_solver_agrees_with_the_exact_one():
    for clients, servers in ((1, 1), (8, 3), (64, 5)):
        demands = {"load": LOAD_S, "proxy": PROXY_S} | {f"s{k}": BACKEND_S / servers for k in range(servers)}
        exact = solve(closed_network(demands, population=clients, think_s=DELAY_S)).throughput_total_per_s
        centres = (
            Centre("load", 1, 1, 1, LOAD_S, LOAD_S, "machine"),
            Centre("proxy", 1, 1, 1, PROXY_S, PROXY_S, "machine"),
            Centre("backends", servers, 1, 1, BACKEND_S, BACKEND_S, "machine"),
        )
        found = solve_cycles([CycleNetwork(centres, (("machine", 64.0),), DELAY_S, clients)])
        assert found.throughput_per_s[0] == pytest.approx(exact, rel=1e-6)


def test_shared_cores_limit_throughput_to_what_they_can_do():
    centres = tuple(
        Centre(name, 1, 1, 1, 100e-6, 100e-6, "machine") for name in ("load", "proxy", "backends")
    )
    alone = solve_cycles([CycleNetwork(centres, (("machine", 64.0),), 0.0, 64)]).throughput_per_s[0]
    shared = solve_cycles([CycleNetwork(centres, (("machine", 2.0),), 0.0, 64)])
    assert alone == pytest.approx(10_000, rel=0.05)
    assert shared.throughput_per_s[0] == pytest.approx(2 / 300e-6, rel=0.05)
    assert shared.host_use[0, 0] == pytest.approx(1.0, abs=0.05)


def test_a_pool_whose_slots_are_held_limits_what_is_inside():
    centres = (
        Centre("proxy", 1, 1, 1, 1e-6, 1e-6),
        Centre("service", 1000, 1, 1, 1e-3, 1e-3, inside=True),
    )
    found = solve_cycles([CycleNetwork(centres, (), 1e-3, 200, slots=10)])
    assert found.throughput_per_s[0] == pytest.approx(10_000, rel=0.03)
    assert found.waiting[0] == pytest.approx(180, rel=0.05)


def test_an_open_network_of_one_queue_is_mm1():
    centres = (Centre("only", 1, 1, 1, 1e-3, 1e-3),)
    found = solve_cycles([CycleNetwork(centres, (), 0.0, 1, rate_per_s=800.0)])
    assert found.response_s[0] == pytest.approx(5e-3, rel=1e-4)
    assert not solve_cycles([CycleNetwork(centres, (), 0.0, 1, rate_per_s=1100.0)]).steady[0]


def test_the_fit_recovers_a_known_network():
    observations = [one for one in run_of_known_truth(3) if one.role == "calibration"]
    fitted = LayeredModel().fit(observations)
    random = np.random.default_rng(0)
    for one in HELD:
        truth = measured(one, random, 0.0)
        assert fitted.predict(one).throughput_per_s.value == pytest.approx(truth.throughput_per_s, rel=0.05)


def test_intervals_contain_the_measurement_as_often_as_they_say():
    inside, total, widths = 0, 0, []
    for seed in range(8):
        observations = run_of_known_truth(seed)
        known = [one for one in observations if one.role == "calibration"]
        fitted = fit_runs(known, models=[LayeredModel()])
        for one in observations:
            if one.role == "held-out":
                found = fitted.predict(one.settings)
                inside += bool(found.throughput_per_s.contains(one.throughput_per_s))
                widths.append(found.throughput_per_s.high / found.throughput_per_s.low - 1)
                total += 1
    # Over 30 such runs, 91 % of 270 are inside; eight runs vary by several percent.
    assert total == 72 and inside / total >= 0.83
    # The noise alone needs 3.3 % on each side.
    assert np.median(widths) < 0.15


def test_no_interval_is_narrower_than_the_measurement_varies_by_itself():
    """The mean of n trials varies by the deviation of a trial over the root of n, however good the model is."""
    for trials in (1, 4, 9):
        assert _of_mean(0.05, 0.05, trials) >= 0.999 * 0.05 / math.sqrt(trials)


def test_a_count_that_was_never_varied_widens_the_interval():
    """Two proxies were never measured, so that only the structure of the model says what they do."""
    known = [one for one in run_of_known_truth(2) if one.role == "calibration"]
    layered = LayeredModel().fit(known)
    assert layered.discrepancy(settings(8, 5)) == 0
    two, four = (layered.discrepancy(settings(8, 3, proxies=count)) for count in (2, 4))
    assert 0.03 < two < four < 0.15
    assert layered.predict(settings(8, 3, proxies=2)).uncertainty[0] > two


def test_inner_configurations_that_would_be_refused_say_nothing_about_the_models():
    """Without the written ones, all trials have one share of writes."""
    random = np.random.default_rng(5)
    sizes = [(clients, share) for clients in (2, 8, 32) for share in (0.0, 0.5)]
    known = [measured(settings(clients, 1, writes_share=share), random, 0.02) for clients, share in sizes]
    fitted = fit_runs(known)
    assert {one.measured.settings.clients for one in fitted.pairs} == {2, 8, 32}
    assert all("layered" in one.predicted for one in fitted.pairs)


def test_held_out_configurations_are_judged_and_rows_have_the_names_of_tables():
    (fitted,), judged = judge_runs(run_of_known_truth(1))
    chosen = [one for one in judged if one.model == "chosen"]
    assert len(chosen) == len(HELD)
    row = chosen[0].as_row()
    assert row["throughput_predicted_per_s"] == pytest.approx(row["throughput_measured_per_s"], rel=0.1)
    assert {one.model for one in judged} >= {"chosen", "layered", "chain", "nearest", "usl", "mm1", "mmm"}
    assert sum(fitted.weights(interpolates=False).values()) == pytest.approx(1)


def test_a_run_that_holds_out_nothing_is_one_line():
    with pytest.raises(LabError, match=r"\[predict\]"):
        judge_runs([dataclasses.replace(one, role="") for one in run_of_known_truth(1)])


def test_too_few_configurations_and_one_load_are_refused():
    random = np.random.default_rng(0)
    two = [measured(settings(clients, 1), random, 0.0) for clients in (1, 8)]
    with pytest.raises(RefusedFitError, match="too few"):
        fit_runs(two)
    one_load = [measured(settings(8, servers), random, 0.0) for servers in (1, 2, 3)]
    with pytest.raises(RefusedFitError, match="two different"):
        fit_runs(one_load, models=[LayeredModel()])


def test_a_constant_factor_cannot_be_predicted():
    observations = [one for one in run_of_known_truth(1) if one.role == "calibration"]
    fitted = fit_runs(observations, models=[LayeredModel()])
    with pytest.raises(RefusedFitError, match=r"value_bytes.*measure a second level"):
        fitted.predict(settings(8, 3, value_bytes=4096))


def test_trials_that_contradict_each_other_are_refused():
    random = np.random.default_rng(0)
    first = measured(settings(8, 1), random, 0.0)
    second = dataclasses.replace(first, throughput_per_s=4 * first.throughput_per_s)
    found = _without_contradictions([first, second])
    assert all("contradict" in one.refused for one in found)
    with pytest.raises(LabError, match="contradict"):
        usable(found)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"clients": "many"}, "clients.*'many'.*number from 1"),
        ({"srvers": "3"}, "did you mean server"),
        ({"clients": "0"}, "not a value"),
        ({"clients": "٣"}, "not a value"),
        ({"clients": "1_0"}, "not a value"),
        ({"replicas": "5"}, "only 3 servers"),
        ({"connections": "4"}, "the measured system has none"),
    ],
)
def test_a_wrong_change_is_one_line(change: dict[str, str], words: str):
    with pytest.raises(LabError, match=words):
        changed_settings(settings(8, 3), change)


def test_changes_are_read_as_users_write_them():
    base = base_settings([one for one in run_of_known_truth(1) if one.role == "calibration"])
    found = changed_settings(
        base, {"clients": "500", "backends": "7", "replicas": "half", "ratio": "1:4", "value": "4k"}
    )
    assert (found.clients, found.servers, found.replicas, found.writes_share, found.value_bytes) == (
        500,
        7,
        4,
        0.2,
        4096,
    )
    assert changed_settings(base, {"think": "exp:2ms", "rate": "20k"}).rate_per_s == 20_000


@pytest.fixture(scope="module")
def known_fit():
    """The layered model alone, fitted to a known network."""
    known = [one for one in run_of_known_truth(2) if one.role == "calibration"]
    return fit_runs(known, models=[LayeredModel()])


def test_the_parts_of_an_explanation_add_up_to_the_blended_prediction(known_fit, monkeypatch):
    """The response time of the choice is not that of the layered model alone."""
    layered = known_fit.predict(settings(8, 3))
    blended = dataclasses.replace(layered, response_s=Estimate(1.5 * layered.response_s.value))
    monkeypatch.setattr(type(known_fit), "predict", lambda *_: blended)
    found = explain_run(known_fit, settings(8, 3))
    assert sum(part.time_s for part in found.parts) == pytest.approx(blended.response_s.value)


def test_the_explanation_names_the_known_bottleneck(known_fit):
    found = explain_run(known_fit, settings(32, 1))
    assert found.limits[0].name == "backends"
    assert found.limits[0].throughput_per_s == pytest.approx(1 / BACKEND_S, rel=0.06)
    assert found.parts[0].name == "backends"
    assert sum(part.share for part in found.parts) == pytest.approx(1)
    assert sum(part.time_s for part in found.parts) == pytest.approx(found.prediction.response_s.value)
    assert found.gains[0].change == "one more server (2)"
    # The proxy is next: 1 / 20 us against 1 / 30 us.
    assert found.gains[0].throughput.value == pytest.approx(1.45, abs=0.1)
    assert found.knee_clients is not None and 4 <= found.knee_clients <= 16


def test_capacity_proposes_the_cheapest_that_holds(known_fit):
    base = settings(1, 1, rate_per_s=40_000.0)
    found = plan_capacity(known_fit, base, CapacityGoal("mean", 400e-6), {"servers": 1.0})
    # One server can do 33 333 requests per second.
    assert found.options[0].settings.servers == 2
    assert found.options[0].probability >= 0.9
    assert found.cheaper[0].settings.servers == 1 and found.cheaper[0].probability < 0.1
    assert found.next_run is not None and found.next_run.after <= found.next_run.before
    with pytest.raises(LabError, match="no configuration meets the goal"):
        plan_capacity(known_fit, base, CapacityGoal("mean", 20e-6), {"servers": 1.0})


@pytest.mark.parametrize("text", ["p99", "p42<1ms", "p99<soon", "p99<0", "p99>1ms"])
def test_a_wrong_goal_is_one_line(text: str):
    with pytest.raises(LabError, match="--until"):
        goal_of(text)


@pytest.mark.parametrize(
    "text", ["", "server", "server=0", "clients=1", "server=nan", "server=1 server=2", "server=1 backends=2"]
)
def test_a_wrong_cost_is_one_line(text: str):
    with pytest.raises(LabError, match="--cost"):
        costs_of(text)


def test_a_folder_that_is_no_run_is_one_line(tmp_path: Path):
    with pytest.raises(LabError):
        observe([tmp_path])


def test_the_throughput_of_an_open_loop_is_its_rate(known_fit):
    """Requests arrive whatever the system does, so that only the response time has a wide interval."""
    found = known_fit.predict(settings(8, 3, rate_per_s=20_000.0)).throughput_per_s
    assert found.value == pytest.approx(20_000)
    assert found.low > 19_600 and found.high < 20_400


def test_a_goal_that_nothing_meets_has_the_exit_code_of_the_help(known_fit, monkeypatch, capsys):
    observations = [one for one in run_of_known_truth(2) if one.role == "calibration"]
    monkeypatch.setattr(command, "observe", lambda _: observations)
    monkeypatch.setattr(command, "fitted_runs", lambda _: known_fit)
    arguments = SimpleNamespace(
        runs=[],
        set=[],
        rate="30k",
        clients=None,
        measured=None,
        until="mean<20us",
        cost="server=1",
        json=False,
    )
    assert command.capacity(arguments) == 1
    assert capsys.readouterr().err.startswith("waylab: no configuration meets the goal")


def test_a_rate_beyond_everything_is_refused_without_a_warning(known_fit):
    with pytest.raises(RefusedFitError):
        known_fit.layered.predict(settings(8, 3, rate_per_s=1e300))


def test_a_prediction_comes_true_if_as_many_are_inside_as_promised():
    _, judged = judge_runs(run_of_known_truth(1))
    chosen = [one for one in judged if one.model == "chosen"]
    assert "came true" in came_true(chosen)[0] and "9 of 9" in came_true(chosen)[0]
    wrong = [
        dataclasses.replace(one, measured=dataclasses.replace(one.measured, throughput_per_s=1.0))
        for one in chosen
    ]
    assert "did not come true" in came_true(wrong)[0]


def test_idle_and_saturated_trials_are_flagged_with_the_measurement_that_would_help():
    random = np.random.default_rng(0)

    def flag(clients: tuple[int, ...], servers: int) -> str:
        observations = [measured(settings(count, servers), random, 0.0) for count in clients]
        layered = LayeredModel().fit(observations)
        return one_sided(layered, observations)

    assert "measure more clients" in flag((1, 2), 5)
    assert "measure fewer clients" in flag((64, 128, 256), 1)
    assert flag((1, 8, 64), 1) == ""


def test_results_are_data_frames(known_fit):
    rows = run_of_known_truth(1)
    assert len(observations_frame(rows)) == len(rows)
    predictions = predictions_frame(known_fit, [settings(16, 5), settings(16, 5, value_bytes=4096)])
    assert list(predictions["model"][:2]) == ["chosen", "layered"]
    assert "measure a second level" in predictions["refused"].iloc[-1]
    assert len(explanation_frame(explain_run(known_fit, settings(32, 1)))) > 5
    goal = CapacityGoal("mean", 400e-6)
    plan = plan_capacity(known_fit, settings(1, 1, rate_per_s=20_000.0), goal, {"servers": 1.0})
    assert capacity_frame(plan)["cost"].iloc[0] == plan.options[0].cost


def open_trial(rate: float, servers: int, response_s: float) -> TrialObservation:
    """A trial of an open loop with a known mean response time."""
    one = settings(64, servers, rate_per_s=rate)
    return TrialObservation(
        run="open",
        trial=f"{rate}-{servers}",
        configuration=f"rate={rate}, servers={servers}",
        block=1,
        role="",
        settings=one,
        throughput_per_s=rate,
        response_s=response_s,
        percentiles_s={"all": {"95": 3 * response_s}},
    )


def test_proposals_for_capacity_are_judged_by_measurements(known_fit):
    """One server can do 33 333 requests per second, and two do 40 000 with a mean of 280 us."""
    open_loops = [
        open_trial(40_000, 1, 5e-3),
        open_trial(40_000, 2, 280e-6),
        open_trial(40_000, 3, 250e-6),
        open_trial(10_000, 1, 190e-6),
    ]
    (kept, missed) = judge_capacity(
        known_fit, open_loops, [CapacityGoal("mean", 400e-6), CapacityGoal("mean", 10e-6)], {"servers": 1.0}
    )
    assert kept.proposed.settings.servers == 2 and kept.measured_s == pytest.approx(280e-6) and kept.kept
    assert kept.cheaper.servers == 1 and kept.needed
    assert missed.proposed is None and missed.kept is None and not missed.possible
    assert summary([kept, missed]) == [
        "1 of 1 proposed configurations met the goal (promised: 100 % on average)",
        "1 of 1 next cheaper configurations missed it",
        "nothing was proposed in 1 scenarios; in 0 of them a measured configuration meets the goal",
    ]
    slow = [dataclasses.replace(one, response_s=1.0) for one in open_loops]
    (broken,) = judge_capacity(known_fit, slow, [CapacityGoal("mean", 400e-6)], {"servers": 1.0})
    assert broken.kept is False and not broken.possible


def test_a_run_without_a_choice_of_counts_cannot_judge(known_fit):
    with pytest.raises(LabError, match="no load was measured with two counts of servers"):
        judge_capacity(
            known_fit, [open_trial(10_000, 1, 1e-3)], [CapacityGoal("mean", 1e-3)], {"servers": 1.0}
        )
