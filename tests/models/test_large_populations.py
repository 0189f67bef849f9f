"""The layered solver with thousands of clients: as exact as with few, without solving every population."""

import numpy as np
import pytest

from waylab.errors import LabError
from waylab.fit.layered import network
from waylab.fit.layered.network import Centre, CycleNetwork, solve_cycles
from waylab.fit.observations import ModelSettings, changed_settings
from waylab.models import closed_network, solve

# A leap is halved if it could be off by 1e-3 of the population; throughput is less sensitive.
CLOSE = 5e-4


def proxied(clients: int, **others: object) -> CycleNetwork:
    """A generator and a proxy beside three servers; batches make work cheaper."""
    centres = (
        Centre("load", 1, 1, 1, 8e-6, 10e-6, "machine"),
        Centre("proxy", 1, 1, 1, 20e-6, 30e-6, "machine"),
        Centre("backends", 3, 1.5, 0.9, 20e-6, 30e-6, "machine", inside=True),
    )
    return CycleNetwork(centres, (("machine", 2.0),), 120e-6, clients, **others)


NETWORKS = {
    "shared cores": proxied(3000),
    "a pool": proxied(3000, slots=40, think_s=0.02),
    "a pool of thousands": proxied(3000, slots=1500, think_s=0.02),
    "a knee near the population": proxied(3000, think_s=0.08),
    "a knee at half of it": proxied(3000, think_s=0.04),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_leaps_over_populations_agree_with_solving_all_of_them(name: str, monkeypatch: pytest.MonkeyPatch):
    found = solve_cycles([NETWORKS[name]])
    monkeypatch.setattr(network, "_EVERY", 10**9)
    exact = solve_cycles([NETWORKS[name]])
    for quantity in ("throughput_per_s", "response_s", "utilisation"):
        assert getattr(found, quantity) == pytest.approx(getattr(exact, quantity), rel=CLOSE)
    assert np.abs(found.present - exact.present).max() < CLOSE * 3000
    assert np.abs(found.waiting - exact.waiting).max() < CLOSE * 3000


@pytest.mark.parametrize("clients", [900, 5000, 20_000])
@pytest.mark.parametrize("think_s", [0.0, 0.1, 0.3])
def test_thousands_of_clients_agree_with_the_exact_product_form(clients: int, think_s: float):
    demands = {"a": 20e-6, "b": 19.9e-6, "c": 5e-6}
    exact = solve(closed_network(demands, population=clients, think_s=think_s or 1e-3))
    centres = tuple(Centre(name, 1, 1, 1, time_s, time_s) for name, time_s in demands.items())
    found = solve_cycles([CycleNetwork(centres, (), 0.0, clients, think_s=think_s or 1e-3)])
    assert found.throughput_per_s[0] == pytest.approx(exact.throughput_total_per_s, rel=CLOSE)


def test_configurations_of_different_sizes_are_solved_in_one_batch():
    """Each row has the values of its own population, not those of the largest."""
    together = solve_cycles([proxied(clients) for clients in (7, 300, 2500, 2501, 4000)])
    for place, clients in enumerate((7, 300, 2500, 2501, 4000)):
        alone = solve_cycles([proxied(clients)])
        assert together.throughput_per_s[place] == pytest.approx(alone.throughput_per_s[0], rel=CLOSE)
        assert together.present[place] == pytest.approx(alone.present[0], rel=0.01, abs=CLOSE * clients)


def test_twenty_thousand_clients_need_a_fraction_of_the_populations(monkeypatch: pytest.MonkeyPatch):
    solved = []
    real = network._walk

    def counted(*arguments: object) -> object:
        walk = real(*arguments)

        def to(stop: int) -> object:
            solved.append(stop - arguments[4])
            return walk(stop)

        return to

    monkeypatch.setattr(network, "_walk", counted)
    centres = NETWORKS["shared cores"].centres
    solve_cycles([CycleNetwork(centres, (), 120e-6, 20_000)])
    assert sum(solved) < 5000


def test_more_requests_in_flight_than_models_solve_are_one_line():
    with pytest.raises(LabError, match="200000000 requests in flight; models solve at most 100000"):
        changed_settings(ModelSettings(clients=8), {"clients": "20000", "pipeline": "10000"})
