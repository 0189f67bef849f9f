"""The elementary queues against their own definition: the Markov chain, written down state by state and solved."""

import math
from collections import deque

import numpy as np
import pytest

from waylab.models import (
    MG1,
    MM1K,
    BirthDeath,
    BulkService,
    ClosedBirthDeath,
    ClosedMMc,
    MMm,
    MMmK,
    PhaseType,
    ProcessorSharing,
    Service,
)


def steady(first, moves):
    """Steady state of a finite chain, {state: probability}; `moves(state)` lists (rate, next state)."""
    states, todo = {first: 0}, deque([first])
    while todo:
        for _, after in moves(todo[0]):
            if after not in states:
                states[after] = len(states)
                todo.append(after)
        todo.popleft()
    flow = np.zeros((len(states), len(states)))
    for state, index in states.items():
        for rate, after in moves(state):
            flow[states[after], index] += rate
            flow[index, index] -= rate
    flow[-1] = 1.0
    right = np.zeros(len(states))
    right[-1] = 1.0
    return dict(zip(states, np.linalg.solve(flow, right), strict=True))


def mean(probabilities, count):
    return sum(share * count(state) for state, share in probabilities.items())


def moments(probabilities, count):
    first = mean(probabilities, count)
    return first, math.sqrt(mean(probabilities, lambda state: (count(state) - first) ** 2))


@pytest.mark.parametrize(("arrivals", "batch"), [(0.7, 1), (2.0, 3), (1.0, 5), (3.5, 6)])
def test_a_server_that_serves_batches(arrivals, batch):
    def moves(state):
        serving, waiting = state
        if not serving:
            return [(arrivals, (1, 0))]
        taken = min(waiting, batch)
        comes = [(arrivals, (serving, waiting + 1))] if waiting < 180 else []
        return [*comes, (1.0, (taken, waiting - taken))]

    queue, chain = BulkService(arrivals, 1.0, batch), steady((0, 0), moves)
    assert (queue.in_system_mean, queue.in_system_std) == pytest.approx(moments(chain, sum), rel=1e-8)
    waiting = moments(chain, lambda state: state[1])
    assert (queue.queue_length_mean, queue.queue_length_std) == pytest.approx(waiting, rel=1e-8)
    assert queue.utilisation == pytest.approx(mean(chain, lambda state: state[0] > 0), rel=1e-9)
    for present in (0, 1, batch, 2 * batch + 1):
        expected = mean(chain, lambda state, n=present: sum(state) == n)
        assert queue.probability(present) == pytest.approx(expected, rel=1e-8)
    assert queue.batch_mean == pytest.approx(arrivals / queue.utilisation)


def test_processor_sharing_by_the_chain_of_one_customer():
    rho, others = 0.6, np.arange(120)
    rates = np.diag(-(rho + 1.0) * np.ones(120)) + np.diag(rho * np.ones(119), 1)
    rates += np.diag((others / (others + 1))[1:], -1)
    time = PhaseType((1 - rho) * rho**others, rates)
    queue = ProcessorSharing(rho, 1.0)
    assert queue.response_mean_s == pytest.approx(time.mean_s, rel=1e-9)
    assert queue.response_std_s == pytest.approx(time.std_s, rel=1e-9)


# Response times of one customer, as phase-type times built from the state that it finds.


def by_states(found, servers, rate):
    """Mixture over the number found: departures of the full station, then one's own service."""
    parts = [PhaseType.exponential(1 / rate)]
    for ahead in range(1, len(found) - servers + 1):
        wait = PhaseType.erlang(ahead / (servers * rate), ahead)
        parts.append(PhaseType.sum_of([wait, parts[0]]))
    return PhaseType.mixture_of([sum(found[:servers]), *found[servers:]], parts)


