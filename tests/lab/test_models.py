"""The models against known answers from the literature, to all printed digits."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waylab.models import MM1, ClosedMMc, MMm, UnstableError, erlang_b, erlang_c


def printed(value: float, text: str) -> bool:
    """Return whether a value has the digits of a printed number."""
    decimals = len(text.partition(".")[2].partition("e")[0])
    mantissa = float(text.partition("e")[0])
    scale = float(text) / mantissa
    return abs(value / scale - mantissa) <= 0.51 * 10**-decimals


def test_mm1():
    queue = MM1(0.8, 1.0)
    for value, text in (
        (queue.response_mean_s, "5.0000"),
        (queue.in_system_mean, "4.0000"),
        (queue.waiting_mean_s, "4.0000"),
        (queue.queue_length_mean, "3.2000"),
        (queue.response_quantile_s(0.95), "14.97866"),
        (queue.response_quantile_s(0.99), "23.02585"),
        (queue.waiting_quantile_s(0.95), "13.86294"),
        (queue.busy_period_mean_s, "5.0000"),
        (queue.busy_period_variance_s2, "225.0000"),
    ):
        assert printed(value, text), (value, text)


def test_mmm():
    two, four = MMm(9, 5, 2), MMm(9, 5, 4)
    assert printed(two.waits_probability, "0.8526316")
    assert printed(two.queue_length_mean, "7.673684")
    assert printed(two.response_mean_s, "1.052632")
    assert printed(four.waits_probability, "0.1285336")
    assert printed(four.queue_length_mean, "0.1051639")
    assert printed(four.response_mean_s, "0.2116849")


@pytest.mark.parametrize(("servers", "offered", "text"), [(10, 5, ".0183845703"), (100, 80, ".0039920286")])
def test_erlang_b(servers, offered, text):
    assert printed(erlang_b(servers, offered), text)


@pytest.mark.parametrize(
    ("servers", "utilisation", "text"),
    [
        (100, 0.8, ".0196464266"),
        (99, 0.8, ".0202056699"),
        (165, 0.8, ".0034068280"),
        (512, 0.8, "6.295e-7"),
        (100, 0.95, ".5064568539"),
        (1000, 0.95, ".0682534154"),
    ],
)
def test_erlang_c_keeps_its_digits_with_many_servers(servers, utilisation, text):
    assert printed(erlang_c(servers, servers * utilisation), text)


@pytest.mark.parametrize(
    ("servers", "clients", "think", "service", "throughput", "response"),
    [
        (1, 100, 300, 0.63, ".33245315", ".79425969"),
        (2, 3, 2, 0.25, "1.33241947", None),
        (300, 400, 0, 0.444, "675.6757", ".5920"),
        # The textbook recursion gives a negative throughput here.
        (64, 192, 0.0012, 0.0045, "14222.2", None),
    ],
)
def test_closed(servers, clients, think, service, throughput, response):
    queue = ClosedMMc(clients, servers, service, think)
    assert printed(queue.throughput_per_s, throughput)
    assert response is None or printed(queue.response_mean_s, response)


@pytest.mark.parametrize(
    ("clients", "text"), [(10, "4.000157012"), (30, "5.766437887"), (50, "15.000022354"), (90, "35.0")]
)
def test_closed_is_exact_where_recursions_turn_negative(clients, text):
    assert printed(ClosedMMc(clients, 8, 4.0, 10.0).response_mean_s, text)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 300),
    st.integers(1, 64),
    st.floats(1e-5, 10),
    st.one_of(st.just(0.0), st.floats(1e-5, 100)),
)
def test_closed_keeps_the_laws(clients, servers, service_s, think_s):
    queue = ClosedMMc(clients, servers, service_s, think_s)
    rate, response_s = queue.throughput_per_s, queue.response_mean_s
    assert np.all(queue.probabilities >= 0) and queue.probabilities.sum() == pytest.approx(1)
    assert rate * (response_s + think_s) == pytest.approx(clients, rel=1e-6)
    assert response_s >= service_s * (1 - 1e-9) and rate <= servers / service_s * (1 + 1e-9)
    assert 0 <= queue.utilisation <= 1 + 1e-9


@settings(max_examples=100, deadline=None)
@given(st.floats(0.01, 0.99))
def test_one_server_gives_the_same_result_in_both_models(utilisation):
    one, many = MM1(utilisation, 1.0), MMm(utilisation, 1.0, 1)
    assert many.response_mean_s == pytest.approx(one.response_mean_s)
    assert many.waiting_quantile_s(0.95) == pytest.approx(one.waiting_quantile_s(0.95), abs=1e-9)


@pytest.mark.parametrize(
    "make", [lambda: MM1(1.0, 1.0), lambda: MM1(2.0, 1.0), lambda: MMm(10, 5, 2), lambda: erlang_c(3, 3.5)]
)
def test_an_unstable_queue_raises(make):
    with pytest.raises(UnstableError, match=r"unstable: utilisation [\d.]+ is not below 1"):
        make()


@pytest.mark.parametrize(
    "make", [lambda: MM1(0, 1), lambda: MMm(1, 1, 0), lambda: ClosedMMc(0, 1, 1, 1), lambda: erlang_b(-1, 1)]
)
def test_invalid_parameters_are_refused(make):
    with pytest.raises(ValueError):
        make()


def test_a_closed_queue_with_many_clients_approaches_an_open_one():
    clients, rate = 20000, 0.7
    queue = ClosedMMc(clients, 1, 1.0, clients / rate)
    assert queue.response_mean_s == pytest.approx(MM1(rate, 1.0).response_mean_s, rel=2e-3)
    assert math.isclose(queue.throughput_per_s, rate, rel_tol=1e-3)
