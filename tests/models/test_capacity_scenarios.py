"""`waylab capacity` on systems whose truth is known: the cheapest configuration, and what limits the cheaper ones."""

import itertools
import math

import pytest
from test_fit_runs import BACKEND_S, DELAY_S, LOAD_S, PROXY_S, run_of_known_truth, settings

from waylab.errors import LabError
from waylab.fit.layered import LayeredModel
from waylab.predict.runs import CapacityGoal, fit_runs, plan_capacity

# Requests per second, limit of the mean response in microseconds, cost of a server and of a proxy; then the cheapest
# number of servers and of proxies. No scenario is decided by less than 12 % of the limit.
SCENARIOS = [
    (30_000, 280, 1, 1, 2, 1),
    (30_000, 280, 1, 2, 2, 1),
    (30_000, 320, 2, 1, 2, 1),
    (30_000, 400, 3, 1, 2, 1),
    (40_000, 400, 1, 1, 2, 1),
    (40_000, 400, 3, 1, 2, 1),
    (50_000, 400, 1, 1, 2, 2),
    (50_000, 400, 1, 2, 2, 2),
    (50_000, 400, 3, 1, 2, 2),
    (60_000, 320, 1, 1, 3, 2),
    (60_000, 320, 1, 2, 3, 2),
    (60_000, 320, 3, 1, 3, 2),
    (60_000, 400, 1, 1, 3, 2),
    (60_000, 400, 3, 1, 3, 2),
    (70_000, 400, 1, 1, 3, 2),
    (70_000, 400, 2, 1, 3, 2),
    (70_000, 400, 3, 1, 3, 2),
]
# Goals that no configuration meets: below the delay, and beyond what the generator can send.
IMPOSSIBLE = [(30_000, 100), (60_000, 130), (126_000, 1000)]


def truth_s(rate: float, servers: int, proxies: int) -> float:
    """Mean response time of the open network: a delay and M/M/1 queues."""
    response_s = DELAY_S
    for time_s, queues in ((LOAD_S, 1), (PROXY_S, proxies), (BACKEND_S, servers)):
        use = rate * time_s / queues
        if use >= 1:
            return math.inf
        response_s += time_s / (1 - use)
    return response_s


@pytest.fixture(scope="module")
def fitted():
    """Fitted to closed loops of one and three servers behind one proxy, with 2 % noise."""
    known = [one for one in run_of_known_truth(2) if one.role == "calibration"]
    return fit_runs(known, models=[LayeredModel()])


@pytest.mark.parametrize(("rate", "limit_us", "server", "proxy", "servers", "proxies"), SCENARIOS)
def test_the_cheapest_configuration_is_the_one_that_is_known(
    fitted, rate: int, limit_us: int, server: float, proxy: float, servers: int, proxies: int
):
    cost = server * servers + proxy * proxies
    counts = itertools.product(range(1, 10), range(1, 9))
    cheaper = [(s, p) for s, p in counts if server * s + proxy * p < cost]
    assert truth_s(rate, servers, proxies) < limit_us * 1e-6
    assert all(truth_s(rate, *one) > limit_us * 1e-6 for one in cheaper)
    goal = CapacityGoal("mean", limit_us * 1e-6)
    found = plan_capacity(
        fitted, settings(1, 1, rate_per_s=float(rate)), goal, {"servers": server, "proxies": proxy}
    )
    proposed = found.options[0].settings
    assert (proposed.servers, proposed.proxies) == (servers, proxies)
    assert all(one.probability < 0.5 for one in found.cheaper)
    # What breaks first in a cheaper one is what it has too little of.
    for one in found.cheaper:
        if rate * BACKEND_S > one.settings.servers and rate * PROXY_S < one.settings.proxies:
            assert one.limited_by in ("backends", "too little capacity for the load")


@pytest.mark.parametrize(("rate", "limit_us"), IMPOSSIBLE)
def test_a_goal_that_nothing_meets_is_one_line(fitted, rate: int, limit_us: int):
    goal = CapacityGoal("mean", limit_us * 1e-6)
    with pytest.raises(LabError, match="no configuration meets the goal"):
        plan_capacity(fitted, settings(1, 1, rate_per_s=float(rate)), goal, {"servers": 1.0})
