"""Percentiles of response times from the parts of their means: against known distributions and a simulation."""

import dataclasses
import math

import numpy as np
import pytest
from known_runs import measured
from scipy.stats import gamma
from test_fit_runs import run_of_known_truth, settings

from waylab.fit.interface import Estimate, ModelPrediction
from waylab.fit.layered import LayeredModel
from waylab.fit.layered.key_queues import KeyQueues, waits_at_key_queues
from waylab.fit.layered.network import Centre, CycleNetwork, solve_cycles
from waylab.fit.layered.passages import PassageTimes, ResponseParts, fit_widths, response_parts
from waylab.fit.layered.shapes import PASSAGE, RATIO, blended
from waylab.predict.runs.inner import InnerPair
from waylab.predict.runs.weights import percentile_weights


def followed(
    queues: int, clients: int, base_s: float, service_s: float, end_s: float, seed: int
) -> np.ndarray:
    """Waits of single requests, each a random draw: a closed loop of clients over queues that random keys choose."""
    random = np.random.default_rng(seed)
    shares = random.dirichlet([160.0] * queues)
    free = np.zeros(queues)
    coming = np.sort(random.random(clients) * base_s).tolist()
    found = []
    while coming:
        now = coming.pop(0)
        if now > end_s:
            break
        queue = int(np.searchsorted(np.cumsum(shares), random.random()))
        wait_s = max(0.0, free[queue] - now)
        free[queue] = max(now, free[queue]) + service_s
        if now > end_s / 5:
            found.append(wait_s)
        coming.insert(int(np.searchsorted(coming, now + wait_s + base_s)), now + wait_s + base_s)
    return np.array(found)


def test_unequal_shares_make_a_few_requests_wait_long_as_in_a_simulation_of_single_requests():
    trials = [followed(5, 180, 0.07, 2.5e-3, 6.0, seed) for seed in range(12)]
    mean_s = float(np.mean([one.mean() for one in trials]))
    expected = float(np.mean([np.quantile(one, 0.95) for one in trials]))
    # With equal queues of an exponential length, it would be 3.0 times the mean.
    assert expected / mean_s > 3.2
    (found,) = waits_at_key_queues([KeyQueues(5, 180, mean_s, 0.07, 1.2, 6.0)])
    assert np.trapezoid(found, axis=1).mean() / 100 == pytest.approx(mean_s, rel=0.03)
    assert found[:, 95].mean() == pytest.approx(expected, rel=0.15)


def test_the_largest_share_takes_over_with_time():
    short, endless = waits_at_key_queues(
        [KeyQueues(5, 400, 0.16, 0.07, 0.2, 1.0), KeyQueues(5, 400, 0.16, 0.07)]
    )
    assert endless[:, 95].mean() > 1.3 * short[:, 95].mean()
    assert endless[:, 50].mean() < 0.7 * short[:, 50].mean()


def test_a_passage_without_key_queues_is_the_shifted_gamma_distribution():
    passages = PassageTimes([ResponseParts(0.01, 0.03, 0.06)])
    above_s = 0.1 - 0.01 - 0.03 * 0.97
    variance = (0.01 * 0.03) ** 2 + 0.005 * 0.06
    shape = above_s**2 / variance
    for share in (0.5, 0.95, 0.99):
        expected = 0.01 + 0.03 * 0.97 + gamma.ppf(share, shape, scale=above_s / shape)
        assert passages.percentile_s(share, 0.01, 0.005)[0] == pytest.approx(expected, rel=1e-6)


def test_requests_that_need_no_queue_do_not_wait():
    some = PassageTimes([ResponseParts(0.06, 0.0, 1e-6, 0.04, visiting=0.04, queues=5, clients=200)])
    # Of 4 % that wait for a second on average, nothing reaches the 95th percentile.
    assert some.percentile_s(0.95, 0.01, 1e-4)[0] == pytest.approx(0.061, abs=0.002)
    assert some.percentile_s(0.99, 0.01, 1e-4)[0] > 0.5


def test_the_fitted_widths_return_the_percentiles():
    parts = [
        ResponseParts(0.04, 0.02, 0.001 * clients, 2e-4 * clients, 1.0, 5, clients, 0.0, 3.0, 15.0)
        for clients in (20, 100, 180, 260)
    ]
    passages = PassageTimes(parts)
    truth = passages.percentile_s(0.95, 0.02, 0.004)
    found = passages.percentile_s(0.95, *fit_widths(passages, truth))
    assert found == pytest.approx(truth, rel=0.03)


