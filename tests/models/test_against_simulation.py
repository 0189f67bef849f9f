"""Formula = simulation: each shared network, solved, and simulated by a program that shares no code with it."""

import numpy as np
import pytest
from networks import EVERY, repairmen, replicated, slots

from waylab.models import simulate, solve

# Some of the many intervals miss by chance; 3.5 half-widths are 6.9 standard errors.
HALF_WIDTHS = 3.5
# How far an approximation may be from the simulated truth here; docs/models.md says how far they are in general.
APPROXIMATION = {"fork-join": 0.10, "layered": 0.05}


@pytest.mark.parametrize("name", EVERY)
def test_formula_and_simulation_agree(name):
    network = EVERY[name]()
    formula = solve(network)
    simulated = simulate(network, seed=11, replications=10, requests=40_000)
    slack = APPROXIMATION.get(formula.method, 0.002)
    for quantity in (
        "throughput_per_s",
        "response_s",
        "station_throughput_per_s",
        "queue_length",
        "utilisation",
    ):
        wanted = np.nan_to_num(getattr(formula, quantity))
        seen = np.nan_to_num(getattr(simulated, quantity))
        allowed = HALF_WIDTHS * np.nan_to_num(simulated.half_widths[quantity]) + slack * np.abs(wanted) + 1e-9
        worst = np.abs(seen - wanted) - allowed
        assert np.all(worst <= 0), f"{quantity}: formula {wanted}, simulation {seen}, allowed {allowed}"


@pytest.mark.parametrize("make", [replicated, slots])
def test_the_small_chain_is_what_is_simulated(make):
    exact = solve(make(clients=4), "markov")
    simulated = simulate(make(clients=4), seed=3, replications=10, requests=40_000)
    allowed = HALF_WIDTHS * simulated.half_widths["response_s"]
    assert np.all(np.abs(simulated.response_s - exact.response_s) <= allowed)


def test_intervals_have_their_nominal_coverage():
    """95 % intervals over many short runs; 300 of them put the share within 2.5 points of 95 with 95 % confidence."""
    truth = solve(repairmen(), "convolution")
    covered = 0
    for seed in range(300):
        run = simulate(repairmen(), seed=1000 + seed, replications=10, requests=2_000, warm_up=500)
        error = abs(run.response_s[0] - truth.response_s[0])
        covered += error <= run.half_widths["response_s"][0]
    assert 0.92 <= covered / 300 <= 0.98