@pytest.mark.parametrize("queue", [MMmK(4.0, 1.0, 3, 12), MM1K(2.0, 1.0, 6), MMmK(9.0, 1.0, 4, 4)])
def test_finite_room_lets_in_what_finds_room(queue):
    found = queue.probabilities[:-1] / sum(queue.probabilities[:-1])
    time = by_states(found, queue.servers, queue.services_per_s)
    assert queue.response_mean_s == pytest.approx(time.mean_s, rel=1e-10)
    assert queue.response_std_s == pytest.approx(time.std_s, rel=1e-10)
    for share in (0.01, 0.5, 0.95, 0.999):
        assert queue.response_quantile_s(share) == pytest.approx(time.quantile(share), rel=1e-9)


def test_closed_customers_find_one_fewer():
    queue = ClosedMMc(9, 2, 0.5, 1.5)
    time = by_states(ClosedMMc(8, 2, 0.5, 1.5).probabilities, 2, 2.0)
    assert queue.response_mean_s == pytest.approx(time.mean_s, rel=1e-12)
    assert queue.response_quantile_s(0.95) == pytest.approx(time.quantile(0.95), rel=1e-9)


@pytest.mark.parametrize(
    ("clients", "servers", "think_s"), [(1, 1, 1.0), (5, 2, 1.0), (30, 8, 0.4), (3, 5, 2.0), (7, 3, 0.0)]
)
def test_one_customer_followed_through_a_pool_is_one_of_a_line_where_rates_are_servers(
    clients, servers, think_s
):
    queue = ClosedMMc(clients, servers, 0.7, think_s)
    time = queue.response_time
    assert time.mean_s == pytest.approx(queue.response_mean_s, rel=1e-11)
    assert time.std_s == pytest.approx(queue.response_std_s, rel=1e-10)
    assert time.quantile(0.99) == pytest.approx(queue.response_quantile_s(0.99), rel=1e-9)


@pytest.mark.parametrize("rates", [(1.0, 1.6, 2.0), (3.0, 2.0), (1.0, 1.0, 1.0, 1.0, 9.0), (2.0,)])
def test_one_customer_followed_through_a_pool_takes_the_time_of_littles_law(rates):
    queue = ClosedBirthDeath(11, 1.3, rates)
    assert queue.response_time.mean_s == pytest.approx(queue.response_mean_s, rel=1e-11)
    assert queue._line.waiting_mean_s == pytest.approx(queue.waiting_mean_s, rel=1e-11)


@pytest.mark.parametrize("rates", [(1.0, 1.6), (2.0, 1.5, 1.8)])
def test_one_customer_followed_through_a_pool_by_the_order_of_all(rates):
    """The oracle's state is the ordered list of customers present, with customer 0 among them."""
    clients, think_s = 5, 1.3

    def moves(order):
        serving = min(len(order), len(rates))
        each = rates[serving - 1] / serving
        away = set(range(clients)) - set(order)
        return [(1 / think_s, (*order, name)) for name in away] + [
            (each, tuple(name for name in order if name != served)) for served in order[:serving]
        ]

    todo = [(*range(1, present + 1), 0) for present in range(clients)]
    states = {order: index for index, order in enumerate(todo)}
    for order in todo:
        for _, after in moves(order):
            if 0 in after and after not in states:
                states[after] = len(states)
                todo.append(after)
    generator = np.zeros((len(states), len(states)))
    for order, index in states.items():
        for rate, after in moves(order):
            generator[index, index] -= rate
            if 0 in after:
                generator[index, states[after]] += rate
    # It finds the other customers in any order, and joins the end of the queue.
    start = np.zeros(len(states))
    start[:clients] = ClosedBirthDeath(clients - 1, think_s, rates).probabilities
    oracle, queue = PhaseType(start, generator), ClosedBirthDeath(clients, think_s, rates)
    assert queue.response_std_s == pytest.approx(oracle.std_s, rel=1e-11)
    for share in (0.05, 0.5, 0.95, 0.999):
        assert queue.response_quantile_s(share) == pytest.approx(oracle.quantile(share), rel=1e-10)