def test_the_parts_add_up_and_the_wait_is_that_at_the_queues_of_the_keys():
    centres = (
        Centre("proxy", 1, 1, 1, 1e-4, 1e-4),
        Centre("backends", 3, 1, 1, 1e-3, 1e-3, inside=True, by_key=True),
    )
    network = CycleNetwork(centres, (), 0.01, 60)
    found = solve_cycles([network])
    behind = settings(60, 3, outer_delay_s=0.004)
    parts = response_parts(network, found, 0, behind, (1.0, 6.0))
    assert parts.mean_s == pytest.approx(found.response_s[0])
    busy = found.utilisation[0, 1] * 3
    assert parts.key_wait_s == pytest.approx((found.present[0, 1] - busy) / found.throughput_per_s[0])
    assert (parts.constant_s, parts.queues, parts.start_s, parts.end_s) == (0.004, 3, 1.0, 6.0)
    assert parts.delay_s == pytest.approx(0.006)
    limited = dataclasses.replace(network, slots=10)
    assert response_parts(limited, solve_cycles([limited]), 0, behind, (0.0, 0.0)).key_wait_s == 0


def pair(ratio_error: float, passage_error: float) -> InnerPair:
    """A held-out configuration with these errors of the 95th percentile."""
    measured = dataclasses.replace(
        run_of_known_truth(1)[0], response_s=1.0, percentiles_s={"all": {"95": 2.0}}
    )
    models_s = {
        PASSAGE: {"all": {"95": 2.0 * math.exp(passage_error)}},
        RATIO: {"all": {"95": 2.0 * math.exp(ratio_error)}},
    }
    predicted = ModelPrediction(
        measured.settings, "layered", Estimate(1.0), Estimate(1.0), percentile_models_s=models_s
    )
    return InnerPair(measured, {"layered": predicted}, True)


def test_the_model_of_percentiles_with_the_smaller_held_out_errors_dominates():
    found = percentile_weights([pair(0.2, 0.05), pair(-0.4, 0.05)])
    assert found[PASSAGE] == pytest.approx(36 / 37, abs=0.03) and sum(found.values()) == pytest.approx(1)
    assert percentile_weights([]) == {}


def test_a_blend_of_percentiles_is_their_weighted_geometric_mean():
    models_s = {PASSAGE: {"all": {"95": 1.0}}, RATIO: {"all": {"95": 4.0}}}
    assert blended(models_s, {PASSAGE: 0.5, RATIO: 0.5}) == {"all": {"95": pytest.approx(2.0)}}
    assert blended(models_s, {}) == {"all": {"95": pytest.approx(1.0)}}
    assert blended({}, {}) == {}


def test_percentiles_are_predicted_where_the_ratio_to_the_mean_changes():
    """Exponential queues of equal servers: the passage knows how the ratio falls when a queue of many grows."""
    random = np.random.default_rng(2)
    known = []
    for one in run_of_known_truth(3, 0.01):
        noise = math.exp(0.01 * random.standard_normal())
        fixed_s = min(120e-6, one.response_s)
        passing_s = one.response_s - fixed_s
        p95_s = one.response_s + 1.645 * math.sqrt(3e-5 * passing_s)
        known.append(
            dataclasses.replace(one, percentiles_s={"all": {"50": one.response_s, "95": p95_s * noise}})
        )
    calibration = [one for one in known if one.role == "calibration"]
    fitted = LayeredModel().fit(calibration)
    far = settings(64, 3)
    truth = next(one for one in known if one.settings == far)
    found = fitted.predict(far).percentile_models_s[PASSAGE]["all"]["95"]
    assert found == pytest.approx(truth.percentiles_s["all"]["95"], rel=0.12)


def test_three_loads_are_enough_for_a_ratio_that_rises_with_the_load():
    """Their mean ratio would be 20 % too high for few clients, and 15 % too low for many."""
    rates = {4: 1.2, 16: 1.5, 64: 2.0}
    known = [
        dataclasses.replace(
            one,
            percentiles_s={"all": {"95": rates[one.settings.clients] * one.response_s}},
        )
        for clients in rates
        for one in [measured(settings(clients, 3), np.random.default_rng(clients), 0.0)]
    ]
    fitted = LayeredModel().fit(known)
    found = {}
    for clients in (4, 8, 32, 64, 256):
        one = fitted.predict(settings(clients, 3))
        found[clients] = one.percentile_models_s[RATIO]["all"]["95"] / one.response_s.value
    assert found[4] == pytest.approx(1.2, rel=0.06) and found[64] == pytest.approx(2.0, rel=0.06)
    assert 1.2 < found[8] < 1.55 and 1.5 < found[32] < 2.0
    # Beyond the measured loads, the ratio stays at the largest measured one.
    assert found[256] == pytest.approx(2.0, rel=0.06)


def test_a_passage_has_at_least_one_phase():
    """A larger variance of the phases cannot make the passage more variable than an exponential time."""
    short = PassageTimes([ResponseParts(0.0, 0.0, 1.0)])
    percentiles = [short.percentile_s(0.95, 0.1, phase_s)[0] for phase_s in (0.1, 0.5, 1.0, 100.0)]
    assert percentiles == sorted(percentiles)
    assert percentiles[-1] == pytest.approx(-math.log(0.05), rel=1e-6)