@pytest.mark.parametrize("difference", [0.0, 1e-12, 1e-6, 0.3])
def test_the_response_time_where_the_two_rates_meet(difference):
    """With m mu - lambda = mu the usual formula divides by zero, and near it loses all its digits."""
    queue = MMm(2.0 - difference, 1.0, 3)
    both = PhaseType.sum_of([PhaseType.exponential(1 / (1 + difference)), PhaseType.exponential(1.0)])
    waits = queue.waits_probability
    time = PhaseType.mixture_of([waits, 1 - waits], [both, PhaseType.exponential(1.0)])
    for share in (0.1, 0.9, 0.999):
        assert queue.response_quantile_s(share) == pytest.approx(time.quantile(share), rel=1e-10)


def test_a_service_made_of_phases_waits_like_any_other_of_its_moments():
    for service in (Service(1.0), Service.erlang(1.0, 4), Service(1.0, 3.0, "hyperexponential")):
        queue = MG1(0.7, service)
        assert queue.waiting_time.mean_s == pytest.approx(queue.waiting_mean_s, rel=1e-11)
        assert queue.waiting_time.std_s == pytest.approx(queue.waiting_std_s, rel=1e-11)
        assert queue.response_time.std_s == pytest.approx(queue.response_std_s, rel=1e-11)


# Busy periods.


@pytest.mark.parametrize("queue", [MMmK(3.0, 1.0, 2, 9), ClosedMMc(7, 2, 0.5, 1.0), MM1K(0.5, 2.0, 1)])
def test_a_busy_period_is_the_passage_from_one_present_to_none(queue):
    chain = queue._chain
    births, deaths = np.append(chain.births_per_s[1:], 0.0), chain.deaths_per_s
    rates = np.diag(births[:-1], 1) + np.diag(deaths[1:], -1) - np.diag(births + deaths)
    time = PhaseType(np.eye(births.size)[0], rates)
    assert queue.busy_period_mean_s == pytest.approx(time.mean_s, rel=1e-10)
    assert queue.busy_period_std_s == pytest.approx(time.std_s, rel=1e-10)
    # Jobs: first and second moment of the departures, by the equations of the first step.
    down = np.diag(deaths[1:], -1)
    first = np.linalg.solve(-rates, deaths)
    second = np.linalg.solve(-rates, deaths + 2 * (down @ first))
    assert queue.busy_period_jobs_mean == pytest.approx(first[0], rel=1e-10)
    assert queue.busy_period_jobs_variance == pytest.approx(second[0] - first[0] ** 2, rel=1e-8)


def test_a_busy_period_of_any_service_time():
    """Takagi, Queueing Analysis, vol. 1, 1.2, by the equations B = S + the busy periods of the arrivals during S."""
    queue, rho = MG1(0.5, Service.deterministic(1.2)), 0.6
    assert queue.busy_period_mean_s == pytest.approx(1.2 / (1 - rho), rel=1e-13)
    second = 1.2**2 / (1 - rho) ** 3
    assert queue.busy_period_variance_s2 == pytest.approx(second - (1.2 / (1 - rho)) ** 2, rel=1e-12)
    # Jobs with constant service are a Borel distribution: variance rho / (1 - rho)^3.
    assert queue.busy_period_jobs_variance == pytest.approx(rho / (1 - rho) ** 3, rel=1e-12)
    assert queue.busy_period_jobs_mean == pytest.approx(1 / (1 - rho), rel=1e-13)


def test_a_general_chain_with_a_tail():
    """A server that is slow with one present, in 2000 explicit states and closed in geometric form."""
    births, deaths = [0.5, 0.6], [0.7, 1.0]
    closed = BirthDeath(births, deaths, 0.6, 1.1, servers=2)
    long = BirthDeath([*births, *[0.6] * 2000], [*deaths, *[1.1] * 2000], servers=2)
    for name in (
        "in_system_mean",
        "in_system_std",
        "queue_length_mean",
        "queue_length_std",
        "throughput_per_s",
    ):
        assert getattr(closed, name) == pytest.approx(getattr(long, name), rel=1e-11)
    for name in ("busy_period_mean_s", "busy_period_std_s", "busy_period_jobs_std", "utilisation"):
        assert getattr(closed, name) == pytest.approx(getattr(long, name), rel=1e-11)
    assert [closed.probability(n) for n in range(9)] == pytest.approx(long.probabilities[:9], rel=1e-11)
